// The numeric contract in plain C++ (docs/numerics.md): the scalar kernels that every other kernel must equal
// bit for bit, and that serve machines without a generated one.
#pragma once

#include "quant/format.h"

namespace nybl::cpu {

// One activation row quantised per group of 32, as contract step 1.
struct ActivationGroup {
    int8_t q[32];
    float d;
    int32_t sum;
};
void quantize_row_reference(const float *x, size_t k, ActivationGroup *groups) noexcept;

// acc of one output: contract steps 2..4 over original blocks of one weight row.
float dot_reference(const quant::Format &format, const uint8_t *w_row, const ActivationGroup *a, size_t k) noexcept;

// The same with unquantised activations (NYBL_COMPUTE_F32): acc = fma(w[k], x[k], acc), k ascending.
float dot_f32_reference(const quant::Format &format, const uint8_t *w_row, const float *x, size_t k) noexcept;

} // namespace nybl::cpu
