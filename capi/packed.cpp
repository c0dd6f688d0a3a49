// Packed weights as bytes: out to a file, back in, and back to original blocks.
#include <cinttypes>
#include <cstring>

#include "checks.h"
#include "weights.h"

using namespace nybl;
using namespace nybl::capi;

namespace {

// "NYBL", the version of the layout in cpu/panel.h, and the format. The version changes with any change to
// the bytes.
constexpr uint64_t kLayoutVersion = 1;

nybl_status validate_panels(nybl_context *ctx, const WeightsShape &shape, const uint8_t *packed) noexcept {
    const size_t blocks = shape.padded_k / shape.format->block_size;
    const size_t buffer_bytes = cpu::kPanelRows * shape.row_bytes;
    Scratch scratch(ctx);
    // One buffer more than threads: the last one serves the error text.
    const uint32_t threads = threads_for(ctx, shape.panels());
    const Checked bytes = (Checked(threads) + 1) * buffer_bytes;
    if (const nybl_status status = check_size(bytes, "scratch"); status != NYBL_OK)
        return status;
    if (const nybl_status status = scratch.acquire(bytes.value()); status != NYBL_OK)
        return status;
    const auto unpack = [&](uint32_t thread, size_t panel) {
        uint8_t *rows = static_cast<uint8_t *>(scratch.data()) + thread * buffer_bytes;
        const PanelPlace place = place_panel(panel, shape.panels_per_expert(), shape.desc.n);
        cpu::unpack_panel(*shape.layout, shape.padded_k, place.rows, packed + panel * shape.panel_bytes, rows,
                          shape.row_bytes);
        return rows;
    };
    FirstBad first;
    for_each(ctx, 0, shape.panels(), [&](uint32_t thread, size_t panel) {
        const PanelPlace place = place_panel(panel, shape.panels_per_expert(), shape.desc.n);
        const uint8_t *rows = unpack(thread, panel);
        const char *field = nullptr;
        for (size_t i = 0; i < place.rows; ++i)
            if (shape.format->find_invalid(rows + i * shape.row_bytes, blocks, &field) != blocks)
                return first.report(place.expert * shape.desc.n + place.row + i);
    });
    if (!first.found())
        return NYBL_OK;
    const size_t expert = first.item() / shape.desc.n, row = first.item() % shape.desc.n;
    const uint8_t *rows = unpack(threads, expert * shape.panels_per_expert() + row / cpu::kPanelRows);
    return fail_invalid_block(shape, expert, row, rows + row % cpu::kPanelRows * shape.row_bytes);
}

nybl_status from_packed(nybl_context *ctx, const nybl_weights_desc *desc, const void *packed, size_t bytes,
                        uint64_t id, nybl_weights **w) {
    if (!ctx)
        return null_argument("ctx");
    if (!w)
        return null_argument("w");
    WeightsShape shape;
    if (const nybl_status status = check_weights_desc(desc, LastBlock::Padded, &shape); status != NYBL_OK)
        return status;
    if (shape.desc.storage != NYBL_STORAGE_PACKED)
        return fail(NYBL_INVALID_ARGUMENT, "desc: packed bytes cannot be weights in original storage");
    if (id != packed_layout_id(shape.desc.format))
        return fail(NYBL_INVALID_ARGUMENT,
                    "layout_id is %#" PRIx64 ", not the %#" PRIx64
                    " of %s in this version: pack the weights again",
                    id, packed_layout_id(shape.desc.format), shape.format->name);
    if (bytes != shape.packed_bytes)
        return fail(NYBL_INVALID_ARGUMENT, "packed: %zu bytes; this format, n, k and n_experts pack into %zu",
                    bytes, shape.packed_bytes);
    if (const nybl_status status = check_pointer(packed, bytes, cpu::kPanelAlign, "packed");
        status != NYBL_OK)
        return status;
    if (shape.desc.validate && bytes != 0)
        if (const nybl_status status = validate_panels(ctx, shape, static_cast<const uint8_t *>(packed));
            status != NYBL_OK)
            return status;
    return make_weights(ctx, shape, packed, nullptr, w);
}

nybl_status unpack(const nybl_weights *w, void *dst, size_t given_stride) {
    if (!w)
        return null_argument("w");
    const cpu::Matrix &m = w->matrix;
    if (m.k != w->k)
        return fail(NYBL_UNSUPPORTED,
                    "k is %zu: the last super-block of %s is padded, and such rows have no original bytes",
                    w->k, m.format->name);
    size_t stride = 0;
    if (const nybl_status status =
            resolve_stride(given_stride, w->row_bytes, w->row_bytes, 1, "row_stride", &stride);
        status != NYBL_OK)
        return status;
    const size_t rows = m.n * w->n_experts;
    const Checked extent = m.k == 0 ? Checked(0) : strided_bytes(rows, stride, w->row_bytes);
    if (const nybl_status status = check_size(extent, "row_stride"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(dst, extent.value(), 1, "dst"); status != NYBL_OK)
        return status;
    if (extent.value() == 0)
        return NYBL_OK;
    const size_t per_expert = cpu::panel_count(m.n);
    for_each(w->ctx, 0, per_expert * w->n_experts, [&](uint32_t, size_t panel) {
        const PanelPlace place = place_panel(panel, per_expert, m.n);
        uint8_t *to = static_cast<uint8_t *>(dst) + (place.expert * m.n + place.row) * stride;
        const uint8_t *expert = m.data + place.expert * m.expert_stride;
        if (m.storage == NYBL_STORAGE_PACKED)
            return cpu::unpack_panel(*m.layout, m.k, place.rows,
                                     expert + place.row / cpu::kPanelRows * m.stride, to, stride);
        for (size_t i = 0; i < place.rows; ++i)
            std::memcpy(to + i * stride, expert + (place.row + i) * m.stride, w->row_bytes);
    });
    return NYBL_OK;
}

} // namespace

uint64_t nybl::capi::packed_layout_id(nybl_format format) noexcept {
    return uint64_t{0x4e59424c} << 32 | kLayoutVersion << 16 | static_cast<uint64_t>(format);
}

nybl_status nybl_weights_packed(const nybl_weights *w, const void **packed, size_t *bytes, uint64_t *id) {
    if (!w)
        return null_argument("w");
    if (!packed)
        return null_argument("packed");
    if (!bytes)
        return null_argument("bytes");
    if (!id)
        return null_argument("layout_id");
    if (w->matrix.storage != NYBL_STORAGE_PACKED)
        return fail(NYBL_INVALID_ARGUMENT,
                    "these weights are in original storage: there are no packed bytes");
    *packed = w->matrix.data;
    *bytes = w->data_bytes;
    *id = packed_layout_id(w->matrix.format->id);
    return NYBL_OK;
}

nybl_status nybl_weights_from_packed(nybl_context *ctx, const nybl_weights_desc *desc, const void *packed,
                                     size_t bytes, uint64_t id, nybl_weights **w) {
    return guarded("nybl_weights_from_packed", [&] { return from_packed(ctx, desc, packed, bytes, id, w); });
}

nybl_status nybl_weights_unpack(const nybl_weights *w, void *dst, size_t row_stride) {
    return guarded("nybl_weights_unpack", [&] { return unpack(w, dst, row_stride); });
}
