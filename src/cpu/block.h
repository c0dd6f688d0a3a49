// The unit of work of a product: some rows of activations times some panels of one weight matrix. One
// function per strategy runs it; matmul.cpp cuts a job into such blocks.
#pragma once

#include <cstring>

#include "cpu/activation.h"
#include "cpu/matmul.h"

namespace nybl::cpu {

struct Block {
    const Job *job;
    const Product *product;
    const uint8_t *weights;        // of the expert, or of the matrix
    const uint8_t *acts;           // rows of the segment in tiles of product->kernel.mr: quantised, or f32
    const uint32_t *order;         // output row of segment row i, NULL: row i itself
    size_t segment_rows;           // rows in `acts`
    size_t row_begin, row_end;     // of the segment; row_begin is a multiple of mr
    size_t panel_begin, panel_end; // 16 weight rows each
    uint8_t *workspace;            // this thread's, workspace_bytes(...) of the strategy

    size_t output_row(size_t i) const noexcept { return order ? order[i] : i; }
    // The tile that starts at segment row i (a multiple of mr), and its rows.
    const uint8_t *tile(size_t i) const noexcept { return acts + activation_bytes(i, job->k); }
    size_t tile_rows(size_t i) const noexcept {
        return segment_rows - i < product->kernel.mr ? segment_rows - i : product->kernel.mr;
    }
    size_t last_tile() const noexcept {
        return row_begin + (row_end - row_begin - 1) / product->kernel.mr * product->kernel.mr;
    }
    size_t tiles() const noexcept {
        return (row_end - row_begin + product->kernel.mr - 1) / product->kernel.mr;
    }
    // Group `group` of that tile.
    const uint8_t *tile_group(size_t i, size_t group) const noexcept {
        return tile(i) + kActivationBytes * tile_rows(i) * group;
    }
    ActivationRow row(size_t i) const noexcept {
        const size_t first = i / product->kernel.mr * product->kernel.mr;
        return {tile(first), tile_rows(first), i - first};
    }
};

// Rows of a block where about `most` of them stay in a cache: whole tiles of mr, and shares as even as
// those allow. 129 rows are 72 and 57, not 128 and one that unpacks every panel for itself.
constexpr size_t even_block_rows(size_t rows, size_t mr, size_t most) noexcept {
    const size_t whole = (most + mr - 1) / mr * mr;
    const size_t blocks = (rows + whole - 1) / whole;
    const size_t share = (rows + blocks - 1) / blocks;
    return (share + mr - 1) / mr * mr;
}

// The three questions matmul.cpp asks of a strategy (block.cpp).
size_t block_workspace_bytes(const Product &product) noexcept;
size_t rows_per_block(const Product &product, Strategy strategy, size_t rows, bool few_panels) noexcept;
void run_block(const Block &block, Strategy strategy) noexcept;

// run_reference.cpp
size_t reference_workspace_bytes(const Product &product) noexcept;
void run_reference(const Block &block) noexcept;
void run_f32_reference(const Block &block) noexcept;

// run_stream.cpp
size_t stream_workspace_bytes(const Product &product) noexcept;
size_t stream_block_rows(const Product &product) noexcept;
bool run_stream(
    const Block &block) noexcept; // false: a kernel cannot be generated; outputs may be partly written

// run_f32.cpp
size_t f32_workspace_bytes(const Product &product) noexcept;
size_t f32_block_rows(const Product &product, size_t rows) noexcept;
bool run_f32(const Block &block) noexcept;

// run_tiled.cpp
size_t tiled_workspace_bytes(const Product &product) noexcept;
// few_panels: for the threads; blocks of fewer rows make up for it.
size_t tiled_block_rows(const Product &product, size_t rows, bool few_panels) noexcept;
bool run_tiled(const Block &block) noexcept;

// Adds the bias and stores `count` outputs of one row, starting at weight row n.
void convert_outputs(const Product &product, size_t output_row, size_t n, size_t count,
                     const float *acc) noexcept;
inline void store_outputs(const Product &product, size_t output_row, size_t n, size_t count,
                          const float *acc) noexcept {
    // A copy of known size is a few moves. The library's may read 64 bytes at once, and has to wait until the
    // kernel's narrower stores have left the store buffer.
    if (!product.bias && product.y.type == NYBL_F32 && count == kPanelRows)
        std::memcpy(product.y.row(output_row) + sizeof(float) * n, acc, sizeof(float) * kPanelRows);
    else
        convert_outputs(product, output_row, n, count, acc);
}

// The same for complete sums: first times the factors of the weights' rows, in formats that have them.
void store_scaled_sums(const Block &block, size_t output_row, size_t n, size_t count,
                       const float *sums) noexcept;
inline void store_sums(const Block &block, size_t output_row, size_t n, size_t count,
                       const float *sums) noexcept {
    if (block.product->w.format->row_factor_bytes)
        store_scaled_sums(block, output_row, n, count, sums);
    else
        store_outputs(*block.product, output_row, n, count, sums);
}

// The same for the tile of rows that starts at segment row i, over one panel: acc is [tile rows][16].
void store_tile(const Block &block, size_t i, size_t panel, const float *acc) noexcept;

} // namespace nybl::cpu
