// Requantizes the matrices of a model and sums the errors.
#include "quality.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <vector>

#include "data.h"
#include "ggml_quantizer.h"
#include "gguf/gguf.h"
#include "weights.h"

namespace nybl::bench {
namespace {

constexpr nybl_format kFormats[] = {NYBL_IQ4_NL_ROW, NYBL_Q4_0, NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q4_1,
                                    NYBL_Q5_0,       NYBL_Q5_K, NYBL_Q5_1,   NYBL_Q6_K, NYBL_Q8_0};

// Rows of one matrix in f32, and weights for its columns.
struct Matrix {
    uint64_t rows = 0, k = 0;
    std::vector<float> values, importance;
};

// Evenly spaced rows. Blocks only: a model of interest is a quantized one.
bool read_matrix(const gguf::Tensor &tensor, uint64_t most_rows, Matrix &matrix) {
    const auto format = static_cast<nybl_format>(tensor.type);
    nybl_format_info info{};
    info.struct_size = sizeof info;
    size_t bytes = 0;
    if (tensor.n_dims < 2 || nybl_format_get_info(format, &info) != NYBL_OK ||
        nybl_row_bytes(format, tensor.dims[0], &bytes) != NYBL_OK)
        return false;
    const uint64_t all = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    matrix.k = tensor.dims[0];
    matrix.rows = most_rows == 0 ? all : std::min(all, most_rows);
    matrix.values.resize(matrix.rows * matrix.k);
    for (uint64_t row = 0; row < matrix.rows; ++row) {
        const uint8_t *blocks = &tensor.data[all * row / matrix.rows * bytes];
        if (nybl_dequantize(format, 1, matrix.k, blocks, 0, &matrix.values[row * matrix.k], 0) != NYBL_OK)
            return false; // a plain type
    }
    // A stand-in for measured importance: few columns count much, most of them little.
    matrix.importance = normal_values(matrix.k, 7);
    for (float &value : matrix.importance)
        value = value * value + 1e-3f;
    return true;
}

struct Sum {
    double error = 0, weight = 0;

    double rmse() const { return std::sqrt(error / weight); }
    void add(const Matrix &matrix, const std::vector<float> &decoded, const float *importance) {
        for (uint64_t row = 0; row < matrix.rows; ++row)
            for (uint64_t i = 0; i < matrix.k; ++i) {
                const double off = decoded[row * matrix.k + i] - matrix.values[row * matrix.k + i];
                const double by = importance ? importance[i] : 1;
                error += by * off * off;
                weight += by;
            }
    }
};

// Errors of a format over all matrices that it takes: ours and ggml's, without importance and with.
struct Errors {
    nybl_format format;
    Sum ours[2], theirs[2];
    uint64_t weights = 0;
};

// What ggml has beside a format of this library's own.
nybl_format counterpart(nybl_format format) {
    return format == NYBL_IQ4_NL_ROW ? NYBL_IQ4_NL : format;
}

void add_errors(const Matrix &matrix, const GgmlQuantizer *ggml, Errors &errors) {
    size_t bytes = 0;
    if (nybl_row_bytes(errors.format, matrix.k, &bytes) != NYBL_OK)
        return; // K is no multiple of the block
    errors.weights += matrix.values.size();
    std::vector<uint8_t> blocks(matrix.rows * bytes);
    std::vector<float> decoded(matrix.values.size());
    const auto add = [&](Sum &sum, nybl_format format, const std::vector<uint8_t> &from,
                         const float *importance) {
        require(nybl_dequantize(format, matrix.rows, matrix.k, from.data(), 0, decoded.data(), 0),
                "nybl_dequantize");
        sum.add(matrix, decoded, importance);
    };
    for (const bool weighted : {false, true}) {
        const float *importance = weighted ? matrix.importance.data() : nullptr;
        require(nybl_quantize(errors.format, matrix.rows, matrix.k, matrix.values.data(), 0, importance,
                              blocks.data(), 0),
                "nybl_quantize");
        add(errors.ours[weighted], errors.format, blocks, importance);
        if (ggml) {
            const nybl_format theirs = counterpart(errors.format);
            std::vector<uint8_t> their_blocks(matrix.rows * row_bytes(theirs, matrix.k));
            ggml->quantize(theirs, matrix.values.data(), importance, their_blocks.data(), matrix.rows,
                           matrix.k);
            add(errors.theirs[weighted], theirs, their_blocks, importance);
        }
    }
}

double bits_per_weight(nybl_format format) {
    const nybl_format_info info = format_info(format);
    return 8.0 * static_cast<double>(info.block_bytes) / static_cast<double>(info.block_size);
}

void print_errors(const std::vector<Errors> &all, bool with_ggml) {
    fmt::print("{:8}{:>8}{:>12} | {:>12}{:>12}{:>8} | {:>12}{:>12}{:>8}\n", "format", "bits", "weights",
               "RMSE", "ggml's", "ratio", "weighted", "ggml's", "ratio");
    for (const Errors &errors : all) {
        if (errors.weights == 0)
            continue;
        fmt::print("{:8}{:8.4f}{:12}", format_info(errors.format).name, bits_per_weight(errors.format),
                   errors.weights);
        for (const int weighted : {0, 1}) {
            const double ours = errors.ours[weighted].rmse();
            fmt::print(" | {:12.4e}", ours);
            if (with_ggml) {
                const double theirs = errors.theirs[weighted].rmse();
                fmt::print("{:12.4e}{:>8}", theirs, theirs > 0 ? fmt::format("{:.4f}", ours / theirs) : "-");
            } else {
                fmt::print("{:>12}{:>8}", "-", "-");
            }
        }
        fmt::print("\n");
    }
}

void write_csv(const std::string &path, const std::vector<Errors> &all, bool with_ggml) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "w"), std::fclose);
    if (!file)
        throw ApiError{NYBL_INVALID_ARGUMENT, fmt::format("--quality-csv: cannot write {}", path)};
    fmt::print(file.get(), "format,bits,weights,rmse,ggml_rmse,weighted_rmse,ggml_weighted_rmse\n");
    for (const Errors &errors : all) {
        if (errors.weights == 0)
            continue;
        fmt::print(file.get(), "{},{:.4f},{}", format_info(errors.format).name,
                   bits_per_weight(errors.format), errors.weights);
        for (const int weighted : {0, 1})
            fmt::print(file.get(), ",{:.6e},{}", errors.ours[weighted].rmse(),
                       with_ggml ? fmt::format("{:.6e}", errors.theirs[weighted].rmse()) : "");
        fmt::print(file.get(), "\n");
    }
}

} // namespace

int report_quality(const Options &options) {
    std::string error;
    const auto file = gguf::MappedFile::open(options.quality, error);
    if (!file) {
        fmt::print(stderr, "nybl-bench: {}\n", error);
        return 1;
    }
    const GgmlQuantizer *ggml = GgmlQuantizer::find(options.ggml);
    if (!ggml)
        fmt::print(stderr, "no ggml to compare with (--ggml, or NYBL_GGML in the environment)\n");
    std::vector<Errors> all;
    for (const nybl_format format : kFormats)
        all.push_back({format, {}, {}, 0});
    const std::vector<gguf::Tensor> &tensors = file->contents().tensors;
    size_t done = 0, matrices = 0;
    for (const gguf::Tensor &tensor : tensors) {
        Matrix matrix;
        if (read_matrix(tensor, options.quality_rows, matrix)) {
            ++matrices;
            for (Errors &errors : all)
                add_errors(matrix, ggml, errors);
        }
        fmt::print(stderr, "\r{} of {} tensors", ++done, tensors.size());
    }
    fmt::print(stderr, "\n");
    fmt::print("{}: {} matrices, {} of each; importance: squared normal numbers\n",
               file->contents().text("general.name").value_or("unnamed"), matrices,
               options.quality_rows == 0 ? std::string("all rows")
                                         : fmt::format("up to {} rows", options.quality_rows));
    print_errors(all, ggml != nullptr);
    if (!options.quality_csv.empty())
        write_csv(options.quality_csv, all, ggml != nullptr);
    return 0;
}

} // namespace nybl::bench
