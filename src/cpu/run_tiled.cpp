// Blocks of many rows: a piece of a panel is unpacked to bytes once and meets every tile of the block.
#include <algorithm>
#include <cstring>

#include "cpu/block.h"
#include "cpu/caches.h"
#include "cpu/jit/amx_kernel.h"
#include "cpu/jit/unpack_kernel.h"
#include "cpu/panel_source.h"
#include "cpu/streaming_store.h"
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
constexpr size_t kChunkPanels = 8;

// Rows of a block: their activations for one piece of K and their accumulators for a chunk of panels take
// half of the second-level cache, and every panel is unpacked once for all of them.
constexpr size_t kMinBlockRows = 48, kMaxBlockRows = 512, kFewPanelsRows = 256;
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
        : block_(block), product_(*block.product), past_caches_(stores_past_caches(block)),
          side_(panels_per_tile(product_)), panel_bytes_(byte_panel_bytes(product_)),
          segment_(segment_blocks(product_)),
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
        const bool last = b + some == product_.w.k / product_.w.layout->block_k;
        run.for_each_tile([&](size_t i, size_t) {
            upcoming.fetch();
            if (last && !past_caches_)
                fetch_outputs(i, panel, count);
            if (i + mr < block_.row_end) {
                fetch_start(block_.tile_group(i + mr, b * groups_per_block));
                fetch_start(run.tile(i + mr));
            }
            run.multiply(i, block_.workspace, panel_bytes_, block_.tile_group(i, b * groups_per_block),
                         some * groups_per_block);
            if (last)
                store(run, i, panel, count);
        });
        if (last && past_caches_)
            finish_stores_past_caches();
    }

    // Writes the outputs of a tile whose products are complete, while its accumulators are in the first-level
    // cache.
    void store(const TileRun &run, size_t i, size_t panel, size_t count) const noexcept {
        const float *c = run.tile(i);
        const size_t tokens = block_.tile_rows(i);
        for (size_t t = 0; t < tokens; ++t) {
            const size_t output_row = block_.output_row(i + t);
            uint8_t *lines = product_.y.row(output_row) + kLineBytes * panel;
            for (size_t p = 0; p < count; ++p, lines += kLineBytes) {
                const size_t n = (panel + p) * kPanelRows, n_end = std::min(product_.w.n, n + kPanelRows);
                const float *from = c + kPanelRows * (p * tokens + t);
                if (past_caches_ && n_end - n == kPanelRows)
                    store_line_past_caches(lines, from);
                else
                    store_sums(block_, output_row, n, n_end - n, from);
            }
        }
    }
    // The same lines on their way while the last products are computed.
    void fetch_outputs(size_t i, size_t panel, size_t count) const noexcept {
        const size_t panel_bytes = kPanelRows * (product_.y.type == NYBL_F32 ? 4 : 2);
        for (size_t t = 0; t < block_.tile_rows(i); ++t) {
            const uint8_t *row = product_.y.row(block_.output_row(i + t));
            for (size_t at = panel * panel_bytes; at < (panel + count) * panel_bytes; at += kLineBytes)
                __builtin_prefetch(row + at, 1);
        }
    }

    // Outputs that nobody will find in the second-level cache, as they are more than it holds, leave it to
    // the activations: to make room for them costs several percent of a product. Only whole lines without
    // another step can.
    static bool stores_past_caches(const Block &block) noexcept {
        const Product &product = *block.product;
        const Rows &y = product.y;
        const auto aligned = [](size_t at) { return at % kLineBytes == 0; };
        return y.type == NYBL_F32 && !product.bias && product.w.format->row_factor_bytes == 0 &&
               sizeof(float) * product.w.n * block.segment_rows > second_level_cache_bytes() &&
               aligned(reinterpret_cast<uintptr_t>(y.base)) && aligned(y.inner_stride) &&
               aligned(y.outer_stride);
    }

    // Of a panel of the chunk that starts at `first`: [group of side_ panels][tile][panel][row][16].
    float *accumulators(size_t first, size_t panel) const noexcept {
        return accumulators_ + kPanelRows * rows() * (panel - first);
    }

    static constexpr size_t kLineBytes = sizeof(float) * kPanelRows;

    const Block &block_;
    const Product &product_;
    const bool past_caches_;
    const size_t side_, panel_bytes_, segment_;
    float *const accumulators_;
    PanelSource source_;
    const jit::UnpackFn unpack_;
    const TileKernels whole_, last_;
};

} // namespace

size_t tiled_block_rows(const Product &product, size_t rows, bool few_panels) noexcept {
    const size_t most = block_rows(product.kernel.isa);
    return even_block_rows(rows, product.kernel.mr, few_panels ? std::min(most, kFewPanelsRows) : most);
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
