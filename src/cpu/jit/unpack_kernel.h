// Packed panels to byte panels: what a prefill does once per panel, so that its micro-kernel only multiplies.
#pragma once

#include "cpu/jit/weight_generator.h"

namespace nybl::cpu::jit {

struct UnpackArgs {
    const uint8_t *src; // panel blocks
    uint8_t *dst;       // byte groups (weight_generator.h), one after the other
    size_t blocks;      // panel blocks to unpack, > 0
};
using UnpackFn = void (*)(const UnpackArgs *);

// Generated at the first call; NULL where code cannot be generated.
UnpackFn unpack_kernel(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu::jit
