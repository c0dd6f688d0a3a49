// The scalar reference of the numeric contract.
#include "cpu/reference.h"

#include <cmath>

namespace nybl::cpu {

constexpr size_t kMaxBlock = 256; // elements in the largest block

float dot_reference(const quant::Format &format, const uint8_t *w_row, const ActivationRow &a,
                    size_t k) noexcept {
    quant::WeightGroup groups[kMaxBlock / 32];
    const size_t per_block = format.block_size / 32;
    float acc = 0;
    for (size_t g = 0; g < k / 32; ++g) {
        if (g % per_block == 0)
            format.decode_groups(w_row + g / per_block * format.block_bytes, groups);
        const quant::WeightGroup &w = groups[g % per_block];
        const int8_t *q = a.q(g);
        int32_t dot = 0;
        for (size_t i = 0; i < 32; ++i)
            dot += w.code[i] * q[i];
        const float scale = w.scale * a.d(g);
        acc = std::fma(float(dot), scale, acc);
        if (format.has_min)
            acc = std::fma(w.min, a.ds(g), acc);
    }
    return acc;
}

float dot_f32_reference(const quant::Format &format, const uint8_t *w_row, const float *x,
                        size_t k) noexcept {
    float w[kMaxBlock];
    float acc = 0;
    for (size_t b = 0; b < k / format.block_size; ++b) {
        format.dequantize(w_row + b * format.block_bytes, w, 1);
        for (size_t i = 0; i < format.block_size; ++i)
            acc = std::fma(w[i], *x++, acc);
    }
    return acc;
}

} // namespace nybl::cpu
