// Blocks of few rows: panels are read once, straight into the micro-kernel.
#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/jit/original_kernel.h"
#include "cpu/panel_source.h"
#include "cpu/tile_run.h"

namespace nybl::cpu {
namespace {

using jit::WeightForm;

// Groups that a call covers where several tiles meet the same weights: they stay in the first-level cache.
constexpr size_t kSegmentGroups = 16;
// Original rows are gathered in short pieces, so that reading the next ones goes on while these are computed.
constexpr size_t kGatherGroups = 8;
constexpr size_t kMaxPanels = 4; // side by side

size_t panel_block_groups(const Product &product) noexcept {
    return product.w.layout->block_k / 32;
}

size_t gather_blocks(const Product &product) noexcept {
    return kGatherGroups / panel_block_groups(product);
}

size_t accumulator_bytes(const Product &product) noexcept {
    return sizeof(float) * kPanelRows * kMaxPanels * stream_block_rows(product);
}

// An expert with few tokens is streamed inside a tiled product; AMX has no kernel that streams.
nybl_isa stream_isa(const KernelChoice &kernel) noexcept {
    return std::min(kernel.isa, NYBL_ISA_AVX512_VNNI);
}

// Panels first, first + stride, ...: `count` of them through one call per tile and segment of K.
bool stream_panels(const Block &block, size_t first, size_t stride, size_t count) noexcept {
    const Product &product = *block.product;
    const Matrix &w = product.w;
    const size_t blocks = w.k / w.layout->block_k;
    const size_t groups_per_block = panel_block_groups(product);
    const bool packed = w.storage == NYBL_STORAGE_PACKED;
    const bool one_tile = block.row_end - block.row_begin <= product.kernel.mr;
    const size_t segment = !packed    ? gather_blocks(product)
                           : one_tile ? blocks
                                      : kSegmentGroups / groups_per_block;
    PanelSource source(block, gather_blocks(product), block.workspace + accumulator_bytes(product), true);
    if (!source.usable())
        return false;
    const TileKernels kernels(block, [&](size_t tokens) {
        return jit::tile_kernel(WeightForm::Packed, w.format->id, stream_isa(product.kernel), count, tokens);
    });
    if (!kernels.usable())
        return false;
    const TileRun run(block, count, reinterpret_cast<float *>(block.workspace), kernels);
    run.start();
    for (size_t b = 0; b < blocks; b += segment) {
        const size_t some = std::min(segment, blocks - b);
        run.add(source.blocks(first, stride, count, b, some), source.stride(stride), some,
                [&](size_t i, size_t) { return block.tile_group(i, b * groups_per_block); });
    }
    run.store(first, stride);
    return true;
}

// One token over one panel of original rows, eight at a time, without gathering.
bool stream_original(const Block &block, size_t panel) noexcept {
    const Product &product = *block.product;
    const Matrix &w = product.w;
    const jit::OriginalFn kernel = jit::original_kernel(w.format->id, stream_isa(product.kernel));
    if (!kernel)
        return false;
    float c[kPanelRows] = {};
    for (size_t r = 0; r < kPanelRows && panel * kPanelRows + r < w.n; r += jit::kOriginalRows) {
        const uint8_t *rows[jit::kOriginalRows];
        find_rows(w, block.weights, panel * kPanelRows + r, jit::kOriginalRows, 0, rows);
        const jit::OriginalArgs args{.rows = rows,
                                     .a = block.tile(block.row_begin),
                                     .c = c + r,
                                     .blocks = w.k / w.format->block_size,
                                     .next = rows[0] + jit::kOriginalRows * w.stride};
        kernel(&args);
    }
    store_tile(block, block.row_begin, panel, c);
    return true;
}

} // namespace

size_t stream_block_rows(const Product &product) noexcept {
    const size_t mr = product.kernel.mr;
    return std::max<size_t>(mr, product.kernel.stream_max_m / mr * mr);
}

size_t stream_workspace_bytes(const Product &product) noexcept {
    return accumulator_bytes(product) +
           PanelSource::buffer_bytes(product, kMaxPanels, gather_blocks(product));
}

bool run_stream(const Block &block) noexcept {
    const KernelChoice &kernel = block.product->kernel;
    const Matrix &w = block.product->w;
    if (w.storage == NYBL_STORAGE_ORIGINAL && block.segment_rows == 1 &&
        jit::has_original_kernel(w.format->id)) {
        for (size_t panel = block.panel_begin; panel < block.panel_end; ++panel)
            if (!stream_original(block, panel))
                return false;
        return true;
    }
    const size_t count = block.panel_end - block.panel_begin;
    // An expert may have fewer tokens than a tile.
    const size_t tokens = std::min<size_t>(kernel.mr, block.segment_rows);
    const size_t side = jit::stream_panels(stream_isa(kernel), tokens);
    const size_t run = count / side;
    for (size_t i = 0; i < run; ++i)
        if (!stream_panels(block, block.panel_begin + i, run, side))
            return false;
    for (size_t panel = block.panel_begin + run * side; panel < block.panel_end; ++panel)
        if (!stream_panels(block, panel, 1, 1))
            return false;
    return true;
}

} // namespace nybl::cpu
