// nybl_quantize, _dequantize (and the _with forms) and _validate.
#include "codec.h"

#include "checks.h"
#include "cpu/isa.h"

namespace nybl::capi {

nybl_status read_options(const nybl_codec_options *given, nybl_codec_options *options) noexcept {
    *options = {};
    if (given)
        if (const nybl_status status = read_struct(given, "options", options); status != NYBL_OK)
            return status;
    if (options->level < NYBL_LEVEL_DEFAULT || options->level > NYBL_LEVEL_BEST)
        return fail(NYBL_INVALID_ARGUMENT, "options: level %d is none of nybl_level",
                    static_cast<int>(options->level));
    return NYBL_OK;
}

nybl_isa codec_isa(const nybl_context *ctx) noexcept {
    return ctx ? ctx->isa : cpu::effective_isa(NYBL_ISA_BEST);
}

nybl_status check_quantize(nybl_context *ctx, const quant::Format &format, uint64_t rows, uint64_t k,
                           quant::SourceRows src, const float *importance, const float **effective) noexcept {
    const float *weights = nullptr;
    if (const nybl_status status = quant::check_importance(k, importance, &weights); status != NYBL_OK)
        return status;
    const auto check = [&](size_t row) { return quant::check_source(format, {row, row + 1}, k, src); };
    FirstBad first;
    for_each(ctx, 0, rows, [&](uint32_t, size_t row) {
        if (check(row) != NYBL_OK)
            first.report(row);
    });
    if (first.found()) // again, on this thread: the sentence is the thread's
        return check(first.item());
    *effective = weights;
    return NYBL_OK;
}

namespace {

// Rows of one side of a codec: elements (f32) or blocks.
struct Side {
    const void *data;
    size_t stride; // resolved
};
nybl_status resolve_side(const void *data, size_t stride, uint64_t rows, Checked row_bytes, size_t alignment,
                         const char *name, const char *stride_name, Side *side) noexcept {
    size_t resolved = 0;
    if (const nybl_status status =
            resolve_stride(stride, row_bytes, row_bytes, alignment, stride_name, &resolved);
        status != NYBL_OK)
        return status;
    const Checked extent = row_bytes.value() == 0 ? Checked(0) : strided_bytes(rows, resolved, row_bytes);
    if (const nybl_status status = check_size(extent, name); status != NYBL_OK)
        return status;
    *side = {data, resolved};
    return check_pointer(data, extent.value(), alignment, name);
}

// An item of progress is a row.
constexpr uint64_t every_row(size_t rows) noexcept {
    return rows;
}

// The arguments that both directions have.
struct Codec {
    nybl_codec_options options;
    const quant::Format *format;
    size_t row_bytes; // of blocks
    Side elements, blocks;
};
nybl_status read_codec(const nybl_codec_options *options, nybl_format format, uint64_t k,
                       Codec *codec) noexcept {
    if (const nybl_status status = read_options(options, &codec->options); status != NYBL_OK)
        return status;
    if (const nybl_status status = quant::get_format(format, &codec->format); status != NYBL_OK)
        return status;
    return quant::row_bytes(*codec->format, k, &codec->row_bytes);
}

nybl_status quantize(const nybl_codec_options *options, nybl_format format, uint64_t rows, uint64_t k,
                     const float *src, size_t src_stride, const float *importance, void *dst,
                     size_t dst_stride) {
    Codec codec{};
    if (const nybl_status status = read_codec(options, format, k, &codec); status != NYBL_OK)
        return status;
    if (const nybl_status status = resolve_side(src, src_stride, rows, Checked(k) * sizeof(float),
                                                sizeof(float), "src", "src_stride", &codec.elements);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            resolve_side(dst, dst_stride, rows, codec.row_bytes, 1, "dst", "dst_stride", &codec.blocks);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            check_pointer(importance, importance ? k * sizeof(float) : 0, sizeof(float), "importance");
        status != NYBL_OK)
        return status;
    const nybl_level level = codec.options.level;
    const nybl_isa isa = codec_isa(codec.options.ctx);
    const quant::SourceRows source{src, codec.elements.stride};
    const float *weights = nullptr;
    if (const nybl_status status =
            check_quantize(codec.options.ctx, *codec.format, k ? rows : 0, k, source, importance, &weights);
        status != NYBL_OK)
        return status;
    if (k == 0)
        return NYBL_OK;
    return for_each_with_progress(
        codec.options.ctx, codec.options, rows, k, rows, every_row, [&](uint32_t, size_t row) {
            quant::quantize_rows(*codec.format, isa, level, {row, row + 1}, k, source, weights,
                                 {static_cast<uint8_t *>(dst), codec.blocks.stride});
        });
}

nybl_status dequantize(const nybl_codec_options *options, nybl_format format, uint64_t rows, uint64_t k,
                       const void *src, size_t src_stride, float *dst, size_t dst_stride) {
    Codec codec{};
    if (const nybl_status status = read_codec(options, format, k, &codec); status != NYBL_OK)
        return status;
    if (const nybl_status status =
            resolve_side(src, src_stride, rows, codec.row_bytes, 1, "src", "src_stride", &codec.blocks);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = resolve_side(dst, dst_stride, rows, Checked(k) * sizeof(float),
                                                sizeof(float), "dst", "dst_stride", &codec.elements);
        status != NYBL_OK)
        return status;
    if (k == 0)
        return NYBL_OK;
    const nybl_isa isa = codec_isa(codec.options.ctx);
    return for_each_with_progress(
        codec.options.ctx, codec.options, rows, k, rows, every_row, [&](uint32_t, size_t row) {
            quant::dequantize_rows(*codec.format, isa, {row, row + 1}, k,
                                   {static_cast<const uint8_t *>(src), codec.blocks.stride}, dst,
                                   codec.elements.stride);
        });
}

nybl_status validate(nybl_format format, uint64_t rows, uint64_t k, const void *src, size_t src_stride,
                     size_t src_size) {
    Codec codec{};
    if (const nybl_status status = read_codec(nullptr, format, k, &codec); status != NYBL_OK)
        return status;
    // The size first: a wrong one says more than what the bytes behind a wrong end hold.
    size_t stride = 0;
    if (const nybl_status status =
            resolve_stride(src_stride, codec.row_bytes, codec.row_bytes, 1, "src_stride", &stride);
        status != NYBL_OK)
        return status;
    const Checked extent = k == 0 ? Checked(0) : strided_bytes(rows, stride, codec.row_bytes);
    if (const nybl_status status = check_size(extent, "src"); status != NYBL_OK)
        return status;
    if (src_size != 0 && src_size != extent.value())
        return fail(NYBL_INVALID_ARGUMENT, "src_size is %zu bytes; these rows are exactly %zu", src_size,
                    extent.value());
    if (const nybl_status status = check_pointer(src, extent.value(), 1, "src"); status != NYBL_OK)
        return status;
    if (k == 0)
        return NYBL_OK;
    return quant::validate_rows(*codec.format, {0, rows}, k, {static_cast<const uint8_t *>(src), stride});
}

} // namespace
} // namespace nybl::capi

using namespace nybl::capi;

nybl_status nybl_quantize_with(const nybl_codec_options *options, nybl_format format, uint64_t rows,
                               uint64_t k, const float *src, size_t src_stride, const float *importance,
                               void *dst, size_t dst_stride) {
    return guarded("nybl_quantize_with", [&] {
        return quantize(options, format, rows, k, src, src_stride, importance, dst, dst_stride);
    });
}

nybl_status nybl_quantize(nybl_format format, uint64_t rows, uint64_t k, const float *src, size_t src_stride,
                          const float *importance, void *dst, size_t dst_stride) {
    return guarded("nybl_quantize", [&] {
        return quantize(nullptr, format, rows, k, src, src_stride, importance, dst, dst_stride);
    });
}

nybl_status nybl_dequantize_with(const nybl_codec_options *options, nybl_format format, uint64_t rows,
                                 uint64_t k, const void *src, size_t src_stride, float *dst,
                                 size_t dst_stride) {
    return guarded("nybl_dequantize_with",
                   [&] { return dequantize(options, format, rows, k, src, src_stride, dst, dst_stride); });
}

nybl_status nybl_dequantize(nybl_format format, uint64_t rows, uint64_t k, const void *src, size_t src_stride,
                            float *dst, size_t dst_stride) {
    return guarded("nybl_dequantize",
                   [&] { return dequantize(nullptr, format, rows, k, src, src_stride, dst, dst_stride); });
}

nybl_status nybl_validate(nybl_format format, uint64_t rows, uint64_t k, const void *src, size_t src_stride,
                          size_t src_size) {
    return guarded("nybl_validate", [&] { return validate(format, rows, k, src, src_stride, src_size); });
}
