// The numeric contract in plain C++ (docs/numerics.md): the scalar kernels that every other kernel must equal
// bit for bit, and that serve machines without a generated one.
#pragma once

#include "cpu/activation.h"
#include "quant/format.h"

namespace nybl::cpu {

// acc of one output: contract steps 2..4 over the original blocks of one weight row.
float dot_reference(const quant::Format &format, const uint8_t *w_row, const ActivationRow &a,
                    size_t k) noexcept;

// The same with unquantised activations (NYBL_COMPUTE_F32): acc = fma(w[k], x[k], acc), k ascending.
float dot_f32_reference(const quant::Format &format, const uint8_t *w_row, const float *x, size_t k) noexcept;

} // namespace nybl::cpu
