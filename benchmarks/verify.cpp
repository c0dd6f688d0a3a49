// Sampled rows and columns are computed again by a scalar context on weights of those rows alone: an output
// depends on its own row of X and of W only, so the bits must be the same.
#include "verify.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <set>

namespace nybl::bench {
namespace {

constexpr uint32_t kUnwritten = 0x7fdead5a; // a NaN with a payload
constexpr double kMostGpuNmse = 1e-4;
constexpr size_t kGuard = 64, kMostRows = 8, kMostColumns = 48;

bool same_bits(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

} // namespace

std::vector<uint64_t> sampled(uint64_t count, size_t most) {
    std::set<uint64_t> picked;
    if (count <= most) {
        for (uint64_t i = 0; i < count; ++i)
            picked.insert(i);
    } else {
        // Half of them at the ends, where tails and panel borders are.
        for (uint64_t i = 0; i < most / 4; ++i) {
            picked.insert(i);
            picked.insert(count - 1 - i);
        }
        Random random(count);
        while (picked.size() < most)
            picked.insert(random.below(count));
    }
    return {picked.begin(), picked.end()};
}

void Verdict::merge(const Verdict &other) {
    if (mismatch.empty())
        mismatch = other.mismatch;
    squared_error += other.squared_error;
    squared_value += other.squared_value;
}

CheckedOutput::CheckedOutput(size_t count)
    : count_(count), values_(count + kGuard, std::bit_cast<float>(kUnwritten)) {}

std::string CheckedOutput::complaint() const {
    for (size_t i = 0; i < values_.size(); ++i) {
        const bool written = std::bit_cast<uint32_t>(values_[i]) != kUnwritten;
        if (!written && i < count_)
            return fmt::format("element {} of {} was not written", i, count_);
        if (written && i >= count_)
            return fmt::format("the output has {} elements, but element {} was written", count_, i);
    }
    return {};
}

Verdict verify_product(const Product &product, Contexts &contexts) {
    const Source &source = product.source;
    const size_t bytes = row_bytes(source.format, source.k), k = source.k;
    const std::vector<uint64_t> columns = sampled(source.n, kMostColumns);
    const std::vector<uint64_t> rows = sampled(product.m, kMostRows);

    Source picked;
    picked.format = source.format;
    picked.n = columns.size();
    picked.k = k;
    picked.owned.resize(columns.size() * bytes);
    for (size_t i = 0; i < columns.size(); ++i)
        std::memcpy(&picked.owned[i * bytes], &product.matrix[columns[i] * bytes], bytes);
    std::vector<float> x(rows.size() * k), y(rows.size() * columns.size()), w(columns.size() * k);
    for (size_t i = 0; i < rows.size(); ++i)
        std::memcpy(&x[i * k], &product.x[rows[i] * k], k * sizeof(float));

    const WeightsHandle weights =
        create_weights(contexts.get(NYBL_ISA_SCALAR, 1), describe(picked, picked.owned, NYBL_STORAGE_PACKED));
    nybl_matmul_args args{};
    args.struct_size = sizeof args;
    args.m = rows.size();
    args.x = x.data();
    args.y = y.data();
    args.compute = product.compute;
    require(nybl_matmul(weights.get(), &args), "nybl_matmul (scalar)");
    require(nybl_dequantize(source.format, picked.n, k, picked.owned.data(), 0, w.data(), 0),
            "nybl_dequantize");

    Verdict verdict;
    for (size_t i = 0; i < rows.size(); ++i)
        for (size_t j = 0; j < columns.size(); ++j) {
            const float got = product.y[rows[i] * source.n + columns[j]];
            const float scalar = y[i * columns.size() + j];
            if (product.same_bits && !same_bits(got, scalar) && verdict.mismatch.empty())
                verdict.mismatch = fmt::format("row {}, column {}: {:a}, but the scalar kernel gives {:a}",
                                               rows[i], columns[j], got, scalar);
            double exact = 0;
            for (size_t e = 0; e < k; ++e)
                exact += static_cast<double>(w[j * k + e]) * static_cast<double>(x[i * k + e]);
            verdict.squared_error += (got - exact) * (got - exact);
            verdict.squared_value += exact * exact;
        }
    if (!product.same_bits && !(verdict.nmse() < kMostGpuNmse))
        verdict.mismatch = fmt::format("nmse {:.2e} against f64 arithmetic", verdict.nmse());
    return verdict;
}

} // namespace nybl::bench
