// oneDNN's backend against a stand-in that checks every argument: the static_sbzp branch, which mode runs
// where, memory, and a failure at every call.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "gpu/onednn/onednn_case.h"

namespace nybl::test {

// f32 activations are rounded to f16 here.
const std::vector<EngineCase> &engine_cases() {
    static const std::vector<EngineCase> cases = {
        {"static_sbzp", {.index = 0, .matrix_engine = true}, 1e-5, false},
        {"two terms", {.index = 1}, 1e-5, false},
        {"two terms, f32 parameters", {.params = NYBL_F32, .index = 0, .matrix_engine = true}, 1e-5, false},
    };
    return cases;
}

namespace {

gpu::OneDnnMode mode_of(const gpu::OneDnnSettings &settings, size_t format, size_t k, nybl_format x_type) {
    OpenEngine engine(settings);
    REQUIRE(engine.status == NYBL_OK);
    const DeviceWeightsCase w(affine_formats()[format], 3, k, 1, 1);
    const EngineWeights weights(engine, w);
    REQUIRE(weights.status == NYBL_OK);
    gpu::OneDnnUse use{};
    REQUIRE(gpu::describe_onednn(*engine.dnn, *weights.get(), 5, x_type, &use) == NYBL_OK);
    CHECK(std::string(use.implementation) == "jit:double");
    CHECK(use.plan.m == 8);
    const size_t before = dnnl::fake::executed_sbzp, sums_before = dnnl::fake::executed_sums;
    std::vector<float> y;
    REQUIRE(multiply_in(engine, w, weights, 5, random_activations(5 * k, 1), nullptr, &y) == NYBL_OK);
    CHECK((dnnl::fake::executed_sbzp != before) == (use.plan.mode == gpu::OneDnnMode::ScaleBeforeZero));
    CHECK((dnnl::fake::executed_sums != sums_before) == (use.plan.mode == gpu::OneDnnMode::TwoTerm));
    return use.plan.mode;
}

} // namespace

TEST_CASE("onednn double: the mode is chosen by device, format, parameters and groups", "[gpu][onednn]") {
    using gpu::OneDnnMode;
    const gpu::OneDnnSettings &matrix = engine_cases()[0].settings, &plain = engine_cases()[1].settings,
                              &f32 = engine_cases()[2].settings;
    for (const size_t format : {0, 5}) // Q4_0, IQ4_NL
        CHECK(mode_of(matrix, format, 64, NYBL_F32) == OneDnnMode::OneTerm);
    for (const size_t format : {1, 2}) { // Q4_1, Q5_1
        CHECK(mode_of(matrix, format, 64, NYBL_F32) == OneDnnMode::ScaleBeforeZero);
        CHECK(mode_of(matrix, format, 64, NYBL_BF16) == OneDnnMode::ScaleBeforeZero);
        CHECK(mode_of(matrix, format, 32, NYBL_F32) == OneDnnMode::TwoTerm); // one group
        CHECK(mode_of(plain, format, 64, NYBL_F32) == OneDnnMode::TwoTerm);
        CHECK(mode_of(f32, format, 64, NYBL_F32) == OneDnnMode::TwoTerm);
    }
    for (const size_t format : {3, 4}) // Q4_K, Q5_K
        CHECK(mode_of(matrix, format, 256, NYBL_F32) == OneDnnMode::ScaleBeforeZero);
}

TEST_CASE("onednn double: a reference implementation is refused in words", "[gpu][onednn]") {
    OpenEngine engine({.index = 2});
    REQUIRE(engine.status == NYBL_OK);
    const EngineWeights weights(engine, DeviceWeightsCase(affine_formats()[3], 3, 256, 1, 1));
    CHECK(weights.status == NYBL_UNSUPPORTED);
    CHECK(std::string(nybl_last_error()) == "oneDNN: this device gets its ocl:ref:any for Q4_K");
}

TEST_CASE("onednn double: static_sbzp is exact where two terms are, and costs one matmul", "[gpu][onednn]") {
    const DeviceWeightsCase w(affine_formats()[3], 20, 512, 1, 1);
    const auto x = random_activations(3 * w.k, 4);
    std::vector<float> y[2];
    size_t sums[2], plain[2];
    for (size_t i = 0; i < 2; ++i) {
        OpenEngine engine(engine_cases()[i].settings);
        const EngineWeights weights(engine, w);
        const size_t sums_before = dnnl::fake::executed_sums, plain_before = dnnl::fake::executed_plain;
        REQUIRE(multiply_in(engine, w, weights, 3, x, nullptr, &y[i]) == NYBL_OK);
        sums[i] = dnnl::fake::executed_sums - sums_before;
        plain[i] = dnnl::fake::executed_plain - plain_before;
    }
    CHECK(sums[0] == 0);
    CHECK(plain[0] == 0);
    CHECK(sums[1] == 2); // the high and the low half of the sums
    CHECK(plain[1] == 1);
    CHECK(nmse(y[1], std::vector<double>(y[0].begin(), y[0].end())) < 1e-12);
}

TEST_CASE("onednn double: the count of bytes is the library's own, and its peak", "[gpu][onednn]") {
    dnnl::fake::peak_bytes = 0;
    {
        OpenEngine engine(engine_cases()[1].settings);
        const DeviceWeightsCase w(affine_formats()[3], 100, 256, 1, 1);
        const EngineWeights weights(engine, w);
        std::vector<float> y;
        for (const size_t m : {1, 40, 3})
            REQUIRE(multiply_in(engine, w, weights, m, random_activations(m * w.k, 1), nullptr, &y) ==
                    NYBL_OK);
        CHECK(engine.counted.bytes == dnnl::fake::live_bytes);
        CHECK(engine.counted.peak_bytes == dnnl::fake::peak_bytes);
    }
    CHECK(dnnl::fake::live_bytes == 0);
    CHECK(dnnl::fake::primitives == 0);
}

TEST_CASE("onednn double: at most 64 plans are kept", "[gpu][onednn]") {
    OpenEngine engine(engine_cases()[1].settings);
    const DeviceWeightsCase w(affine_formats()[0], 2, 32, 1, 1); // one primitive per plan
    const EngineWeights weights(engine, w);
    gpu::OneDnnUse use{};
    for (size_t m = 1; m <= 512 * 100; m += 100)
        REQUIRE(gpu::describe_onednn(*engine.dnn, *weights.get(), m, NYBL_F32, &use) == NYBL_OK);
    CHECK(dnnl::fake::primitives == 64);
}

namespace {

// Opens, uploads, multiplies twice; *y is filled where all went well.
nybl_status whole_life(const DeviceWeightsCase &w, const std::vector<float> &x, std::vector<float> *y) {
    OpenEngine engine(engine_cases()[1].settings);
    if (engine.status != NYBL_OK)
        return engine.status;
    const EngineWeights weights(engine, w);
    if (weights.status != NYBL_OK)
        return weights.status;
    if (!gpu::onednn_holds(*engine.dnn, *weights.get(), w.matrix()))
        return NYBL_DEVICE_ERROR;
    std::vector<float> once;
    if (const nybl_status status = multiply_in(engine, w, weights, 2, x, nullptr, &once); status != NYBL_OK)
        return status;
    return multiply_in(engine, w, weights, 2, x, nullptr, y);
}

} // namespace

TEST_CASE("onednn double: a failure at any call is a status, and leaves nothing behind", "[gpu][onednn]") {
    const DeviceWeightsCase w(affine_formats()[3], 5, 256, 1, 1);
    const auto x = random_activations(2 * w.k, 4);
    std::vector<float> right, y;
    dnnl::fake::calls = dnnl::fake::failing_call = 0;
    REQUIRE(whole_life(w, x, &right) == NYBL_OK);
    const size_t calls = dnnl::fake::calls;
    REQUIRE(calls > 30);
    size_t failed = 0;
    for (size_t i = 1; i <= calls; ++i) {
        y.clear();
        dnnl::fake::calls = 0;
        dnnl::fake::failing_call = i;
        const nybl_status status = whole_life(w, x, &y);
        dnnl::fake::failing_call = 0;
        failed += status != NYBL_OK;
        INFO("call " << i << " of " << calls << ": " << nybl_last_error());
        if (status == NYBL_OK)
            CHECK(y == right);
        CHECK(dnnl::fake::live_bytes == 0);
        CHECK(dnnl::fake::primitives == 0);
    }
    CHECK(failed > calls / 2); // some unmap late, where there is nothing to lose
    CHECK(whole_life(w, x, &y) == NYBL_OK);
}

} // namespace nybl::test
