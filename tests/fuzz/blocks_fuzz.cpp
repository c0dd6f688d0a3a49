// Any bytes as blocks: what validation accepts decodes to finite values, exports, and survives packing; what
// it refuses is refused everywhere in words. Nothing is read or written beside the buffers.
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "fenced.h"
#include "fuzz/input.h"

using namespace nybl::fuzz;
using nybl::test::Fenced;

namespace {

constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,   NYBL_Q8_1,
                                    NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_Q8_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW};

nybl_context *context() {
    static nybl_context *const ctx = open_context(2);
    return ctx;
}

struct Blocks {
    nybl_format format;
    uint64_t rows, k;
    size_t row_bytes, stride;
    const Fenced &bytes;

    bool is_weight() const { return format != NYBL_Q8_1 && format != NYBL_Q8_K; }
};

void check_decode(const Blocks &b, bool valid) {
    const Fenced values(b.rows * b.k * sizeof(float));
    require(nybl_dequantize(b.format, b.rows, b.k, b.bytes.data(), b.stride, values.as<float>(), 0) ==
                NYBL_OK,
            "blocks were not decoded");
    require(values.intact(), "decoding wrote before its output");
    // The scale of Q8_K is an f32: its products may overflow.
    for (size_t i = 0; valid && b.format != NYBL_Q8_K && i < b.rows * b.k; ++i)
        require(std::isfinite(values.as<float>()[i]), "a valid block holds a value that is not finite");
}

void check_export(const Blocks &b, bool valid, Input &input) {
    auto desc = make<nybl_affine_desc>();
    desc.param_type = input.one_of({NYBL_F32, NYBL_F16, NYBL_BF16});
    desc.layout = input.one_of({NYBL_N_MAJOR, NYBL_GROUP_MAJOR});
    desc.codes_k_major = input.below(2);
    if (nybl_affine_sizes(b.format, b.rows, b.k, &desc) != NYBL_OK)
        return;
    const Fenced codes(desc.codes_size), scales(desc.scales_size), zeros(desc.zeros_size);
    desc.codes = codes.data(), desc.scales = scales.data(), desc.zeros = zeros.data();
    desc.ctx = input.flag() ? context() : nullptr;
    const nybl_status status = nybl_affine_export(b.format, b.rows, b.k, b.bytes.data(), b.stride, &desc);
    require(status == NYBL_OK || status == NYBL_INVALID_DATA, "an export has another status");
    require(status != NYBL_OK || valid, "an export accepted blocks that are not valid");
    require(status == NYBL_OK || !valid || desc.param_type == NYBL_F16, "an export refused valid blocks");
    require(codes.intact() && scales.intact() && zeros.intact(), "an export wrote before its output");
}

void check_weights(const Blocks &b, bool valid) {
    auto desc = make<nybl_weights_desc>();
    desc.format = b.format, desc.n = b.rows, desc.k = b.k;
    desc.data = b.bytes.data(), desc.data_size = b.bytes.size(), desc.row_stride = b.stride;
    desc.validate = 1;
    nybl_weights *w = nullptr;
    nybl_status status = nybl_weights_create(context(), &desc, &w);
    if (status == NYBL_UNSUPPORTED)
        return;
    require(status == (valid ? NYBL_OK : NYBL_INVALID_DATA), "packing and validation disagree");
    desc.validate = 0;
    if (status != NYBL_OK)
        require(nybl_weights_create(context(), &desc, &w) == NYBL_OK, "blocks were not packed");
    const Fenced again(b.rows * b.row_bytes);
    require(nybl_weights_unpack(w, again.data(), 0) == NYBL_OK && again.intact(),
            "weights were not unpacked");
    for (size_t row = 0; row < b.rows; ++row)
        require(std::memcmp(again.data() + row * b.row_bytes, b.bytes.data() + row * b.stride, b.row_bytes) ==
                    0,
                "unpacking gives other bytes");
    const void *packed = nullptr;
    size_t bytes = 0;
    uint64_t id = 0;
    require(nybl_weights_packed(w, &packed, &bytes, &id) == NYBL_OK, "weights have no packed bytes");
    nybl_weights *mapped = nullptr;
    desc.validate = 1;
    status = nybl_weights_from_packed(context(), &desc, packed, bytes, id, &mapped);
    require(status == (valid ? NYBL_OK : NYBL_INVALID_DATA), "packed bytes and validation disagree");
    nybl_weights_destroy(mapped);
    nybl_weights_destroy(w);
}

// Panels of any bytes, as from a file: refused, or used.
void check_panels(const Blocks &b, Input &input) {
    auto desc = make<nybl_weights_desc>();
    desc.format = b.format, desc.n = b.rows, desc.k = b.k;
    size_t bytes = 0;
    if (nybl_weights_bytes(context(), &desc, &bytes) != NYBL_OK)
        return;
    const Fenced panels(bytes);
    input.fill(panels.data(), bytes, 7);
    desc.validate = 1;
    nybl_weights *w = nullptr;
    const nybl_status status =
        nybl_weights_from_packed(context(), &desc, panels.data(), bytes,
                                 uint64_t{0x4e59424c} << 32 | 1 << 16 | static_cast<uint64_t>(b.format), &w);
    require(status == NYBL_OK || status == NYBL_INVALID_DATA || status == NYBL_INVALID_ARGUMENT,
            "panels have another status");
    nybl_weights_destroy(w);
}

// The bytes as numbers to encode: refused, or valid blocks.
void check_encode(const Blocks &b, Input &input) {
    const Fenced source(b.rows * b.k * sizeof(float)), blocks(b.rows * b.row_bytes);
    input.fill(source.data(), source.size(), 3);
    auto options = make<nybl_codec_options>();
    options.level = input.one_of({NYBL_LEVEL_DEFAULT, NYBL_LEVEL_PLAIN, NYBL_LEVEL_FAST, NYBL_LEVEL_BEST});
    std::vector<float> importance(b.k);
    input.fill(importance.data(), b.k * sizeof(float));
    const float *weights = input.flag() ? importance.data() : nullptr;
    std::memset(blocks.data(), 0x5a, blocks.size());
    const nybl_status status =
        nybl_quantize_with(&options, b.format, b.rows, b.k, source.as<float>(), 0, weights, blocks.data(), 0);
    require(blocks.intact(), "encoding wrote before its output");
    if (status == NYBL_OK)
        require(nybl_validate(b.format, b.rows, b.k, blocks.data(), 0, blocks.size()) == NYBL_OK,
                "encoded blocks are not valid");
    else
        for (size_t i = 0; i < blocks.size(); ++i)
            require(blocks.data()[i] == 0x5a, "a refused source changed the output");
    require(status == NYBL_OK || status == NYBL_INVALID_DATA || status == NYBL_UNSUPPORTED,
            "encoding has another status");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input input(data, size);
    const nybl_format format = input.one_of(kFormats);
    auto info = make<nybl_format_info>();
    if (nybl_format_get_info(format, &info) != NYBL_OK)
        return 0;
    const uint64_t rows = 1 + input.below(20), k = info.block_size * uint64_t{1 + input.below(4)};
    const uint8_t mode = input.take<uint8_t>();
    size_t row_bytes = 0;
    require(nybl_row_bytes(format, k, &row_bytes) == NYBL_OK, "a row has no size");
    const size_t stride = row_bytes + input.below(5);
    const Fenced bytes((rows - 1) * stride + row_bytes,
                       mode & 1 ? Fenced::Fence::Before : Fenced::Fence::Behind);
    const Blocks blocks{format, rows, k, row_bytes, stride, bytes};
    if (mode & 2) {
        check_encode(blocks, input);
        return 0;
    }
    auto controls = Input(data, size < 16 ? size : 16);
    input.fill(bytes.data(), bytes.size(), 5);
    const nybl_status status = nybl_validate(format, rows, k, bytes.data(), stride, bytes.size());
    require(status == NYBL_OK || status == NYBL_INVALID_DATA, "validation has another status");
    const bool valid = status == NYBL_OK;
    check_decode(blocks, valid);
    if (blocks.is_weight()) {
        check_export(blocks, valid, controls);
        check_weights(blocks, valid);
        check_panels(blocks, input);
    }
    return 0;
}
