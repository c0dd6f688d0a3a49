// Blocks of many rows: a piece of a panel is unpacked to bytes once and meets every tile of the block.
#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/caches.h"
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
// Panels that one piece of K visits before the next one: each read of that piece's activations from beyond
// the second-level cache serves them all.
constexpr size_t kChunkPanels = 16;

// Rows of a block: their activations for one piece of K and their accumulators for a chunk of panels take
// half of the second-level cache, and every panel is unpacked once for all of them.
constexpr size_t kMinBlockRows = 48, kMaxBlockRows = 256;
size_t block_rows(nybl_isa isa) noexcept {
    const size_t row_bytes =
        kActivationBytes * segment_groups(isa) + sizeof(float) * kPanelRows * kChunkPanels;
    return std::clamp(second_level_cache_bytes() / 2 / row_bytes, kMinBlockRows, kMaxBlockRows);
}

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

// Whole tiles of panels that are about a chunk.
size_t chunk_panels(const Product &product) noexcept {
    const size_t side = panels_per_tile(product);
    return (kChunkPanels + side - 1) / side * side;
}

// Byte panels and accumulators.
size_t byte_workspace_bytes(const Product &product) noexcept {
    return panels_per_tile(product) * byte_panel_bytes(product) +
           sizeof(float) * kPanelRows * chunk_panels(product) *
               (block_rows(product.kernel.isa) + jit::kMaxTokens);
}

// A tile's activations and accumulators are read line after line, which the processor's own prefetching
// picks up after some.
void fetch_start(const void *of) noexcept {
    for (size_t line = 0; line < 8; ++line)
        __builtin_prefetch(static_cast<const uint8_t *>(of) + 64 * line);
}

// What the panels of a block have in common.
class TiledBlock {
  public:
    explicit TiledBlock(const Block &block) noexcept
        : block_(block), product_(*block.product), side_(panels_per_tile(product_)),
          panel_bytes_(byte_panel_bytes(product_)), segment_(segment_blocks(product_)),
          accumulators_(reinterpret_cast<float *>(block.workspace + side_ * panel_bytes_)),
          source_(block, segment_, block.workspace + byte_workspace_bytes(product_), false),
          unpack_(jit::unpack_kernel(product_.w.format->id, product_.kernel.isa)), whole_(kernels(side_)),
          last_(kernels(1 + (block.panel_end - block.panel_begin - 1) % side_)) {}

    bool usable() const noexcept { return source_.usable() && unpack_ && whole_.usable() && last_.usable(); }

    // Panels [first, end), at most a chunk.
    void run(size_t first, size_t end) noexcept {
        const size_t blocks = product_.w.k / product_.w.layout->block_k;
        std::memset(accumulators_, 0, sizeof(float) * kPanelRows * (end - first) * rows());
        for (size_t b = 0; b < blocks; b += segment_)
            for (size_t panel = first; panel < end; panel += side_) {
                const size_t count = std::min(side_, end - panel), some = std::min(segment_, blocks - b);
                // What is read next is fetched tile by tile: all at once it would have to be waited for.
                const bool more = panel + side_ < end;
                const size_t next = more ? b : b + segment_ < blocks ? b + segment_ : 0;
                Upcoming upcoming =
                    source_.upcoming(more   ? panel + side_
                                     : next ? first
                                            : end,
                                     side_, next, std::min(segment_, blocks - next), block_.tiles());
                multiply(panel, count, accumulators(first, panel), b, some, upcoming);
            }
        store(first, end);
    }

  private:
    size_t rows() const noexcept { return block_.row_end - block_.row_begin; }

    TileKernels kernels(size_t panels) const noexcept {
        const nybl_format format = product_.w.format->id;
        const nybl_isa isa = product_.kernel.isa;
        return {block_, [&](size_t tokens) {
                    return isa == NYBL_ISA_AMX
                               ? jit::amx_kernel(format, tokens)
                               : jit::tile_kernel(WeightForm::Bytes, format, isa, panels, tokens);
                }};
    }

    // Adds the products of `some` blocks, from block b on, of `count` panels.
    void multiply(size_t panel, size_t count, float *c, size_t b, size_t some, Upcoming &upcoming) noexcept {
        for (size_t p = 0; p < count; ++p) {
            const UnpackArgs args{.src = source_.blocks(panel + p, 1, 1, b, some),
                                  .dst = block_.workspace + p * panel_bytes_,
                                  .blocks = some};
            unpack_(&args);
        }
        const size_t groups_per_block = product_.w.layout->block_k / 32, mr = product_.kernel.mr;
        const TileRun run(block_, count, c, count == side_ ? whole_ : last_);
        run.for_each_tile([&](size_t i, size_t) {
            upcoming.fetch();
            if (i + mr < block_.row_end) {
                fetch_start(block_.tile_group(i + mr, b * groups_per_block));
                fetch_start(run.tile(i + mr));
            }
            run.multiply(i, block_.workspace, panel_bytes_, block_.tile_group(i, b * groups_per_block),
                         some * groups_per_block);
        });
    }

    // Row by row: what a row's memory costs (its page, its lines) is paid once for the chunk.
    void store(size_t first, size_t end) const noexcept {
        constexpr size_t kFetchRows = 4; // ahead
        for (size_t i = block_.row_begin; i < block_.row_end; i += product_.kernel.mr)
            for (size_t t = 0; t < block_.tile_rows(i); ++t) {
                fetch_outputs(i + t + kFetchRows, first, end);
                for (size_t panel = first; panel < end; panel += side_) {
                    const size_t count = std::min(side_, end - panel);
                    const float *c =
                        accumulators(first, panel) + kPanelRows * (count * (i - block_.row_begin) + t);
                    for (size_t p = panel; p < panel + count; ++p, c += kPanelRows * block_.tile_rows(i))
                        store_outputs(product_, block_.output_row(i + t), p * kPanelRows,
                                      std::min(kPanelRows, product_.w.n - p * kPanelRows), c);
                }
            }
    }
    void fetch_outputs(size_t i, size_t first, size_t end) const noexcept {
        if (i >= block_.row_end)
            return;
        const size_t panel_bytes = kPanelRows * (product_.y.type == NYBL_F32 ? 4 : 2);
        const uint8_t *row = product_.y.row(block_.output_row(i));
        for (size_t at = first * panel_bytes; at < end * panel_bytes + 63; at += 64)
            __builtin_prefetch(row + at, 1);
    }

    // Of a panel of the chunk that starts at `first`: [group of side_ panels][tile][panel][row][16].
    float *accumulators(size_t first, size_t panel) const noexcept {
        return accumulators_ + kPanelRows * rows() * (panel - first);
    }

    const Block &block_;
    const Product &product_;
    const size_t side_, panel_bytes_, segment_;
    float *const accumulators_;
    PanelSource source_;
    const jit::UnpackFn unpack_;
    const TileKernels whole_, last_;
};

} // namespace

size_t tiled_block_rows(const Product &product, size_t rows) noexcept {
    return even_block_rows(rows, product.kernel.mr, block_rows(product.kernel.isa));
}

size_t tiled_workspace_bytes(const Product &product) noexcept {
    return byte_workspace_bytes(product) + PanelSource::buffer_bytes(product, 1, segment_blocks(product));
}

bool run_tiled(const Block &block) noexcept {
    TiledBlock tiled(block);
    if (!tiled.usable())
        return false;
    const size_t chunk = chunk_panels(*block.product);
    for (size_t panel = block.panel_begin; panel < block.panel_end; panel += chunk)
        tiled.run(panel, std::min(block.panel_end, panel + chunk));
    return true;
}

} // namespace nybl::cpu
