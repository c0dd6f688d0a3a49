// Reading and writing the fields that several block layouts share: unaligned scalars, nibbles, fifth bits.
#pragma once

#include "base/half.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nybl::quant {

template <class T>
T load(const uint8_t *src) noexcept {
    T value;
    std::memcpy(&value, src, sizeof value);
    return value;
}
template <class T>
void store(uint8_t *dst, T value) noexcept {
    std::memcpy(dst, &value, sizeof value);
}

constexpr float kLargestF16 = 65504.0f, kSmallestF16 = 0x1p-24f;

inline float load_f16(const uint8_t *src) noexcept {
    return f16_to_f32(load<uint16_t>(src));
}

// False, with nothing written, where the value rounds to infinity or is a NaN.
inline bool store_f16(uint8_t *dst, float value) noexcept {
    const uint16_t half = f32_to_f16(value);
    if (!f16_is_finite(half))
        return false;
    store(dst, half);
    return true;
}

inline float round_to_f16(float value) noexcept {
    return f16_to_f32(f32_to_f16(value));
}

// `n` codes in the low nibbles of qs[0..n), the next `n` in the high ones.
template <size_t n>
void unpack_nibbles(const uint8_t *qs, int16_t *low, int16_t *high) noexcept {
    for (size_t j = 0; j < n; ++j) {
        low[j] = static_cast<int16_t>(qs[j] & 15);
        high[j] = static_cast<int16_t>(qs[j] >> 4);
    }
}
template <size_t n>
void pack_nibbles(const uint8_t *low, const uint8_t *high, uint8_t *qs) noexcept {
    for (size_t j = 0; j < n; ++j)
        qs[j] = static_cast<uint8_t>((low[j] & 15) | (high[j] & 15) << 4);
}

// Bit j of `qh` is bit 4 of code j.
inline void unpack_fifth_bits(uint32_t qh, int16_t *codes) noexcept {
    for (uint32_t j = 0; j < 32; ++j)
        codes[j] = static_cast<int16_t>(codes[j] | ((qh >> j) & 1u) << 4);
}
inline uint32_t pack_fifth_bits(const uint8_t *codes) noexcept {
    uint32_t qh = 0;
    for (uint32_t j = 0; j < 32; j += 8) {
        // The product gathers the lowest bits of eight bytes in its top byte.
        const uint64_t bits = (load<uint64_t>(codes + j) >> 4) & 0x0101010101010101u;
        qh |= static_cast<uint32_t>(bits * 0x0102040810204080u >> 56) << j;
    }
    return qh;
}

} // namespace nybl::quant
