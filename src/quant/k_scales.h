// The 12 bytes of Q4_K and Q5_K that hold eight 6-bit (scale, minimum) pairs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nybl::quant {

struct KScales {
    uint8_t scale[8];
    uint8_t min[8];
};

inline KScales unpack_k_scales(const uint8_t *bytes) noexcept {
    KScales s;
    for (size_t i = 0; i < 4; ++i) {
        s.scale[i] = bytes[i] & 63;
        s.min[i] = bytes[i + 4] & 63;
        // Pairs 4..7: low nibbles side by side in the last four bytes, top two bits above the first four
        // pairs.
        s.scale[i + 4] = static_cast<uint8_t>((bytes[i + 8] & 15) | (bytes[i] >> 6) << 4);
        s.min[i + 4] = static_cast<uint8_t>((bytes[i + 8] >> 4) | (bytes[i + 4] >> 6) << 4);
    }
    return s;
}

inline void pack_k_scales(const KScales &s, uint8_t *bytes) noexcept {
    for (size_t i = 0; i < 4; ++i) {
        bytes[i] = static_cast<uint8_t>(s.scale[i] | (s.scale[i + 4] >> 4) << 6);
        bytes[i + 4] = static_cast<uint8_t>(s.min[i] | (s.min[i + 4] >> 4) << 6);
        bytes[i + 8] = static_cast<uint8_t>((s.scale[i + 4] & 15) | (s.min[i + 4] & 15) << 4);
    }
}

} // namespace nybl::quant
