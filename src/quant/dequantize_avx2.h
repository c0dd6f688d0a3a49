// Decoders of whole rows on AVX2: the values of block_format.h's dequantize, 32 codes at a time. For
// block_kernels_avx2.cpp alone, in an unnamed namespace as all it compiles (lanes.h).
#pragma once

#include "quant/iq4_nl_table.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace nybl::quant {
namespace {

struct Vectors {
    __m256 scale, min;
};

[[gnu::always_inline]] inline Vectors only_scale(float scale) noexcept {
    return {_mm256_set1_ps(scale), _mm256_setzero_ps()};
}

[[gnu::always_inline]] inline float half_at(const uint8_t *src) noexcept {
    uint16_t bits;
    std::memcpy(&bits, src, sizeof bits);
    return _cvtsh_ss(bits);
}
[[gnu::always_inline]] inline __m128i load_16(const uint8_t *src) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(src));
}
[[gnu::always_inline]] inline __m256i load_32(const uint8_t *src) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src));
}

// Eight values from eight codes (signed bytes) at the bottom of `codes`.
template <bool has_min>
[[gnu::always_inline]] inline void store_values(__m128i codes, Vectors v, float *dst) noexcept {
    const __m256 product = _mm256_mul_ps(v.scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
    _mm256_storeu_ps(dst, has_min ? _mm256_add_ps(product, v.min) : product);
}
// 16 with one scale, and 32.
template <bool has_min>
[[gnu::always_inline]] inline void store_half(__m128i codes, Vectors v, float *dst) noexcept {
    store_values<has_min>(codes, v, dst);
    store_values<has_min>(_mm_unpackhi_epi64(codes, codes), v, dst + 8);
}
template <bool has_min>
[[gnu::always_inline]] inline void store_group(__m256i codes, Vectors v, float *dst) noexcept {
    store_half<has_min>(_mm256_castsi256_si128(codes), v, dst);
    store_half<has_min>(_mm256_extracti128_si256(codes, 1), v, dst + 16);
}

// The 32 codes of 16 bytes of nibbles: the low ones first.
[[gnu::always_inline]] inline __m256i nibbles(const uint8_t *qs) noexcept {
    const __m128i bytes = load_16(qs);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}
// 16 in every byte whose bit of the 32 is set.
[[gnu::always_inline]] inline __m256i fifth_bits(const uint8_t *qh) noexcept {
    int32_t bits;
    std::memcpy(&bits, qh, sizeof bits);
    const __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), order);
    const __m256i own = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// Blocks of 32: where the fields lie and how codes are read.
struct DecodeQ4_0 {
    static constexpr size_t kBytes = 18;
    static constexpr bool kMin = false;
    static __m256i codes(const uint8_t *src) noexcept {
        return _mm256_sub_epi8(nibbles(src + 2), _mm256_set1_epi8(8));
    }
};
struct DecodeQ4_1 {
    static constexpr size_t kBytes = 20;
    static constexpr bool kMin = true;
    static __m256i codes(const uint8_t *src) noexcept { return nibbles(src + 4); }
};
struct DecodeQ5_0 {
    static constexpr size_t kBytes = 22;
    static constexpr bool kMin = false;
    static __m256i codes(const uint8_t *src) noexcept {
        return _mm256_sub_epi8(_mm256_or_si256(nibbles(src + 6), fifth_bits(src + 2)), _mm256_set1_epi8(16));
    }
};
struct DecodeQ5_1 {
    static constexpr size_t kBytes = 24;
    static constexpr bool kMin = true;
    static __m256i codes(const uint8_t *src) noexcept {
        return _mm256_or_si256(nibbles(src + 8), fifth_bits(src + 4));
    }
};
struct DecodeQ8_0 {
    static constexpr size_t kBytes = 34;
    static constexpr bool kMin = false;
    static __m256i codes(const uint8_t *src) noexcept { return load_32(src + 2); }
};
struct DecodeIQ4_NL {
    static constexpr size_t kBytes = 18;
    static constexpr bool kMin = false;
    static __m256i codes(const uint8_t *src) noexcept {
        const __m128i table = load_16(reinterpret_cast<const uint8_t *>(kIq4NlTable));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(src + 2));
    }
};

template <class Decode>
void dequantize_32(const uint8_t *src, float *dst, size_t blocks) noexcept {
    for (size_t b = 0; b < blocks; ++b, src += Decode::kBytes, dst += 32) {
        const __m256 min = Decode::kMin ? _mm256_set1_ps(half_at(src + 2)) : _mm256_setzero_ps();
        store_group<Decode::kMin>(Decode::codes(src), {_mm256_set1_ps(half_at(src)), min}, dst);
    }
}

// Rows of blocks with an 8-bit scale, and an f32 that multiplies their (exact) products.
void dequantize_iq4_nl_row(const uint8_t *src, float *dst, size_t blocks) noexcept {
    constexpr size_t kBytes = 17;
    float factor = 0;
    if (blocks != 0)
        std::memcpy(&factor, src + blocks * kBytes, sizeof factor);
    const __m128i table = load_16(reinterpret_cast<const uint8_t *>(kIq4NlTable));
    for (size_t b = 0; b < blocks; ++b, src += kBytes, dst += 32) {
        const __m256i codes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(src + 1));
        const __m256 scale = _mm256_set1_ps(static_cast<int8_t>(src[0]));
        const __m128i low = _mm256_castsi256_si128(codes), high = _mm256_extracti128_si256(codes, 1);
        const __m128i parts[] = {low, _mm_unpackhi_epi64(low, low), high, _mm_unpackhi_epi64(high, high)};
        for (size_t i = 0; i < 4; ++i) {
            const __m256 product = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(parts[i])));
            _mm256_storeu_ps(dst + 8 * i, _mm256_mul_ps(product, _mm256_set1_ps(factor)));
        }
    }
}

// f32(d * sc) and -f32(dmin * mn) of eight groups.
struct KFactors {
    float scale[8], min[8];
};
[[gnu::always_inline]] inline KFactors k_factors(const uint8_t *block) noexcept {
    uint32_t s[3];
    std::memcpy(s, block + 4, sizeof s);
    const uint64_t top_scale = (s[0] >> 6 & 0x03030303u) << 4, top_min = (s[1] >> 6 & 0x03030303u) << 4;
    const uint64_t scale = (s[0] & 0x3F3F3F3Fu) | ((s[2] & 0x0F0F0F0Fu) | top_scale) << 32,
                   min = (s[1] & 0x3F3F3F3Fu) | ((s[2] >> 4 & 0x0F0F0F0Fu) | top_min) << 32;
    const auto widen = [](uint64_t bytes) {
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
    };
    KFactors f;
    const __m256 product = _mm256_mul_ps(_mm256_set1_ps(half_at(block + 2)), widen(min));
    _mm256_storeu_ps(f.scale, _mm256_mul_ps(_mm256_set1_ps(half_at(block)), widen(scale)));
    _mm256_storeu_ps(f.min, _mm256_xor_ps(product, _mm256_set1_ps(-0.0f)));
    return f;
}

template <bool fifth_bit>
void dequantize_k(const uint8_t *src, float *dst, size_t blocks) noexcept {
    constexpr size_t kCodes = fifth_bit ? 48 : 16;
    const __m256i low = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    for (size_t b = 0; b < blocks; ++b, src += kCodes + 128) {
        const KFactors f = k_factors(src);
        __m256i high = fifth_bit ? load_32(src + 16) : _mm256_setzero_si256();
        for (size_t g = 0; g < 8; ++g, dst += 32) {
            const __m256i bytes = load_32(src + kCodes + 32 * (g / 2));
            __m256i codes = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(bytes, 4) : bytes, low);
            if constexpr (fifth_bit) { // bit g of a byte of `high`, brought to bit 0 by now
                codes = _mm256_or_si256(codes, _mm256_and_si256(_mm256_slli_epi16(high, 4), sixteen));
                high = _mm256_srli_epi16(high, 1);
            }
            store_group<true>(codes, {_mm256_set1_ps(f.scale[g]), _mm256_set1_ps(f.min[g])}, dst);
        }
    }
}

void dequantize_q6_k(const uint8_t *src, float *dst, size_t blocks) noexcept {
    const __m256i low = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(48), middle = _mm256_set1_epi8(32);
    for (size_t b = 0; b < blocks; ++b, src += 210) {
        const __m256 d = _mm256_set1_ps(half_at(src + 208));
        float scale[16];
        for (size_t h = 0; h < 2; ++h) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(src + 192 + 8 * h));
            _mm256_storeu_ps(scale + 8 * h,
                             _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
        }
        for (size_t run = 0; run < 8; ++run, dst += 32) {
            const size_t half = run / 4, r = run % 4;
            const __m256i nibble = load_32(src + 64 * half + 32 * (r & 1)),
                          bits = load_32(src + 128 + 32 * half);
            // The two bits of run r go to bits 4 and 5.
            const __m256i high = r == 0   ? _mm256_slli_epi16(bits, 4)
                                 : r == 1 ? _mm256_slli_epi16(bits, 2)
                                 : r == 2 ? bits
                                          : _mm256_srli_epi16(bits, 2);
            const __m256i codes =
                _mm256_or_si256(_mm256_and_si256(r < 2 ? nibble : _mm256_srli_epi16(nibble, 4), low),
                                _mm256_and_si256(high, pair));
            const __m256i centred = _mm256_sub_epi8(codes, middle);
            store_half<false>(_mm256_castsi256_si128(centred), only_scale(scale[2 * run]), dst);
            store_half<false>(_mm256_extracti128_si256(centred, 1), only_scale(scale[2 * run + 1]), dst + 16);
        }
    }
}

} // namespace
} // namespace nybl::quant
