// Packed panel blocks to f32: exactly the dequantised weights, for products with unquantised activations.
#pragma once

#include "cpu/jit/unpack_kernel.h"

namespace nybl::cpu::jit {

// dst gets f32 [elements of K][16 rows]. Generated at the first call; NULL where code cannot be generated.
UnpackFn dequantize_kernel(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu::jit
