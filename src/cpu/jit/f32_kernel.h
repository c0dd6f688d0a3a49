// The micro-kernel of unquantised activations: P f32 panels of 16 weight rows times a tile of T tokens.
#pragma once

#include "cpu/jit/tile_kernel.h"

namespace nybl::cpu::jit {

// One panel is one zmm or two ymm: as many panels as make two vectors.
constexpr size_t f32_panels(nybl_isa isa) noexcept {
    return isa >= NYBL_ISA_AVX512_VNNI ? 2 : 1;
}
// The most tokens of a tile: what fits the registers.
constexpr size_t f32_tokens(nybl_isa isa) noexcept {
    return isa >= NYBL_ISA_AVX512_VNNI ? 12 : 6;
}

// acc = fma(w, x, acc) for k ascending. Of the arguments: w is f32 [k][16] per panel (panel_stride bytes
// apart), a is f32 [k][T], and blocks counts elements of K, a multiple of 32. panels <= f32_panels, tokens <=
// f32_tokens. Generated at the first call; NULL where code cannot be generated.
TileFn f32_kernel(nybl_isa isa, size_t panels, size_t tokens) noexcept;

} // namespace nybl::cpu::jit
