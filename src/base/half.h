// binary16 and bfloat16 to and from f32, round to nearest even, on integers alone: no F16C, no rounding mode,
// and no fast-math flag can change a bit.
#pragma once

#include <bit>
#include <cstdint>

namespace nybl {

constexpr float f16_to_f32(uint16_t h) noexcept {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 31u;
    uint32_t mantissa = h & 0x3FFu;
    if (exponent == 31) { // infinity, or NaN with its payload, made quiet as hardware does
        const uint32_t quiet = mantissa ? 0x00400000u : 0u;
        return std::bit_cast<float>(sign | 0x7F800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) {
        if (mantissa == 0)
            return std::bit_cast<float>(sign);
        const int shift = std::countl_zero(mantissa) - 21; // moves the leading bit to bit 10
        mantissa = (mantissa << shift) & 0x3FFu;
        return std::bit_cast<float>(sign | static_cast<uint32_t>(113 - shift) << 23 | mantissa << 13);
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Values beyond 65504 by half a unit or more become infinity.
constexpr uint16_t f32_to_f16(float value) noexcept {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x7F800000u) {
        const uint32_t quiet = magnitude > 0x7F800000u ? 0x200u | ((magnitude >> 13) & 0x3FFu) : 0u;
        return static_cast<uint16_t>(sign | 0x7C00u | quiet);
    }
    if (magnitude >= 0x477FF000u) // 65520 and up
        return static_cast<uint16_t>(sign | 0x7C00u);
    if (magnitude < 0x33000000u) // below 2^-25: nearer to zero than to the smallest subnormal
        return static_cast<uint16_t>(sign);
    // The f16 bits before rounding, and the bits that are cut off below them.
    uint32_t kept, rest, half;
    if (magnitude < 0x38800000u) { // subnormal in f16
        const uint32_t shift = 126u - (magnitude >> 23);
        const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
        kept = mantissa >> shift;
        rest = mantissa & ((1u << shift) - 1u);
        half = 1u << (shift - 1);
    } else {
        kept = (magnitude - 0x38000000u) >> 13;
        rest = magnitude & 0x1FFFu;
        half = 0x1000u;
    }
    const uint32_t up = rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
    return static_cast<uint16_t>(sign | (kept + up));
}

constexpr float bf16_to_f32(uint16_t b) noexcept {
    return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

constexpr uint16_t f32_to_bf16(float value) noexcept {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// On the bits, so that a fast-math build cannot assume the answer.
constexpr bool f16_is_finite(uint16_t h) noexcept {
    return (h & 0x7C00u) != 0x7C00u;
}
constexpr bool f32_is_finite(float value) noexcept {
    return (std::bit_cast<uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

} // namespace nybl
