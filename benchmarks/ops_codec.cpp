// pack, quantize, dequantize: what happens to weights once, on the calling thread.
#include "cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "ggml_quantizer.h"

namespace nybl::bench {
namespace {

struct Codec {
    std::shared_ptr<const Source> source;
    std::vector<uint8_t> blocks, spare;
    std::vector<float> values, importance;
};

// Reads `read` bytes and writes `written`, in step; what one side has more goes from or to a small buffer.
std::function<void()> copy_of(const std::shared_ptr<Codec> &codec, const void *from, size_t read, void *to,
                              size_t written) {
    constexpr size_t kPiece = size_t{32} << 10;
    codec->spare.assign(2 * kPiece, 1);
    return [codec, origin = static_cast<const uint8_t *>(from), read, target = static_cast<uint8_t *>(to),
            written] {
        const size_t pieces = std::max(read, written) / kPiece + 1;
        for (size_t piece = 0; piece < pieces; ++piece) {
            const size_t in = read * piece / pieces, out = written * piece / pieces;
            const size_t reads = read * (piece + 1) / pieces - in;
            const size_t writes = written * (piece + 1) / pieces - out;
            const size_t moved = std::min(reads, writes);
            std::memcpy(target + out, origin + in, moved);
            std::memcpy(target + out + moved, codec->spare.data(), writes - moved);
            std::memcpy(codec->spare.data() + kPiece, origin + in + moved, reads - moved);
        }
    };
}

nybl_codec_options scalar_options(Shared &shared) {
    nybl_codec_options options{};
    options.struct_size = sizeof options;
    options.ctx = shared.contexts.get(NYBL_ISA_SCALAR, 1);
    return options;
}

// Importance as activations give it: positive, most of it small.
std::vector<float> importance_values(uint64_t k) {
    std::vector<float> values = normal_values(k, k + 1);
    for (float &value : values)
        value = value * value + 1e-3f;
    return values;
}

// Squared error of some rows, which must also have the bytes that a scalar context gives.
void verify_encoder(Shared &shared, const Case &of, const Codec &codec, nybl_level level,
                    const float *importance, Workload &workload) {
    nybl_codec_options scalar = scalar_options(shared);
    scalar.level = level;
    const size_t bytes = row_bytes(of.format, of.k);
    std::vector<uint8_t> expected(bytes);
    std::vector<float> back(of.k);
    double error = 0, size = 0;
    for (const uint64_t row : sampled(of.n, 8)) {
        const float *values = &codec.values[row * of.k];
        require(nybl_quantize_with(&scalar, of.format, 1, of.k, values, 0, importance, expected.data(), 0),
                "nybl_quantize_with (scalar)");
        require(nybl_dequantize(of.format, 1, of.k, expected.data(), 0, back.data(), 0), "nybl_dequantize");
        if (std::memcmp(expected.data(), &codec.blocks[row * bytes], bytes) != 0)
            workload.mismatch = fmt::format("row {}: bytes differ from those of the scalar encoder", row);
        for (uint64_t e = 0; e < of.k; ++e) {
            const double weight = importance ? importance[e] : 1, value = values[e], off = back[e] - value;
            error += weight * off * off;
            size += weight * value * value;
        }
    }
    workload.nmse = error / size;
}

void prepare_encoder(Shared &shared, const Case &of, nybl_level level, bool with_importance,
                     Workload &workload) {
    auto codec = std::make_shared<Codec>();
    codec->values = normal_values(of.n * of.k, of.n + of.k);
    codec->blocks.resize(of.n * row_bytes(of.format, of.k));
    if (with_importance)
        codec->importance = importance_values(of.k);
    const float *importance = with_importance ? codec->importance.data() : nullptr;
    nybl_codec_options options{};
    options.struct_size = sizeof options;
    options.level = level;
    workload.call = [codec, of, options, importance] {
        return nybl_quantize_with(&options, of.format, of.n, of.k, codec->values.data(), 0, importance,
                                  codec->blocks.data(), 0);
    };
    workload.first_call("nybl_quantize_with");
    verify_encoder(shared, of, *codec, level, importance, workload);
    workload.kernel = of.op->name;
    workload.bytes = static_cast<double>(codec->values.size() * sizeof(float) + codec->blocks.size());
    workload.copy = copy_of(codec, codec->values.data(), codec->values.size() * sizeof(float),
                            codec->blocks.data(), codec->blocks.size());
    if (const GgmlQuantizer *ggml = GgmlQuantizer::find(shared.options.ggml)) {
        const uint64_t rows = std::min<uint64_t>(of.n, 8); // its searches take their time
        auto blocks = std::make_shared<std::vector<uint8_t>>(rows * row_bytes(of.format, of.k));
        workload.rival_share = static_cast<double>(rows) / static_cast<double>(of.n);
        workload.rival = [codec, blocks, ggml, of, rows, importance] {
            ggml->quantize(of.format, codec->values.data(), importance, blocks->data(), rows, of.k);
        };
        workload.rival();
    }
}

} // namespace

void prepare_pack(Shared &shared, const Case &of, Workload &workload) {
    const std::shared_ptr<const Source> source = shared.source(of);
    nybl_context *context = shared.context(of);
    const nybl_weights_desc desc = describe(*source, source->tensors[0], NYBL_STORAGE_PACKED);
    const WeightsHandle weights = create_weights(context, desc);
    std::vector<uint8_t> unpacked(source->tensors[0].size());
    require(nybl_weights_unpack(weights.get(), unpacked.data(), 0), "nybl_weights_unpack");
    if (std::memcmp(unpacked.data(), source->tensors[0].data(), unpacked.size()) != 0)
        workload.mismatch = "unpacked bytes differ from the original ones";
    workload.bytes = 2.0 * static_cast<double>(unpacked.size());
    workload.kernel = "weights_create";
    workload.call = [source, context, desc] {
        nybl_weights *packed = nullptr;
        const nybl_status status = nybl_weights_create(context, &desc, &packed);
        nybl_weights_destroy(packed);
        return status;
    };
}

void prepare_quantize(Shared &shared, const Case &of, Workload &workload) {
    prepare_encoder(shared, of, NYBL_LEVEL_DEFAULT, false, workload);
}
void prepare_quantize_importance(Shared &shared, const Case &of, Workload &workload) {
    prepare_encoder(shared, of, NYBL_LEVEL_DEFAULT, true, workload);
}
void prepare_quantize_fast(Shared &shared, const Case &of, Workload &workload) {
    prepare_encoder(shared, of, NYBL_LEVEL_FAST, false, workload);
}

void prepare_dequantize(Shared &shared, const Case &of, Workload &workload) {
    auto codec = std::make_shared<Codec>();
    codec->source = shared.source(of);
    const std::span<const uint8_t> blocks = codec->source->tensors[0];
    const size_t bytes = row_bytes(of.format, of.k);
    codec->values.resize(of.n * of.k);
    workload.call = [codec, blocks, of] {
        return nybl_dequantize(of.format, of.n, of.k, blocks.data(), 0, codec->values.data(), 0);
    };
    workload.first_call("nybl_dequantize");

    const nybl_codec_options scalar = scalar_options(shared);
    std::vector<float> expected(of.k);
    for (const uint64_t row : sampled(of.n, 16)) {
        require(
            nybl_dequantize_with(&scalar, of.format, 1, of.k, &blocks[row * bytes], 0, expected.data(), 0),
            "nybl_dequantize_with (scalar)");
        if (std::memcmp(expected.data(), &codec->values[row * of.k], of.k * sizeof(float)) != 0)
            workload.mismatch = fmt::format("row {}: values differ from those of the scalar decoder", row);
    }
    workload.kernel = "dequantize";
    workload.bytes = static_cast<double>(codec->values.size() * sizeof(float) + blocks.size());
    workload.copy = copy_of(codec, blocks.data(), blocks.size(), codec->values.data(),
                            codec->values.size() * sizeof(float));
}

} // namespace nybl::bench
