// Original rows to panel blocks, piece by piece.
#include "cpu/panel_source.h"

#include <algorithm>
#include <cstring>

namespace nybl::cpu {

void find_rows(const Matrix &w, const uint8_t *weights, size_t first, size_t count, size_t at,
               const uint8_t **rows) noexcept {
    for (size_t r = 0; r < count; ++r)
        rows[r] = weights + std::min(first + r, w.n - 1) * w.stride + at;
}

PanelSource::PanelSource(const Block &block, size_t max_blocks, uint8_t *buffer, bool fetch_ahead) noexcept
    : w_(block.product->w), weights_(block.weights), packed_(w_.storage == NYBL_STORAGE_PACKED),
      fetch_ahead_(fetch_ahead), buffer_(buffer), buffer_stride_(max_blocks * w_.layout->block_bytes) {
    if (!packed_)
        gather_ = jit::gather_kernel(w_.format->id, block.product->kernel.isa);
}

size_t PanelSource::buffer_bytes(const Product &product, size_t panels, size_t max_blocks) noexcept {
    return product.w.storage == NYBL_STORAGE_PACKED ? 0 : panels * max_blocks * product.w.layout->block_bytes;
}

const uint8_t *PanelSource::blocks(size_t first, size_t step, size_t count, size_t b, size_t some) noexcept {
    if (packed_)
        return weights_ + first * w_.stride + b * w_.layout->block_bytes;
    for (size_t p = 0; p < count; ++p)
        gather(first + p * step, b, some, buffer_ + p * buffer_stride_);
    return buffer_;
}

Upcoming PanelSource::upcoming(size_t first, size_t count, size_t b, size_t some,
                               size_t shares) const noexcept {
    const size_t block_bytes = packed_ ? w_.layout->block_bytes : w_.format->block_bytes;
    const size_t per_panel = packed_ ? 1 : kPanelRows; // pieces
    const size_t all = packed_ ? panel_count(w_.n) : w_.n;
    const size_t begin = std::min(all, first * per_panel), end = std::min(all, (first + count) * per_panel);
    return {weights_ + begin * w_.stride + b * block_bytes, w_.stride, end - begin, some * block_bytes,
            shares};
}

void PanelSource::gather(size_t panel, size_t b, size_t some, uint8_t *dst) const noexcept {
    const size_t blocks = w_.k / w_.format->block_size, at = b * w_.format->block_bytes;
    const uint8_t *rows[kPanelRows];
    find_rows(w_, weights_, panel * kPanelRows, kPanelRows, at, rows);
    // What is read next: the rest of the rows, or the next panel from its start.
    const size_t next = !fetch_ahead_       ? 0
                        : b + some < blocks ? some * w_.format->block_bytes
                                            : kPanelRows * w_.stride - at;
    const jit::GatherArgs args{.rows = rows, .dst = dst, .blocks = some, .ahead = ptrdiff_t(next)};
    gather_(&args);
}

void pack_panel(nybl_isa isa, const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src,
                size_t row_stride, uint8_t *panel) noexcept {
    constexpr ptrdiff_t kAhead = 1024; // covers the latency of memory
    const jit::GatherFn gather = rows == kPanelRows && isa != NYBL_ISA_SCALAR
                                     ? jit::gather_kernel(layout.format, std::min(isa, NYBL_ISA_AVX512_VNNI))
                                     : nullptr;
    if (!gather)
        return pack_panel(layout, k, rows, src, row_stride, panel);
    const uint8_t *first[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r)
        first[r] = src + r * row_stride;
    const size_t blocks = k / layout.block_k, bytes = blocks * layout.block_bytes;
    const jit::GatherArgs args{.rows = first, .dst = panel, .blocks = blocks, .ahead = kAhead};
    gather(&args);
    std::memset(panel + bytes, 0, panel_bytes(layout, k) - bytes);
    pack_row_factors(layout, k, rows, src, row_stride, panel);
}

} // namespace nybl::cpu
