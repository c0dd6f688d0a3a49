// Activations in and outputs out: F32, F16 and BF16 rows to and from f32 (round to nearest even).
#pragma once

#include <cstring>

#include "base/half.h"
#include "cpu/rows.h"

namespace nybl::cpu {

// Elements [begin, begin + count) of a row as f32.
inline void load_row(nybl_format type, const uint8_t *row, size_t begin, size_t count, float *dst) noexcept {
    if (type == NYBL_F32) {
        std::memcpy(dst, row + 4 * begin, 4 * count);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, row + 2 * (begin + i), 2);
        dst[i] = type == NYBL_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
}

// Writes f32 values as elements [begin, begin + count) of a row.
inline void store_row(nybl_format type, uint8_t *row, size_t begin, size_t count, const float *src) noexcept {
    if (type == NYBL_F32) {
        std::memcpy(row + 4 * begin, src, 4 * count);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        const uint16_t bits = type == NYBL_F16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
        std::memcpy(row + 2 * (begin + i), &bits, 2);
    }
}

} // namespace nybl::cpu
