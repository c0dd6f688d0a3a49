// Eight f32 side by side, and what the encoders and decoders need on them.
//
// Files that include this are compiled once for every machine and once more for AVX2 (block_kernels.h), from
// the same source: each lane is computed by the same sequence of IEEE operations, so that the bytes agree.
// Everything here and in the headers built on it has internal linkage, since the linker would otherwise merge
// the two and hand instructions of the one to a machine of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace nybl::quant {
namespace {

constexpr size_t kLanes = 8;
using Lanes = float __attribute__((vector_size(32)));
using IntLanes = int32_t __attribute__((vector_size(32)));
using BitLanes = uint32_t __attribute__((vector_size(32)));

[[gnu::always_inline]] inline Lanes load_lanes(const float *src) noexcept {
    Lanes v;
    std::memcpy(&v, src, sizeof v);
    return v;
}
[[gnu::always_inline]] inline void store_lanes(float *dst, Lanes v) noexcept {
    std::memcpy(dst, &v, sizeof v);
}

[[gnu::always_inline]] inline Lanes splat(float x) noexcept {
    return Lanes{x, x, x, x, x, x, x, x};
}

[[gnu::always_inline]] inline BitLanes bits_of(Lanes v) noexcept {
    return reinterpret_cast<BitLanes>(v);
}
[[gnu::always_inline]] inline Lanes from_bits(BitLanes v) noexcept {
    return reinterpret_cast<Lanes>(v);
}

#if defined(__SSE2__) && !defined(__AVX2__)
// GCC takes some operations on vectors wider than the machine's apart into single elements.
template <class Operation>
[[gnu::always_inline]] inline Lanes halves(Lanes a, Lanes b, Operation operation) noexcept {
    __m128 p[2], q[2];
    std::memcpy(p, &a, sizeof a);
    std::memcpy(q, &b, sizeof b);
    for (size_t h = 0; h < 2; ++h)
        p[h] = operation(p[h], q[h]);
    std::memcpy(&a, p, sizeof a);
    return a;
}
#endif

[[gnu::always_inline]] inline Lanes larger(Lanes a, Lanes b) noexcept {
#if defined(__AVX2__)
    return reinterpret_cast<Lanes>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#elif defined(__SSE2__)
    return halves(a, b, [](__m128 p, __m128 q) { return _mm_max_ps(p, q); });
#else
    return a > b ? a : b;
#endif
}
[[gnu::always_inline]] inline Lanes smaller(Lanes a, Lanes b) noexcept {
#if defined(__AVX2__)
    return reinterpret_cast<Lanes>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#elif defined(__SSE2__)
    return halves(a, b, [](__m128 p, __m128 q) { return _mm_min_ps(p, q); });
#else
    return a < b ? a : b;
#endif
}
[[gnu::always_inline]] inline Lanes clamp(Lanes v, float low, float high) noexcept {
    return smaller(larger(v, splat(low)), splat(high));
}
[[gnu::always_inline]] inline Lanes magnitude(Lanes v) noexcept {
    return from_bits(bits_of(v) & 0x7FFFFFFFu);
}

// Half to even, for |v| below 2^22: where adding leaves no bits for a fraction.
[[gnu::always_inline]] inline Lanes round_lanes(Lanes v) noexcept {
    constexpr float kNoFraction = 0x1.8p23f;
    return (v + kNoFraction) - kNoFraction;
}

// Towards zero; the elements must be within the range of int32.
[[gnu::always_inline]] inline IntLanes to_int(Lanes v) noexcept {
    return __builtin_convertvector(v, IntLanes);
}
[[gnu::always_inline]] inline Lanes to_float(IntLanes v) noexcept {
    return __builtin_convertvector(v, Lanes);
}

// 1/v, or 0 where that is not finite.
[[gnu::always_inline]] inline Lanes reciprocal_or_zero(Lanes v) noexcept {
    const Lanes r = 1.0f / v;
    return (bits_of(r) & 0x7F800000u) == 0x7F800000u ? Lanes{} : r;
}
// a/b, or 0 where b is.
[[gnu::always_inline]] inline Lanes ratio_or_zero(Lanes a, Lanes b) noexcept {
    return b == 0.0f ? Lanes{} : a / b;
}

// To the nearest f16, ties to even. Magnitudes beyond 65504 by half a unit give 65536.
[[gnu::always_inline]] inline Lanes round_to_f16(Lanes v) noexcept {
    const BitLanes bits = bits_of(v);
    const Lanes rounded = from_bits((bits + 0xFFFu + ((bits >> 13) & 1u)) & ~0x1FFFu);
    const BitLanes sign = bits & 0x80000000u;
    const Lanes subnormal = from_bits(bits_of((magnitude(v) + 0.5f) - 0.5f) | sign);
    return magnitude(v) < 0x1p-14f ? subnormal : rounded;
}
// The distance between v, which is an f16 value, and the next ones away from zero.
[[gnu::always_inline]] inline Lanes f16_step(Lanes v) noexcept {
    const Lanes floor = larger(magnitude(v), splat(0x1p-14f));
    return from_bits((bits_of(floor) & 0x7F800000u) - (10u << 23));
}

// The bits of f16 values.
[[gnu::always_inline]] inline IntLanes f16_bits(Lanes v) noexcept {
    const IntLanes bits = reinterpret_cast<IntLanes>(magnitude(v)), normal = (bits >> 13) - (112 << 10),
                   subnormal = to_int(magnitude(v) * 0x1p24f);
    const IntLanes sign = reinterpret_cast<IntLanes>(bits_of(v) >> 31) << 15;
    return (magnitude(v) < 0x1p-14f ? subnormal : normal) | sign;
}
[[gnu::always_inline]] inline void store_halves(IntLanes v, uint16_t *dst) noexcept {
    for (size_t l = 0; l < kLanes; ++l)
        dst[l] = static_cast<uint16_t>(v[l]);
}

// 32 integers from 0 to 255 as bytes, in order.
[[gnu::always_inline]] inline void store_bytes(const IntLanes (&v)[4], uint8_t *dst) noexcept {
#if defined(__AVX2__)
    const auto m = [&](size_t i) { return reinterpret_cast<__m256i>(v[i]); };
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(m(0), m(1)), _mm256_packs_epi32(m(2), m(3)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), _mm256_permutevar8x32_epi32(bytes, order));
#else
    for (size_t i = 0; i < 4; ++i)
        for (size_t l = 0; l < kLanes; ++l)
            dst[kLanes * i + l] = static_cast<uint8_t>(v[i][l]);
#endif
}

// Lane by lane table[index]: indices 0 to 7.
[[gnu::always_inline]] inline Lanes look_up(const float (&table)[8], IntLanes index) noexcept {
#if defined(__AVX2__)
    return reinterpret_cast<Lanes>(
        _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), reinterpret_cast<__m256i>(index)));
#else
    Lanes v{};
    for (size_t l = 0; l < kLanes; ++l)
        v[l] = table[index[l]];
    return v;
#endif
}

// Across lanes, always in this order.
[[gnu::always_inline]] inline float sum_lanes(Lanes v) noexcept {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
[[gnu::always_inline]] inline float largest_lane(Lanes v) noexcept {
    float largest = v[0];
    for (size_t l = 1; l < kLanes; ++l)
        largest = v[l] > largest ? v[l] : largest;
    return largest;
}

// Bit l of the result is lane l of a comparison.
[[gnu::always_inline]] inline uint32_t mask_bits(IntLanes mask) noexcept {
#if defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask)));
#else
    uint32_t bits = 0;
    for (size_t l = 0; l < kLanes; ++l)
        bits |= static_cast<uint32_t>(mask[l] & 1) << l;
    return bits;
#endif
}

// Rows become columns.
[[gnu::always_inline]] inline void transpose(Lanes (&r)[8]) noexcept {
    Lanes pair[8], quad[8];
    for (size_t i = 0; i < 8; i += 2) {
        pair[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (size_t half = 0; half < 8; half += 4)
        for (size_t i = 0; i < 2; ++i) {
            const Lanes a = pair[half + i], b = pair[half + i + 2];
            quad[half + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
            quad[half + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (size_t i = 0; i < 4; ++i) {
        r[i] = __builtin_shufflevector(quad[i], quad[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(quad[i], quad[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

// Eight rows of n elements, one row a lane: out[e] holds element e of all.
template <size_t n>
[[gnu::always_inline]] inline void load_columns(const float *src, Lanes *out) noexcept {
    for (size_t e = 0; e < n; e += kLanes) {
        Lanes rows[kLanes];
        for (size_t l = 0; l < kLanes; ++l)
            rows[l] = load_lanes(src + l * n + e);
        transpose(rows);
        for (size_t l = 0; l < kLanes; ++l)
            out[e + l] = rows[l];
    }
}

} // namespace
} // namespace nybl::quant
