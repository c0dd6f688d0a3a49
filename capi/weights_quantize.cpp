// nybl_weights_quantize: rows of f32 to panels, one panel's blocks at a time.
#include "checks.h"
#include "codec.h"
#include "cpu/panel_source.h"
#include "weights.h"

#include <cinttypes>

using namespace nybl;
using namespace nybl::capi;

namespace {

struct Source {
    quant::SourceRows rows;
    const float *importance;
};

nybl_status check_shape(const nybl_weights_desc *desc, WeightsShape *shape) noexcept {
    if (const nybl_status status = check_weights_desc(desc, LastBlock::Padded, shape); status != NYBL_OK)
        return status;
    if (shape->desc.storage != NYBL_STORAGE_PACKED)
        return fail(NYBL_INVALID_ARGUMENT,
                    "desc: quantized weights are packed; storage must be NYBL_STORAGE_PACKED");
    return NYBL_OK;
}

nybl_status check_source(nybl_context *ctx, const WeightsShape &shape, const float *src, size_t src_stride,
                         const float *importance, Source *source) noexcept {
    const uint64_t k = shape.desc.k;
    const Checked row = Checked(k) * sizeof(float);
    source->rows.data = src;
    if (const nybl_status status =
            resolve_stride(src_stride, row, row, sizeof(float), "src_stride", &source->rows.stride);
        status != NYBL_OK)
        return status;
    const Checked extent = k == 0 ? Checked(0) : strided_bytes(shape.rows(), source->rows.stride, row);
    if (const nybl_status status = check_size(extent, "src"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(src, extent.value(), sizeof(float), "src");
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            check_pointer(importance, importance ? row.value() : 0, sizeof(float), "importance");
        status != NYBL_OK)
        return status;
    return check_quantize(ctx, *shape.format, k ? shape.rows() : 0, k, source->rows, importance,
                          &source->importance);
}

nybl_status fill_panels(nybl_context *ctx, const WeightsShape &shape, const nybl_codec_options &options,
                        const Source &source, uint8_t *packed) {
    const size_t buffer_bytes = cpu::kPanelRows * shape.row_bytes;
    Scratch scratch(ctx);
    const Checked bytes = Checked(threads_for(ctx, shape.panels())) * buffer_bytes;
    if (const nybl_status status = check_size(bytes, "scratch"); status != NYBL_OK)
        return status;
    if (const nybl_status status = scratch.acquire(bytes.value()); status != NYBL_OK)
        return status;
    const auto place = [&](size_t panel) {
        return place_panel(panel, shape.panels_per_expert(), shape.desc.n);
    };
    const auto rows_done = [&](size_t panels) {
        const PanelPlace last = place(panels - 1);
        return last.expert * shape.desc.n + last.row + last.rows;
    };
    return for_each_with_progress(
        ctx, options, shape.panels(), cpu::kPanelRows * shape.desc.k, shape.rows(), rows_done,
        [&](uint32_t thread, size_t panel) {
            uint8_t *blocks = static_cast<uint8_t *>(scratch.data()) + thread * buffer_bytes;
            const PanelPlace at = place(panel);
            const auto *first = reinterpret_cast<const uint8_t *>(source.rows.data) +
                                (at.expert * shape.desc.n + at.row) * source.rows.stride;
            quant::quantize_rows(*shape.format, ctx->isa, options.level, {0, at.rows}, shape.desc.k,
                                 {reinterpret_cast<const float *>(first), source.rows.stride},
                                 source.importance, {blocks, shape.row_bytes});
            cpu::pack_panel(ctx->isa, *shape.layout, shape.padded_k, at.rows, blocks, shape.row_bytes,
                            packed + panel * shape.panel_bytes);
        });
}

nybl_status quantize(nybl_context *ctx, const nybl_weights_desc *desc, const float *src, size_t src_stride,
                     const float *importance, const nybl_codec_options *given, nybl_weights **w) {
    if (!ctx)
        return null_argument("ctx");
    if (!w)
        return null_argument("w");
    WeightsShape shape;
    if (const nybl_status status = check_shape(desc, &shape); status != NYBL_OK)
        return status;
    nybl_codec_options options{};
    if (const nybl_status status = read_options(given, &options); status != NYBL_OK)
        return status;
    Source source{};
    if (const nybl_status status = check_source(ctx, shape, src, src_stride, importance, &source);
        status != NYBL_OK)
        return status;
    if (shape.packed_bytes == 0)
        return make_weights(ctx, shape, nullptr, nullptr, w);
    PackedMemory packed(ctx, shape.packed_bytes);
    if (const nybl_status status = packed.allocate(); status != NYBL_OK)
        return status;
    if (const nybl_status status = fill_panels(ctx, shape, options, source, packed.data()); status != NYBL_OK)
        return status;
    return packed.hand_over(shape, w);
}

} // namespace

nybl_status nybl_weights_quantize(nybl_context *ctx, const nybl_weights_desc *desc, const float *src,
                                  size_t src_stride, const float *importance,
                                  const nybl_codec_options *options, nybl_weights **w) {
    return guarded("nybl_weights_quantize",
                   [&] { return quantize(ctx, desc, src, src_stride, importance, options, w); });
}
