// Blocks with unquantised activations: a piece of a panel is dequantised once and meets every tile of the
// block.
#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/jit/dequantize_kernel.h"
#include "cpu/jit/f32_kernel.h"
#include "cpu/panel_source.h"
#include "cpu/tile_run.h"

namespace nybl::cpu {
namespace {

using jit::UnpackArgs;

// Elements of K between two visits of the accumulators: so much of a panel stays in the first-level cache.
constexpr size_t kSegmentK = 256;
constexpr size_t kPanelBytes = kSegmentK * kPanelRows * sizeof(float);
// Rows of activations that stay in the second-level cache while the panels pass by.
constexpr size_t kBlockRows = 96;

size_t segment_blocks(const Product &product) noexcept {
    return kSegmentK / product.w.layout->block_k;
}

// f32 panels and accumulators.
size_t float_workspace_bytes(const Product &product) noexcept {
    return jit::f32_panels(product.kernel.isa) *
           (kPanelBytes + sizeof(float) * kPanelRows * (kBlockRows + jit::kMaxTokens));
}

bool f32_panels(const Block &block, size_t first, size_t count) noexcept {
    const Product &product = *block.product;
    const Matrix &w = product.w;
    const nybl_isa isa = product.kernel.isa;
    const size_t blocks = w.k / w.layout->block_k, segment = segment_blocks(product);
    uint8_t *floats = block.workspace;
    auto *c = reinterpret_cast<float *>(floats + jit::f32_panels(isa) * kPanelBytes);
    PanelSource source(block, segment, block.workspace + float_workspace_bytes(product), true);
    const jit::UnpackFn dequantize = jit::dequantize_kernel(w.format->id, isa);
    const TileKernels kernels(block, [&](size_t tokens) { return jit::f32_kernel(isa, count, tokens); });
    if (!source.usable() || !dequantize || !kernels.usable())
        return false;
    const TileRun run(block, count, c, kernels);
    run.start();
    for (size_t b = 0; b < blocks; b += segment) {
        const size_t some = std::min(segment, blocks - b), k = b * w.layout->block_k;
        for (size_t p = 0; p < count; ++p) {
            const UnpackArgs unpack{.src = source.blocks(first + p, 1, 1, b, some),
                                    .dst = floats + p * kPanelBytes,
                                    .blocks = some};
            dequantize(&unpack);
        }
        // Read next, from memory: fetched tile by tile.
        const size_t next = b + segment < blocks ? b + segment : 0;
        Upcoming upcoming = source.upcoming(next ? first : first + count, count, next,
                                            std::min(segment, blocks - next), block.tiles());
        run.add(floats, kPanelBytes, some * w.layout->block_k, [&](size_t i, size_t tokens) {
            upcoming.fetch();
            return block.acts + f32_activation_bytes(i, block.job->k) + f32_activation_bytes(tokens, k);
        });
    }
    run.store(first, 1);
    return true;
}

} // namespace

size_t f32_block_rows(const Product &product, size_t rows) noexcept {
    return even_block_rows(rows, product.kernel.mr, kBlockRows);
}

size_t f32_workspace_bytes(const Product &product) noexcept {
    return float_workspace_bytes(product) + PanelSource::buffer_bytes(product, 1, segment_blocks(product));
}

bool run_f32(const Block &block) noexcept {
    const size_t side = jit::f32_panels(block.product->kernel.isa);
    for (size_t panel = block.panel_begin; panel < block.panel_end; panel += side)
        if (!f32_panels(block, panel, std::min(side, block.panel_end - panel)))
            return false;
    return true;
}

} // namespace nybl::cpu
