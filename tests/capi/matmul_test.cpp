// Products through the C API: storage, types, strides, batches, bias, and which arithmetic runs.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

using namespace capi_test;

namespace {

std::vector<float> product(const nybl::Weights &w, size_t m, size_t n, const std::vector<float> &x) {
    std::vector<float> y = unwritten(m * n);
    w.matmul(m, x.data(), y.data());
    return y;
}

} // namespace

TEST_CASE("packed, original and scalar products have the same bits, in every format") {
    const size_t n = 37, k = 512;
    for (const nybl_format format : kFormats) {
        const auto blocks = random_blocks(format, n, k, 1);
        const nybl::Context best = make_context(), scalar = make_context(1, NYBL_ISA_SCALAR);
        const nybl::Weights packed(best, describe(format, n, k, blocks.data()));
        const nybl::Weights original(best, describe(format, n, k, blocks.data(), 1, NYBL_STORAGE_ORIGINAL));
        const nybl::Weights reference(scalar, describe(format, n, k, blocks.data()));
        for (const size_t m : {1, 2, 5, 16, 17, 33}) {
            INFO(format_name(format) << ", m = " << m << ", " << packed.explain(m).name);
            const auto x = random_floats(m * k, 2);
            const auto expected = bits(product(reference, m, n, x));
            CHECK(bits(product(packed, m, n, x)) == expected);
            CHECK(bits(product(original, m, n, x)) == expected);
        }
    }
}

TEST_CASE("C6: the arithmetic that was asked for is the one that runs") {
    const size_t k = 256;
    // d = 1, every 6-bit scale 1, every code 1, no minimum: all weights are 1.
    std::vector<uint8_t> blocks(nybl::row_bytes(NYBL_Q4_K, k), 0);
    blocks[1] = 0x3c;
    for (const size_t scale : {0, 1, 2, 3, 8, 9, 10, 11})
        blocks[4 + scale] = 1;
    std::fill(blocks.begin() + 16, blocks.end(), uint8_t{0x11});
    REQUIRE(nybl::dequantize(NYBL_Q4_K, 1, k, blocks.data()) == std::vector<float>(k, 1.0f));
    std::vector<float> x(k, 0.5f);
    x[0] = 1000.0f;
    const nybl::Context ctx = make_context();
    const nybl::Weights w(ctx, describe(NYBL_Q4_K, 1, k, blocks.data()));
    float y = 0;
    auto args = f32_args(1, x.data(), &y);
    args.compute = NYBL_COMPUTE_F32;
    w.matmul(args);
    CHECK(y == 1127.5f);
    args.compute = NYBL_COMPUTE_DEFAULT;
    w.matmul(args);
    CHECK(y > 1110.0f);
    CHECK(y < 1114.0f);
    args.compute = NYBL_COMPUTE_BF16;
    y = -1;
    CHECK(nybl_matmul(w.get(), &args) == NYBL_UNSUPPORTED);
    CHECK(y == -1);
}

TEST_CASE(
    "strides, batches and a bias give the bits of contiguous products, and touch nothing between rows") {
    const size_t n = 19, k = 64, m = 3, batch = 2, rows = m * batch;
    const nybl::Context ctx = make_context(3);
    const auto blocks = random_blocks(NYBL_Q4_1, n, k, 3);
    const nybl::Weights w(ctx, describe(NYBL_Q4_1, n, k, blocks.data()));
    const auto x = random_floats(rows * k, 4);
    const auto bias = random_floats(n, 5);
    std::vector<float> expected(rows * n);
    auto args = f32_args(rows, x.data(), expected.data());
    args.bias = bias.data();
    w.matmul(args);

    const size_t x_row = k + 3, y_row = n + 5, x_matrix = m * x_row + 7, y_matrix = m * y_row + 2;
    std::vector<float> wide_x(batch * x_matrix, 1e30f), wide_y = unwritten(batch * y_matrix);
    for (size_t i = 0; i < rows; ++i)
        std::memcpy(&wide_x[i / m * x_matrix + i % m * x_row], &x[i * k], 4 * k);
    args.m = m;
    args.batch = batch;
    args.x = wide_x.data();
    args.y = wide_y.data();
    args.x_stride = 4 * x_row;
    args.y_stride = 4 * y_row;
    args.x_batch_stride = 4 * x_matrix;
    args.y_batch_stride = 4 * y_matrix;
    w.matmul(args);
    std::vector<float> wanted = unwritten(batch * y_matrix);
    for (size_t i = 0; i < rows; ++i)
        std::memcpy(&wanted[i / m * y_matrix + i % m * y_row], &expected[i * n], 4 * n);
    CHECK(bits(wide_y) == bits(wanted));

    // Batches between the rows: [m, batch, n].
    std::vector<float> interleaved = unwritten(rows * n);
    args = f32_args(m, x.data(), interleaved.data());
    args.bias = bias.data();
    args.batch = batch;
    args.x_stride = args.x_batch_stride = 0;
    args.y_stride = 4 * n * batch;
    args.y_batch_stride = 4 * n;
    w.matmul(args);
    for (size_t b = 0; b < batch; ++b)
        for (size_t i = 0; i < m; ++i)
            CHECK(std::memcmp(&interleaved[(i * batch + b) * n], &expected[(b * m + i) * n], 4 * n) == 0);
}

TEST_CASE("half-precision inputs and outputs are conversions around the f32 product") {
    const size_t n = 21, k = 96, m = 2;
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_IQ4_NL, n, k, 6);
    const nybl::Weights w(ctx, describe(NYBL_IQ4_NL, n, k, blocks.data()));
    const auto source = random_floats(m * k, 7);
    for (const nybl_format type : {NYBL_F16, NYBL_BF16}) {
        const bool f16 = type == NYBL_F16;
        std::vector<uint16_t> x(m * k), y(m * n, 0xdead), wanted(m * n);
        std::vector<float> rounded(m * k), expected(m * n);
        for (size_t i = 0; i < m * k; ++i) {
            x[i] = f16 ? nybl::f32_to_f16(source[i]) : nybl::f32_to_bf16(source[i]);
            rounded[i] = f16 ? nybl::f16_to_f32(x[i]) : nybl::bf16_to_f32(x[i]);
        }
        w.matmul(m, rounded.data(), expected.data());
        for (size_t i = 0; i < m * n; ++i)
            wanted[i] = f16 ? nybl::f32_to_f16(expected[i]) : nybl::f32_to_bf16(expected[i]);
        auto args = nybl::make<nybl_matmul_args>();
        args.m = m;
        args.x = x.data();
        args.x_type = type;
        args.y = y.data();
        args.y_type = type;
        w.matmul(args);
        CHECK(y == wanted);
    }
}

TEST_CASE("several weights on one x give the bits of one after the other") {
    const size_t k = 512, m = 5;
    const nybl::Context ctx = make_context(2);
    std::vector<std::vector<uint8_t>> blocks;
    std::vector<nybl::Weights> weights;
    std::vector<const nybl_weights *> handles;
    std::vector<nybl_matmul_args> args;
    std::vector<std::vector<float>> expected, results;
    const auto x = random_floats(m * k, 8);
    for (size_t i = 0; i < 13; ++i) {
        const nybl_format format = kFormats[i % std::size(kFormats)];
        const size_t n = i == 4 ? 0 : 7 + 11 * i;
        // Original blocks and packed ones meet in one call.
        const auto storage = i % 3 == 2 ? NYBL_STORAGE_ORIGINAL : NYBL_STORAGE_PACKED;
        blocks.push_back(random_blocks(format, n, k, uint32_t(i)));
        weights.emplace_back(ctx, describe(format, n, k, blocks[i].data(), 1, storage));
        expected.push_back(product(weights[i], m, n, x));
        results.push_back(unwritten(m * n));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        handles.push_back(weights[i].get());
        args.push_back(f32_args(m, x.data(), results[i].data()));
    }
    nybl::check(nybl_matmul_multi(uint32_t(handles.size()), handles.data(), args.data()));
    for (size_t i = 0; i < weights.size(); ++i)
        CHECK(bits(results[i]) == bits(expected[i]));
    CHECK(nybl_matmul_multi(0, nullptr, nullptr) == NYBL_OK);
}

TEST_CASE("a wrong product among several leaves all outputs alone") {
    const size_t k = 64, n = 16;
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, n, k, 9);
    const nybl::Weights a(ctx, describe(NYBL_Q4_0, n, k, blocks.data()));
    const nybl::Weights longer(ctx, describe(NYBL_Q4_0, n / 2, 2 * k, blocks.data()));
    const auto x = random_floats(2 * k, 10);
    std::vector<float> y = unwritten(3 * n);
    const nybl_weights *same[2] = {a.get(), a.get()}, *differing[2] = {a.get(), longer.get()};
    nybl_matmul_args args[2] = {f32_args(1, x.data(), y.data()), f32_args(1, x.data(), y.data() + n)};
    CHECK(nybl_matmul_multi(2, differing, args) == NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("w[1]"));
    args[1].x = x.data() + k;
    CHECK(nybl_matmul_multi(2, same, args) == NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("args[1]"));
    args[1] = f32_args(1, x.data(), nullptr);
    CHECK(nybl_matmul_multi(2, same, args) == NYBL_INVALID_ARGUMENT);
    args[1] = f32_args(1, x.data(), y.data() + n);
    args[1].compute = NYBL_COMPUTE_F32;
    CHECK(nybl_matmul_multi(2, same, args) == NYBL_INVALID_ARGUMENT);
    args[1].compute = NYBL_COMPUTE_DEFAULT;
    args[1].struct_size -= 8;
    CHECK(nybl_matmul_multi(2, same, args) == NYBL_INVALID_ARGUMENT);
    CHECK(bits(y) == bits(unwritten(3 * n)));
}

TEST_CASE("C21: a row's bits depend neither on the other rows nor on threads") {
    const size_t n = 48, k = 256;
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_K}) {
        const auto blocks = random_blocks(format, n, k, 11);
        std::vector<uint32_t> expected;
        for (const uint32_t threads : {1u, 2u, 3u}) {
            const nybl::Context ctx = make_context(threads);
            const nybl::Weights w(ctx, describe(format, n, k, blocks.data()));
            for (const size_t m : {1, 2, 3, 4, 5, 8, 16, 17, 64}) {
                INFO(format_name(format) << ", m = " << m << ", threads " << threads);
                auto x = random_floats(m * k, 12);
                auto y = product(w, m, n, x);
                y.resize(n);
                if (expected.empty())
                    expected = bits(y);
                CHECK(bits(y) == expected);
                if (m > 1) { // a NaN in the last row stays there
                    x[m * k - 5] = std::nanf("");
                    y = product(w, m, n, x);
                    CHECK(std::isnan(y[m * n - 1]));
                    y.resize((m - 1) * n);
                    auto first = y;
                    first.resize(n);
                    CHECK(bits(first) == expected);
                    for (const float value : y)
                        if (!std::isfinite(value))
                            FAIL("a NaN reached another row");
                }
            }
        }
    }
}

TEST_CASE("explain names the kernel of every shape") {
    const nybl::Context ctx = make_context(), scalar = make_context(1, NYBL_ISA_SCALAR);
    const auto blocks = random_blocks(NYBL_Q4_K, 16, 256, 13);
    const nybl::Weights w(ctx, describe(NYBL_Q4_K, 16, 256, blocks.data()));
    const nybl::Weights plain(scalar, describe(NYBL_Q4_K, 16, 256, blocks.data()));
    CHECK(std::string(plain.explain(1).name) == "reference_q4_k_16x1_scalar");
    CHECK(plain.explain(1).isa == NYBL_ISA_SCALAR);
    CHECK(std::string(plain.explain(1).reason).find("scalar") != std::string::npos);
    if (ctx.isa() == NYBL_ISA_SCALAR)
        SKIP("no instruction set beyond the baseline here: the names of generated kernels are not checked");
    CHECK(std::string(w.explain(1).name).rfind("decode_q4_k_", 0) == 0);
    CHECK(std::string(w.explain(512).name).rfind("prefill_q4_k_", 0) == 0);
    CHECK(w.explain(1).device == NYBL_DEVICE_CPU);
    CHECK(w.explain(1).storage == NYBL_STORAGE_PACKED);
}
