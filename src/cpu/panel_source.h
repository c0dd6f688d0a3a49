// Where kernels find packed panel blocks: in packed weights as they are, or gathered from original rows into
// a buffer that stays in the first-level cache.
#pragma once

#include "cpu/block.h"
#include "cpu/jit/gather_kernel.h"

namespace nybl::cpu {

// Where `count` original rows from `first` on have their byte `at`. Those past N repeat the last one: their
// outputs are not stored.
void find_rows(const Matrix &w, const uint8_t *weights, size_t first, size_t count, size_t at,
               const uint8_t **rows) noexcept;

// Pieces of panels or rows that are read some time later, fetched into the cache share by share.
class Upcoming {
  public:
    // `count` pieces of `bytes` bytes, `stride` apart, in `shares` even shares.
    Upcoming(const uint8_t *first, size_t stride, size_t count, size_t bytes, size_t shares) noexcept
        : at_(first), stride_(stride), count_(count), lines_((bytes + 63) / 64),
          share_((count * lines_ + shares - 1) / shares) {}

    // One share.
    void fetch() noexcept {
        for (size_t i = share_; i > 0 && piece_ < count_; --i) {
            __builtin_prefetch(at_ + piece_ * stride_ + 64 * line_);
            if (++line_ == lines_)
                line_ = 0, ++piece_;
        }
    }

  private:
    const uint8_t *at_;
    size_t stride_, count_, lines_, share_;
    size_t piece_ = 0, line_ = 0;
};

class PanelSource {
  public:
    // `buffer` has room for buffer_bytes(); max_blocks: the most panel blocks that are asked for at a time;
    // fetch_ahead: original rows are fetched one piece ahead while they are gathered.
    PanelSource(const Block &block, size_t max_blocks, uint8_t *buffer, bool fetch_ahead) noexcept;
    static size_t buffer_bytes(const Product &product, size_t panels, size_t max_blocks) noexcept;

    // False where code cannot be generated: nothing may be asked for.
    bool usable() const noexcept { return packed_ || gather_; }
    // Panel blocks [b, b + some) of the `count` panels first, first + step, ...: those of the first panel.
    const uint8_t *blocks(size_t first, size_t step, size_t count, size_t b, size_t some) noexcept;
    // The memory that blocks(first, 1, count, b, some) reads, as far as there are such panels.
    Upcoming upcoming(size_t first, size_t count, size_t b, size_t some, size_t shares) const noexcept;
    // Bytes from a panel of that call to the next.
    size_t stride(size_t step) const noexcept { return packed_ ? step * w_.stride : buffer_stride_; }

  private:
    void gather(size_t panel, size_t b, size_t some, uint8_t *dst) const noexcept;

    const Matrix &w_;
    const uint8_t *weights_;
    const bool packed_, fetch_ahead_;
    uint8_t *buffer_;
    size_t buffer_stride_;
    jit::GatherFn gather_ = nullptr;
};

// pack_panel with the kernels of an instruction set: the same bytes.
void pack_panel(nybl_isa isa, const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src,
                size_t row_stride, uint8_t *panel) noexcept;

} // namespace nybl::cpu
