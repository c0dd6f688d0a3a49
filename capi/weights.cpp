// nybl_weights_create, _destroy and _bytes.
#include "weights.h"

#include <cinttypes>
#include <new>

#include "checks.h"
#include "cpu/panel_source.h"
#include "gpu_path.h"
#include "quant/codec.h"

namespace nybl::capi {

nybl_status check_weights_desc(const nybl_weights_desc *given, LastBlock last, WeightsShape *shape) noexcept {
    WeightsShape out;
    if (const nybl_status status = read_struct(given, "desc", &out.desc); status != NYBL_OK)
        return status;
    nybl_weights_desc &desc = out.desc;
    if (const nybl_status status = get_weight_format(desc.format, &out.format); status != NYBL_OK)
        return status;
    if (desc.storage != NYBL_STORAGE_PACKED && desc.storage != NYBL_STORAGE_ORIGINAL)
        return fail(NYBL_INVALID_ARGUMENT, "desc: storage %d is neither packed nor original",
                    static_cast<int>(desc.storage));
    const auto count_bytes = last == LastBlock::Padded ? quant::padded_row_bytes : quant::row_bytes;
    if (const nybl_status status = count_bytes(*out.format, desc.k, &out.row_bytes); status != NYBL_OK)
        return status;
    const uint32_t block = out.format->block_size;
    out.padded_k = (desc.k / block + (desc.k % block != 0)) * block;
    desc.n_experts = std::max<uint64_t>(desc.n_experts, 1);
    // Also bounds n rounded up to whole panels, and a panel rounded up to its alignment.
    const Checked original =
        (Checked(desc.n) + cpu::kPanelRows) * desc.n_experts * (Checked(out.row_bytes) + 4);
    if (const nybl_status status = check_size(original, "desc: n, k and n_experts"); status != NYBL_OK)
        return status;
    if (desc.storage == NYBL_STORAGE_PACKED) {
        out.layout = cpu::find_panel_layout(desc.format);
        if (!out.layout)
            return fail(NYBL_UNSUPPORTED, "format %s has no packed layout; use NYBL_STORAGE_ORIGINAL",
                        out.format->name);
        out.panel_bytes = cpu::panel_bytes(*out.layout, out.padded_k);
        const Checked packed = Checked(out.panels()) * out.panel_bytes;
        if (const nybl_status status = check_size(packed, "desc: the packed weights"); status != NYBL_OK)
            return status;
        out.packed_bytes = packed.value();
    }
    *shape = out;
    return NYBL_OK;
}

nybl_status check_weights_data(WeightsShape *shape) noexcept {
    nybl_weights_desc &desc = shape->desc;
    if (const nybl_status status = resolve_stride(desc.row_stride, shape->row_bytes, shape->row_bytes, 1,
                                                  "desc: row_stride", &desc.row_stride);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            resolve_stride(desc.expert_stride, Checked(desc.n) * desc.row_stride, shape->row_bytes, 1,
                           "desc: expert_stride", &desc.expert_stride);
        status != NYBL_OK)
        return status;
    const bool empty = desc.n == 0 || desc.k == 0;
    const Checked extent = empty ? Checked(0)
                                 : strided_bytes(desc.n_experts, desc.expert_stride,
                                                 strided_bytes(desc.n, desc.row_stride, shape->row_bytes));
    if (const nybl_status status = check_size(extent, "desc: the strides"); status != NYBL_OK)
        return status;
    if (desc.data_size != 0 && desc.data_size < extent.value())
        return fail(NYBL_INVALID_ARGUMENT,
                    "desc: data_size is %zu bytes; %" PRIu64 " rows of %zu bytes at these strides need %zu",
                    desc.data_size, desc.n * desc.n_experts, shape->row_bytes, extent.value());
    return check_pointer(desc.data, extent.value(), 1, "desc: data");
}

nybl_status make_weights(nybl_context *ctx, const WeightsShape &shape, const void *data, void *owned,
                         nybl_weights **w) noexcept {
    void *storage = nullptr;
    if (const nybl_status status =
            ctx->memory.allocate(sizeof(nybl_weights), alignof(nybl_weights), "weights handle", &storage);
        status != NYBL_OK)
        return status;
    auto *made = ::new (storage) nybl_weights{};
    const bool packed = shape.desc.storage == NYBL_STORAGE_PACKED;
    made->ctx = ctx;
    made->matrix.format = shape.format;
    made->matrix.layout = cpu::find_panel_layout(shape.desc.format);
    made->matrix.storage = shape.desc.storage;
    made->matrix.data = static_cast<const uint8_t *>(data);
    made->matrix.n = shape.desc.n;
    made->matrix.k = shape.padded_k;
    made->k = shape.desc.k;
    made->matrix.stride = packed ? shape.panel_bytes : shape.desc.row_stride;
    made->matrix.expert_stride =
        packed ? shape.panels_per_expert() * shape.panel_bytes : shape.desc.expert_stride;
    made->n_experts = shape.desc.n_experts;
    made->row_bytes = shape.row_bytes;
    made->owned = owned;
    made->data_bytes = packed ? shape.packed_bytes : 0;
    retain(ctx);
    place_on_gpu(made);
    *w = made;
    return NYBL_OK;
}

nybl_status fail_invalid_block(const WeightsShape &shape, size_t expert, size_t row,
                               const uint8_t *row_data) noexcept {
    const char *field = "block";
    const size_t block =
        shape.format->find_invalid(row_data, shape.padded_k / shape.format->block_size, &field);
    char where[32] = "";
    if (shape.desc.n_experts > 1)
        std::snprintf(where, sizeof where, "expert %zu, ", expert);
    return fail(NYBL_INVALID_DATA, "%s: %srow %zu, block %zu: %s is not finite", shape.format->name, where,
                row, block, field);
}

namespace {

const uint8_t *original_row(const nybl_weights_desc &desc, size_t expert, size_t row) noexcept {
    return static_cast<const uint8_t *>(desc.data) + expert * desc.expert_stride + row * desc.row_stride;
}

nybl_status validate_all(nybl_context *ctx, const WeightsShape &shape) noexcept {
    if (shape.desc.k == 0)
        return NYBL_OK;
    const size_t blocks = shape.desc.k / shape.format->block_size;
    FirstBad first;
    for_each(ctx, 0, shape.panels(), [&](uint32_t, size_t panel) {
        const PanelPlace place = place_panel(panel, shape.panels_per_expert(), shape.desc.n);
        const char *field = nullptr;
        for (size_t row = place.row; row < place.row + place.rows; ++row)
            if (shape.format->find_invalid(original_row(shape.desc, place.expert, row), blocks, &field) !=
                blocks)
                return first.report(place.expert * shape.desc.n + row);
    });
    if (!first.found())
        return NYBL_OK;
    const size_t expert = first.item() / shape.desc.n, row = first.item() % shape.desc.n;
    return fail_invalid_block(shape, expert, row, original_row(shape.desc, expert, row));
}

nybl_status create(nybl_context *ctx, const nybl_weights_desc *desc, nybl_weights **w) {
    if (!ctx)
        return null_argument("ctx");
    if (!w)
        return null_argument("w");
    WeightsShape shape;
    if (const nybl_status status = check_weights_desc(desc, LastBlock::Whole, &shape); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_weights_data(&shape); status != NYBL_OK)
        return status;
    if (shape.desc.validate)
        if (const nybl_status status = validate_all(ctx, shape); status != NYBL_OK)
            return status;
    if (shape.packed_bytes == 0)
        return make_weights(ctx, shape, shape.layout ? nullptr : shape.desc.data, nullptr, w);

    PackedMemory packed(ctx, shape.packed_bytes);
    if (const nybl_status status = packed.allocate(); status != NYBL_OK)
        return status;
    for_each(ctx, 0, shape.panels(), [&](uint32_t, size_t panel) {
        const PanelPlace place = place_panel(panel, shape.panels_per_expert(), shape.desc.n);
        cpu::pack_panel(ctx->isa, *shape.layout, shape.desc.k, place.rows,
                        original_row(shape.desc, place.expert, place.row), shape.desc.row_stride,
                        packed.data() + panel * shape.panel_bytes);
    });
    return packed.hand_over(shape, w);
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_weights_create(nybl_context *ctx, const nybl_weights_desc *desc, nybl_weights **w) {
    return guarded("nybl_weights_create", [&] { return create(ctx, desc, w); });
}

void nybl_weights_destroy(nybl_weights *w) {
    if (!w)
        return;
    nybl_context *ctx = w->ctx;
    remove_from_gpu(w);
    nybl_pack *pack = w->pack;
    ctx->memory.deallocate(w->owned, w->data_bytes);
    ctx->memory.deallocate(w, sizeof *w);
    release(pack);
    release(ctx);
}

nybl_status nybl_weights_bytes(nybl_context *ctx, const nybl_weights_desc *desc, size_t *bytes) {
    if (!ctx)
        return null_argument("ctx");
    if (!bytes)
        return null_argument("bytes");
    WeightsShape shape;
    const nybl_status status = check_weights_desc(desc, LastBlock::Whole, &shape);
    if (status == NYBL_OK)
        *bytes = shape.packed_bytes;
    return status;
}
