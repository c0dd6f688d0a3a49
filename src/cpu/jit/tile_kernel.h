// The micro-kernel: P panels of 16 weight rows times a tile of T quantised tokens, over any number of groups.
//
// One generator for every format, instruction set and weight form. The form is either the packed panel
// (nibbles unpacked in registers; for weights that are read once) or the byte panel (unpacked before; for
// weights that are reused over many tiles).
#pragma once

#include "cpu/jit/weight_generator.h"

namespace nybl::cpu::jit {

struct TileArgs {
    const uint8_t *w;    // first block of the first panel
    size_t panel_stride; // bytes from a panel to the next one of this call
    const uint8_t *a;    // first group of the tile (activation.h)
    float *c;            // [P][T][16], read and written: the accumulators
    size_t blocks;       // panel blocks (packed) or groups (bytes) to run, > 0
};
using TileFn = void (*)(const TileArgs *);

enum class WeightForm : uint8_t { Packed, Bytes };

constexpr size_t kMaxTokens = 16; // of a tile

// How many panels a kernel of `tokens` streams side by side: up to four (more streams of memory do not help),
// two where their scales go through the stack, and no more than leave each output an accumulator register.
constexpr size_t stream_panels(nybl_isa isa, size_t tokens) noexcept {
    const size_t outputs = isa >= NYBL_ISA_AVX512_VNNI ? 24 : 4;
    size_t panels = 4;
    while (panels > 1 && panels * tokens > outputs)
        panels /= 2;
    return panels;
}

// The kernel for P = panels (1 .. 4) and T = tokens <= kMaxTokens, generated at the first call; NULL where
// code cannot be generated.
TileFn tile_kernel(WeightForm form, nybl_format format, nybl_isa isa, size_t panels, size_t tokens) noexcept;

} // namespace nybl::cpu::jit
