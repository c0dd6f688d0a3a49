// Some panels against every tile of a block: what streaming and tiling have in common.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/jit/tile_kernel.h"

namespace nybl::cpu {

class TileRun {
  public:
    // `panels` panels; c holds [tile][panel][row of the tile][16] accumulators of all rows of the block, and
    // starts at zero. kernel(tokens) is the micro-kernel for a tile of so many rows, NULL where it cannot be
    // generated; it is asked for once here, not per call.
    template <class Kernel>
    TileRun(const Block &block, size_t panels, float *c, const Kernel &kernel) noexcept
        : block_(block), panels_(panels), c_(c), whole_(kernel(block.tile_rows(block.row_begin))),
          last_(kernel(block.tile_rows(last_tile()))) {
        std::memset(c, 0, sizeof(float) * kPanelRows * panels * (block.row_end - block.row_begin));
    }

    bool usable() const noexcept { return whole_ && last_; }

    // Adds the products of `blocks` blocks of the panels at w; activations(i, tokens) is where those that
    // meet them start in the tile of so many tokens at segment row i.
    template <class Activations>
    void add(const uint8_t *w, size_t panel_stride, size_t blocks,
             const Activations &activations) const noexcept {
        for (size_t i = block_.row_begin; i < block_.row_end; i += mr()) {
            const jit::TileArgs args{.w = w,
                                     .panel_stride = panel_stride,
                                     .a = activations(i, block_.tile_rows(i)),
                                     .c = tile(i),
                                     .blocks = blocks};
            (i == last_tile() ? last_ : whole_)(&args);
        }
    }

    // Writes the outputs of the panels first, first + stride, ...
    void store(size_t first, size_t stride) const noexcept {
        for (size_t i = block_.row_begin; i < block_.row_end; i += mr())
            for (size_t p = 0; p < panels_; ++p)
                store_tile(block_, i, first + p * stride, tile(i) + kPanelRows * p * block_.tile_rows(i));
    }

  private:
    size_t mr() const noexcept { return block_.product->kernel.mr; }
    size_t last_tile() const noexcept {
        return block_.row_begin + (block_.row_end - block_.row_begin - 1) / mr() * mr();
    }
    float *tile(size_t i) const noexcept { return c_ + kPanelRows * panels_ * (i - block_.row_begin); }

    const Block &block_;
    size_t panels_;
    float *c_;
    jit::TileFn whole_, last_;
};

} // namespace nybl::cpu
