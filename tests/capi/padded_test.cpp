// K formats whose K ends inside a super-block, through nybl_weights_quantize.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <limits>

#include "capi/support.h"

using namespace capi_test;

namespace {

constexpr nybl_isa kIsas[] = {NYBL_ISA_SCALAR, NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI,
                              NYBL_ISA_AMX};
constexpr nybl_format kSuperFormats[] = {NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K};

nybl::Weights quantize(const nybl::Context &ctx, nybl_format format, size_t n, size_t k, const float *src) {
    const auto desc = describe(format, n, k, nullptr);
    nybl_weights *made = nullptr;
    nybl::check(nybl_weights_quantize(ctx.get(), &desc, src, 0, nullptr, nullptr, &made));
    return nybl::Weights(made);
}

struct Packed {
    const void *bytes = nullptr;
    size_t size = 0;
    uint64_t id = 0;

    explicit Packed(const nybl::Weights &w) { nybl::check(nybl_weights_packed(w.get(), &bytes, &size, &id)); }
    nybl::Weights as(const nybl::Context &ctx, nybl_format format, size_t n, size_t k) const {
        const auto desc = describe(format, n, k, nullptr);
        nybl_weights *made = nullptr;
        nybl::check(nybl_weights_from_packed(ctx.get(), &desc, bytes, size, id, &made));
        return nybl::Weights(made);
    }
};

// Rows of x `stride` floats apart.
std::vector<uint32_t> product(const nybl::Weights &w, size_t m, size_t n, const std::vector<float> &x,
                              size_t stride, nybl_compute compute) {
    std::vector<float> y(m * n, -1.0f);
    auto args = f32_args(m, x.data(), y.data());
    args.x_stride = stride * sizeof(float);
    args.compute = compute;
    nybl::check(nybl_matmul(w.get(), &args));
    return bits(y);
}

} // namespace

TEST_CASE("padded K: the same bits on every instruction set, and those of rows of zeros behind x") {
    const size_t n = 35, most = 65;
    for (const nybl_format format : kSuperFormats)
        for (const size_t k : {32, 224, 576, 896, 2880}) {
            const size_t whole = (k + 255) / 256 * 256;
            const auto source = random_floats(n * k, 1), values = random_floats(most * k, 2);
            // What lies behind a row of x would be seen in its outputs; zeros in the second copy would not.
            std::vector<float> fenced(most * (k + 8), std::numeric_limits<float>::quiet_NaN());
            std::vector<float> zeros(most * whole, 0.0f);
            for (size_t i = 0; i < most; ++i) {
                std::copy_n(&values[i * k], k, &fenced[i * (k + 8)]);
                std::copy_n(&values[i * k], k, &zeros[i * whole]);
            }
            const nybl::Context scalar = make_context(1, NYBL_ISA_SCALAR);
            const nybl::Weights reference = quantize(scalar, format, n, k, source.data());
            const nybl::Weights as_whole = Packed(reference).as(scalar, format, n, whole);
            for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
                const auto expected = product(reference, most, n, fenced, k + 8, compute);
                CHECK(product(as_whole, most, n, zeros, whole, compute) == expected);
                for (const nybl_isa isa : kIsas) {
                    const nybl::Context ctx = make_context(2, isa);
                    const nybl::Weights w = quantize(ctx, format, n, k, source.data());
                    const nybl::Weights again = Packed(w).as(ctx, format, n, k);
                    for (const size_t m : {size_t{1}, size_t{5}, most}) {
                        INFO(format_name(format) << " K " << k << " M " << m << " " << nybl_isa_string(isa)
                                                 << " compute " << compute);
                        const std::vector<uint32_t> first(expected.begin(), expected.begin() + m * n);
                        CHECK(product(w, m, n, fenced, k + 8, compute) == first);
                        CHECK(product(again, m, n, fenced, k + 8, compute) == first);
                    }
                }
            }
        }
}

TEST_CASE("padded K: the products are those of the weights that were quantized") {
    const size_t n = 5, k = 576, m = 3;
    const nybl::Context ctx = make_context();
    const auto source = random_floats(n * k, 3), x = random_floats(m * k, 4);
    for (const nybl_format format : kSuperFormats) {
        const nybl::Weights w = quantize(ctx, format, n, k, source.data());
        std::vector<float> y(m * n);
        w.matmul(m, x.data(), y.data());
        double error = 0, total = 0;
        for (size_t i = 0; i < m; ++i)
            for (size_t j = 0; j < n; ++j) {
                double exact = 0;
                for (size_t e = 0; e < k; ++e)
                    exact += double(x[i * k + e]) * source[j * k + e];
                error += (y[i * n + j] - exact) * (y[i * n + j] - exact);
                total += exact * exact;
            }
        INFO(format_name(format));
        CHECK(error < 0.02 * total);
    }
}

TEST_CASE("padded K: products that share x may differ in their padding; GGUF bytes stay strict") {
    const size_t n = 19, k = 96, m = 3;
    const auto source = random_floats(n * k, 5), x = random_floats(m * k, 6);
    for (const nybl_isa isa : kIsas) {
        const nybl::Context ctx = make_context(2, isa);
        std::vector<nybl::Weights> w;
        for (const nybl_format format : {NYBL_Q4_0, NYBL_Q4_K, NYBL_Q8_0, NYBL_Q6_K})
            w.push_back(quantize(ctx, format, n, k, source.data()));
        for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
            std::vector<std::vector<float>> y(w.size(), std::vector<float>(m * n));
            std::vector<const nybl_weights *> handles;
            std::vector<nybl_matmul_args> args;
            for (size_t i = 0; i < w.size(); ++i) {
                handles.push_back(w[i].get());
                args.push_back(f32_args(m, x.data(), y[i].data()));
                args.back().compute = compute;
            }
            nybl::check(nybl_matmul_multi(uint32_t(w.size()), handles.data(), args.data()));
            for (size_t i = 0; i < w.size(); ++i)
                CHECK(bits(y[i]) == product(w[i], m, n, x, k, compute));
        }
    }
    const nybl::Context ctx = make_context();
    const nybl::Weights padded = quantize(ctx, NYBL_Q4_K, n, k, source.data());
    std::vector<uint8_t> blocks(n * 144);
    CHECK(nybl_weights_unpack(padded.get(), blocks.data(), 0) == NYBL_UNSUPPORTED);
    CHECK(last_error_has("padded"));
    const auto desc = describe(NYBL_Q4_K, n, k, blocks.data());
    nybl_weights *none = nullptr;
    CHECK(nybl_weights_create(ctx.get(), &desc, &none) == NYBL_INVALID_ARGUMENT);
    CHECK(none == nullptr);
}
