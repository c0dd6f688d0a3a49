// The OpenCL kernels on whatever device is there, every format and variant, against f64 arithmetic on exact
// weights.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nybl/nybl.h>

#include "dispatch/choose_gpu.h"
#include "gpu/device_case.h"
#include "gpu/skip.h"

namespace nybl::test {
namespace {

// f32 sums of a few hundred to a few thousand terms; any wrong weight costs orders of magnitude more.
constexpr double kF32Nmse = 1e-11;
// Activations rounded to f16 once: about 2^-11 relative each, so NMSE of 2^-22 / 3.
constexpr double kHalfNmse = 1e-6;
// Against exact products of activations that were quantised as docs/numerics.md says: f32 sums again, and a
// division that OpenCL allows to be off by a few ulp.
constexpr double kInt8Nmse = 1e-9;

std::vector<float> quantised(std::vector<float> x) {
    for (size_t g = 0; g < x.size(); g += 32) {
        float largest = 0;
        for (size_t i = g; i < g + 32; ++i)
            largest = std::max(largest, std::fabs(x[i]));
        const float step = largest / 127.0f, inverse = 1.0f / step;
        for (size_t i = g; i < g + 32; ++i)
            x[i] = step * std::nearbyint(x[i] * inverse);
    }
    return x;
}

// Every tile for two formats, with and without fifth bits and super-blocks; for the others, to save
// compiling, two.
std::vector<size_t> tokens_to_try(const AffineBlockFormat &format) {
    if (format.id == NYBL_Q4_K || format.id == NYBL_Q5_1)
        return {1, 2, 3, 8, 9, 33, 70};
    return {1, 70};
}

void check_format(gpu::Device &device, const AffineBlockFormat &format, size_t n, size_t k) {
    const DeviceWeightsCase w(format, n, k, 1, static_cast<uint32_t>(n + k));
    const Uploaded uploaded(device, w);
    REQUIRE(uploaded.status() == NYBL_OK);
    for (const size_t m : tokens_to_try(format)) {
        const auto x = random_activations(m * k, 7), bias = random_activations(n, 8);
        const float *added = m % 2 ? bias.data() : nullptr;
        const auto exact = multiply_exactly(w, m, x, added);
        const auto exact_int8 = multiply_exactly(w, m, quantised(x), added);
        for (const auto compute : {NYBL_COMPUTE_F32, NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_INT8}) {
            if (compute == NYBL_COMPUTE_INT8 && gpu::traits_of(device).variant == gpu::Variant::Vector)
                continue; // CPU devices leave it to the CPU path
            std::vector<float> y;
            const nybl_status status = multiply(device, w, uploaded, m, x, added, compute, &y);
            INFO(format.name << " m " << m << " n " << n << " k " << k << " compute " << compute << ": "
                             << nybl_last_error());
            REQUIRE(status == NYBL_OK);
            if (compute == NYBL_COMPUTE_INT8)
                CHECK(nmse(y, exact_int8) < kInt8Nmse);
            else
                CHECK(nmse(y, exact) < (compute == NYBL_COMPUTE_F32 ? kF32Nmse : kHalfNmse));
        }
    }
}

void check_products(gpu::Variant variant) {
    skip_under_sanitizers();
    const OpenDevice device(&variant);
    if (device.status() != NYBL_OK)
        SKIP(gpu::variant_name(variant) << ": " << nybl_last_error());
    for (const auto &format : affine_formats())
        for (const size_t n : {size_t(5), size_t(48)})
            for (const size_t k : {format.block, 3 * format.block})
                check_format(*device, format, n, k);
}

// Tokens of two slots over three experts, one of them idle and some slots empty.
void check_experts(gpu::Variant variant) {
    skip_under_sanitizers();
    const OpenDevice device(&variant);
    if (device.status() != NYBL_OK)
        SKIP(gpu::variant_name(variant) << ": " << nybl_last_error());
    constexpr size_t n_experts = 3, n_slots = 2;
    for (const size_t n_tokens : {size_t(2), size_t(40)}) {
        const DeviceWeightsCase w(affine_formats()[3], 24, 512, n_experts, 9); // Q4_K
        const Uploaded uploaded(*device, w);
        REQUIRE(uploaded.status() == NYBL_OK);
        const size_t rows = n_tokens * n_slots;
        const auto x = random_activations(n_tokens * w.k, 4);
        std::vector<int32_t> ids(rows);
        for (size_t i = 0; i < rows; ++i)
            ids[i] = i % 7 == 3 ? -1 : static_cast<int32_t>(i % 2);
        std::vector<float> y(rows * w.n, NAN);
        const cpu::Experts experts{
            reinterpret_cast<const uint8_t *>(ids.data()), n_slots * 4, n_tokens, n_slots, n_experts, true};
        cpu::Product product;
        product.w = w.matrix();
        product.y = dense_rows(y.data(), w.n);
        cpu::Job job;
        job.m = n_tokens;
        job.k = w.k;
        job.x = dense_rows(const_cast<float *>(x.data()), w.k);
        job.experts = &experts;
        const auto choice = dispatch::choose_gpu({w.format.id, NYBL_STORAGE_PACKED, NYBL_COMPUTE_F32, rows,
                                                  w.n, w.k, n_experts, NYBL_ISA_SCALAR, 1},
                                                 gpu::traits_of(*device));
        const gpu::Product on_device{uploaded.get(), &product, choice.kernel};
        INFO(choice.name << " tokens " << n_tokens);
        REQUIRE(gpu::run_products(*device, job, &on_device, 1) == NYBL_OK);
        std::vector<double> exact;
        for (size_t i = 0; i < y.size(); ++i) {
            const int32_t id = ids[i / w.n];
            double sum = 0;
            for (size_t j = 0; id >= 0 && j < w.k; ++j)
                sum += w.exact[(static_cast<size_t>(id) * w.n + i % w.n) * w.k + j] *
                       static_cast<double>(x[i / w.n / n_slots * w.k + j]);
            exact.push_back(sum);
        }
        CHECK(nmse(y, exact) < kF32Nmse);
    }
}

} // namespace

TEST_CASE("opencl lane kernels multiply experts", "[gpu][opencl]") {
    check_experts(gpu::Variant::Lane);
}
TEST_CASE("opencl subgroup kernels multiply experts", "[gpu][opencl]") {
    check_experts(gpu::Variant::Subgroup);
}
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
