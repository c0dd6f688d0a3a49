// The OpenCL kernels on whatever device is there, every format and variant, against f64 arithmetic on exact
// weights.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <nybl/nybl.h>

#include "base/half.h"
#include "dispatch/choose_gpu.h"
#include "gpu/device_case.h"

namespace nybl::test {
namespace {

// f32 sums of a few hundred to a few thousand terms; any wrong weight costs orders of magnitude more.
constexpr double kF32Nmse = 1e-11;

gpu::KernelChoice choose(const gpu::Device &device, const DeviceWeightsCase &w, size_t m,
                         nybl_compute compute) {
    const auto choice = dispatch::choose_gpu(
        {w.format.id, NYBL_STORAGE_PACKED, compute, m, w.n, w.k, w.n_experts, NYBL_ISA_SCALAR, 1},
        gpu::traits_of(device));
    REQUIRE(choice.served);
    return choice.kernel;
}

cpu::Rows dense_rows(void *base, nybl_format type, size_t columns) {
    const size_t bytes = columns * (type == NYBL_F32 ? 4 : 2);
    return {static_cast<uint8_t *>(base), type, 1, bytes, bytes};
}

double dot(const DeviceWeightsCase &w, size_t expert, size_t row, const float *x) {
    double sum = 0;
    const double *exact = &w.exact[(expert * w.n + row) * w.k];
    for (size_t j = 0; j < w.k; ++j)
        sum += exact[j] * static_cast<double>(x[j]);
    return sum;
}

struct Uploaded {
    Uploaded(gpu::Device &on, const DeviceWeightsCase &w) : device(on) {
        REQUIRE(gpu::upload_weights(device, w.matrix(), w.n_experts, w.panels.size(), &weights) == NYBL_OK);
    }
    ~Uploaded() { gpu::release_weights(device, weights); }
    gpu::Device &device;
    gpu::DeviceWeights *weights = nullptr;
};

// m rows through the device, with a bias, f32 in and out.
std::vector<float> multiply(gpu::Device &device, const DeviceWeightsCase &w, const Uploaded &uploaded,
                            size_t m, const std::vector<float> &x, const float *bias) {
    std::vector<float> y(m * w.n, NAN);
    cpu::Product product;
    product.w = w.matrix();
    product.y = dense_rows(y.data(), NYBL_F32, w.n);
    product.bias = bias;
    cpu::Job job;
    job.m = m;
    job.k = w.k;
    job.x = dense_rows(const_cast<float *>(x.data()), NYBL_F32, w.k);
    const gpu::Product on_device{uploaded.weights, &product, choose(device, w, m, NYBL_COMPUTE_F32)};
    const nybl_status status = gpu::run_products(device, job, &on_device, 1);
    INFO(nybl_last_error());
    REQUIRE(status == NYBL_OK);
    return y;
}

// Every tile for two formats, with and without fifth bits and super-blocks; for the others, to save
// compiling, two.
std::vector<size_t> tokens_to_try(const AffineBlockFormat &format) {
    if (format.id == NYBL_Q4_K || format.id == NYBL_Q5_1)
        return {1, 2, 3, 8, 9, 33, 70};
    return {1, 70};
}

void check_products(gpu::Variant variant) {
    skip_under_sanitizers();
    const OpenDevice device(&variant);
    if (device.status() != NYBL_OK)
        SKIP(gpu::variant_name(variant) << ": " << nybl_last_error());
    for (const auto &format : affine_formats())
        for (const size_t n : {size_t(5), size_t(48)})
            for (const size_t k : {format.block, 3 * format.block}) {
                const DeviceWeightsCase w(format, n, k, 1, static_cast<uint32_t>(n + k));
                const Uploaded uploaded(*device, w);
                for (const size_t m : tokens_to_try(format)) {
                    const auto x = random_activations(m * k, 7), bias = random_activations(n, 8);
                    const auto y = multiply(*device, w, uploaded, m, x, m % 2 ? bias.data() : nullptr);
                    std::vector<double> exact(m * n);
                    for (size_t i = 0; i < m * n; ++i)
                        exact[i] = dot(w, 0, i % n, &x[i / n * k]) +
                                   (m % 2 ? static_cast<double>(bias[i % n]) : 0.0);
                    INFO(gpu::variant_name(variant)
                         << ' ' << format.name << " m " << m << " n " << n << " k " << k);
                    CHECK(nmse(y, exact) < kF32Nmse);
                }
            }
}

} // namespace

TEST_CASE("opencl vector kernels compute the product in every format", "[gpu][opencl]") {
    check_products(gpu::Variant::Vector);
}
TEST_CASE("opencl lane kernels compute the product in every format", "[gpu][opencl]") {
    check_products(gpu::Variant::Lane);
}
TEST_CASE("opencl subgroup kernels compute the product in every format", "[gpu][opencl]") {
    check_products(gpu::Variant::Subgroup);
}

} // namespace nybl::test
