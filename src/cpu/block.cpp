// From a strategy to the functions that run it, and what they share: the epilogue.
#include "cpu/block.h"

#include <algorithm>
#include <cstring>

#include "cpu/convert.h"

namespace nybl::cpu {

size_t block_workspace_bytes(const Product &product) noexcept {
    // The reference takes over where code cannot be generated.
    size_t bytes = reference_workspace_bytes(product);
    if (product.kernel.strategy == Strategy::Stream || product.kernel.strategy == Strategy::Tiled)
        bytes = std::max(bytes, stream_workspace_bytes(product));
    if (product.kernel.strategy == Strategy::Tiled)
        bytes = std::max(bytes, tiled_workspace_bytes(product));
    if (has_f32_kernels(product.kernel))
        bytes = std::max(bytes, f32_workspace_bytes(product));
    return bytes;
}

size_t rows_per_block(const Product &product, Strategy strategy, size_t rows, bool few_panels) noexcept {
    if (has_f32_kernels(product.kernel))
        return f32_block_rows(product, rows);
    switch (strategy) {
    case Strategy::Stream:
        return std::min(rows, stream_block_rows(product));
    case Strategy::Tiled:
        return tiled_block_rows(product, rows, few_panels);
    default:
        return rows;
    }
}

void run_block(const Block &block, Strategy strategy) noexcept {
    if (strategy == Strategy::F32) {
        if (!has_f32_kernels(block.product->kernel) || !run_f32(block))
            run_f32_reference(block);
        return;
    }
    const bool done = (strategy == Strategy::Stream && run_stream(block)) ||
                      (strategy == Strategy::Tiled && run_tiled(block));
    if (!done)
        run_reference(block);
}

void convert_outputs(const Product &product, size_t output_row, size_t n, size_t count,
                     const float *acc) noexcept {
    if (!product.bias)
        return store_row(product.y.type, product.y.row(output_row), n, count, acc);
    float values[kPanelRows];
    for (size_t i = 0; i < count; ++i)
        values[i] = acc[i] + product.bias[n + i];
    store_row(product.y.type, product.y.row(output_row), n, count, values);
}

void store_scaled_sums(const Block &block, size_t output_row, size_t n, size_t count,
                       const float *sums) noexcept {
    const Matrix &w = block.product->w;
    const bool packed = w.storage == NYBL_STORAGE_PACKED;
    const FactorPlaces places = factor_places(*w.layout, w.k);
    // Behind the blocks of the panel that starts with row n, or of each row.
    const uint8_t *factors = packed ? block.weights + n / kPanelRows * w.stride + places.panel
                                    : block.weights + n * w.stride + places.row;
    float values[kPanelRows];
    for (size_t i = 0; i < count; ++i) {
        float factor;
        std::memcpy(&factor, factors + i * (packed ? sizeof factor : w.stride), sizeof factor);
        values[i] = sums[i] * factor;
    }
    store_outputs(*block.product, output_row, n, count, values);
}

void store_tile(const Block &block, size_t i, size_t panel, const float *acc) noexcept {
    const Product &product = *block.product;
    const size_t count = std::min(kPanelRows, product.w.n - panel * kPanelRows);
    for (size_t t = 0; t < block.tile_rows(i); ++t)
        store_sums(block, block.output_row(i + t), panel * kPanelRows, count, acc + kPanelRows * t);
}

} // namespace nybl::cpu
