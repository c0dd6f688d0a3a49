// Contract step 1 in generated code: a row of activations to int8 groups, straight into a token tile.
#pragma once

#include "cpu/activation.h"
#include "cpu/jit/code_cache.h"

namespace nybl::cpu::jit {

struct QuantizeArgs {
    const uint8_t *x; // first element
    uint8_t *q;       // the row's 32 quants of the first group: tile + 32*t
    uint8_t *fields;  // its d there: tile + 32*T + 4*t
    size_t tile_rows; // T
    size_t groups;    // > 0
};
using QuantizeFn = void (*)(const QuantizeArgs *);

// For activations of type F32, F16 or BF16 and the dot family of `isa`, generated at the first call; NULL
// where code cannot be generated. Equals quantize_row and scatter_row bit for bit in the quants, in d and in
// the `fields` (bits of ActivationField); it leaves others as they are.
QuantizeFn quantize_kernel(nybl_format type, nybl_isa isa, uint8_t fields = kAllActivationFields) noexcept;

} // namespace nybl::cpu::jit
