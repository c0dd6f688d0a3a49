// Blocks of many rows: a piece of a panel is unpacked to bytes once and meets every tile of the block.
#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/jit/amx_kernel.h"
#include "cpu/jit/unpack_kernel.h"
#include "cpu/panel_source.h"
#include "cpu/tile_run.h"

namespace nybl::cpu {
namespace {

using jit::UnpackArgs;
using jit::WeightForm;

// Groups of K between two visits of the accumulators. The byte panels of so many stay in the first-level
// cache: one panel with ymm, two or three with zmm. AMX visits less often, since it sets its tiles up for
// every call.
constexpr size_t segment_groups(nybl_isa isa) noexcept {
    return isa == NYBL_ISA_AMX ? 64 : isa == NYBL_ISA_AVX512_VNNI ? 16 : 32;
}
// Rows of activations that stay in the second-level cache while the panels pass by.
constexpr size_t kBlockRows = 128;

size_t byte_panel_bytes(const Product &product) noexcept {
    return segment_groups(product.kernel.isa) *
           size_t(jit::byte_group_bytes(*product.w.layout, product.kernel.isa));
}

size_t segment_blocks(const Product &product) noexcept {
    return segment_groups(product.kernel.isa) / (product.w.layout->block_k / 32);
}

size_t panels_per_tile(const Product &product) noexcept {
    return product.kernel.nr / kPanelRows;
}

// Byte panels and accumulators.
size_t byte_workspace_bytes(const Product &product) noexcept {
    return panels_per_tile(product) * (byte_panel_bytes(product) + sizeof(float) * kPanelRows * kBlockRows);
}

bool tile_panels(const Block &block, size_t first, size_t count) noexcept {
    const Product &product = *block.product;
    const Matrix &w = product.w;
    const nybl_isa isa = product.kernel.isa;
    const size_t groups_per_block = w.layout->block_k / 32;
    const size_t blocks = w.k / w.layout->block_k, segment = segment_blocks(product);
    const size_t panel_bytes = byte_panel_bytes(product);
    uint8_t *bytes = block.workspace;
    auto *c = reinterpret_cast<float *>(bytes + panels_per_tile(product) * panel_bytes);
    PanelSource source(block, segment, block.workspace + byte_workspace_bytes(product));
    if (!source.usable())
        return false;
    const TileRun run(block, count, c, [&](size_t tokens) {
        return isa == NYBL_ISA_AMX ? jit::amx_kernel(w.format->id, tokens)
                                   : jit::tile_kernel(WeightForm::Bytes, w.format->id, isa, count, tokens);
    });
    const auto unpack = jit::unpack_kernel(w.format->id, isa);
    if (!unpack || !run.usable())
        return false;
    for (size_t b = 0; b < blocks; b += segment) {
        const size_t some = std::min(segment, blocks - b);
        for (size_t p = 0; p < count; ++p) {
            const UnpackArgs args{.src = source.blocks(first + p, 1, 1, b, some),
                                  .dst = bytes + p * panel_bytes,
                                  .blocks = some,
                                  .ahead = some * w.layout->block_bytes};
            unpack(&args);
        }
        run.add(bytes, panel_bytes, some * groups_per_block,
                [&](size_t i, size_t) { return block.tile_group(i, b * groups_per_block); });
    }
    run.store(first, 1);
    return true;
}

} // namespace

size_t tiled_block_rows(const Product &product, size_t rows) noexcept {
    return even_block_rows(rows, product.kernel.mr, kBlockRows);
}

size_t tiled_workspace_bytes(const Product &product) noexcept {
    return byte_workspace_bytes(product) + PanelSource::buffer_bytes(product, 1, segment_blocks(product));
}

bool run_tiled(const Block &block) noexcept {
    const size_t side = panels_per_tile(*block.product);
    for (size_t panel = block.panel_begin; panel < block.panel_end; panel += side)
        if (!tile_panels(block, panel, std::min(side, block.panel_end - panel)))
            return false;
    return true;
}

} // namespace nybl::cpu
