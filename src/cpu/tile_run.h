// Some panels against every tile of a block: what streaming and tiling have in common.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/jit/tile_kernel.h"

namespace nybl::cpu {

// The micro-kernels of a block's whole tiles and of its last one, NULL where they cannot be generated. Asked
// for once per block, not per call.
struct TileKernels {
    jit::TileFn whole = nullptr, last = nullptr;

    TileKernels() = default;
    // kernel(tokens) is the one for a tile of so many rows.
    template <class Kernel>
    TileKernels(const Block &block, const Kernel &kernel) noexcept
        : whole(kernel(block.tile_rows(block.row_begin))), last(kernel(block.tile_rows(block.last_tile()))) {}
    bool usable() const noexcept { return whole && last; }
};

class TileRun {
  public:
    // `panels` panels; c holds [tile][panel][row of the tile][16] accumulators of all rows of the block,
    // which start() sets to zero.
    TileRun(const Block &block, size_t panels, float *c, const TileKernels &kernels) noexcept
        : block_(block), panels_(panels), c_(c), kernels_(kernels) {}

    void start() const noexcept {
        std::memset(c_, 0, sizeof(float) * kPanelRows * panels_ * (block_.row_end - block_.row_begin));
    }

    // Accumulators of the tile that starts at segment row i.
    float *tile(size_t i) const noexcept { return c_ + kPanelRows * panels_ * (i - block_.row_begin); }

    // Calls step(i, tokens) for each tile: its first segment row, and its rows.
    template <class Step>
    void for_each_tile(const Step &step) const noexcept {
        for (size_t i = block_.row_begin; i < block_.row_end; i += mr())
            step(i, block_.tile_rows(i));
    }
    // Adds the products of `blocks` blocks of the panels at w and of the activations at a to tile i.
    void multiply(size_t i, const uint8_t *w, size_t panel_stride, const uint8_t *a,
                  size_t blocks) const noexcept {
        const jit::TileArgs args{
            .w = w, .panel_stride = panel_stride, .a = a, .c = tile(i), .blocks = blocks};
        (i == block_.last_tile() ? kernels_.last : kernels_.whole)(&args);
    }

    // The same for all tiles; activations(i, tokens) is where those that meet the blocks start in tile i.
    template <class Activations>
    void add(const uint8_t *w, size_t panel_stride, size_t blocks,
             const Activations &activations) const noexcept {
        for_each_tile(
            [&](size_t i, size_t tokens) { multiply(i, w, panel_stride, activations(i, tokens), blocks); });
    }

    // Writes the outputs of the panels first, first + stride, ...
    void store(size_t first, size_t stride) const noexcept {
        for_each_tile([&](size_t i, size_t tokens) {
            for (size_t p = 0; p < panels_; ++p)
                store_tile(block_, i, first + p * stride, tile(i) + kPanelRows * p * tokens);
        });
    }

  private:
    size_t mr() const noexcept { return block_.product->kernel.mr; }

    const Block &block_;
    size_t panels_;
    float *c_;
    TileKernels kernels_;
};

} // namespace nybl::cpu
