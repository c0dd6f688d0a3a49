// Products through oneDNN in every format, against f64 arithmetic on exact weights; sharing, memory and
// buckets.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/half.h"
#include "gpu/onednn/onednn_case.h"

namespace nybl::test {
namespace {

constexpr size_t kQ4K = 3; // in affine_formats()

std::vector<size_t> rows_to_try(const EngineCase &engine) {
    return engine.small_only ? std::vector<size_t>{1, 3} : std::vector<size_t>{1, 2, 7, 33, 70};
}

} // namespace

TEST_CASE("onednn: products in every format equal exact arithmetic", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        OpenEngine engine(which.settings);
        INFO(which.name << ": " << nybl_last_error());
        REQUIRE(engine.status == NYBL_OK);
        for (const AffineBlockFormat &format : affine_formats())
            for (const size_t n : which.small_only ? std::vector<size_t>{5} : std::vector<size_t>{5, 80}) {
                const size_t k = which.small_only ? format.block : std::max<size_t>(format.block, 96);
                const DeviceWeightsCase w(format, n, k, 1, static_cast<uint32_t>(n));
                const EngineWeights weights(engine, w);
                REQUIRE(weights.status == NYBL_OK);
                for (const size_t m : rows_to_try(which)) {
                    const auto x = random_activations(m * k, 7), bias = random_activations(n, 8);
                    const float *added = m % 2 ? bias.data() : nullptr;
                    std::vector<float> y;
                    const nybl_status status = multiply_in(engine, w, weights, m, x, added, &y);
                    INFO(format.name << " m " << m << " n " << n << " k " << k << ": " << nybl_last_error());
                    REQUIRE(status == NYBL_OK);
                    CHECK(nmse(y, multiply_exactly(w, m, x, added)) < which.nmse);
                }
            }
    }
}

// The rows of rung 4 in docs/gpu.md; asked for by name.
TEST_CASE("onednn: print the table of errors", "[.table]") {
    for (const EngineCase &which : engine_cases()) {
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        const size_t n = which.small_only ? 16 : 256, k = which.small_only ? 256 : 1024;
        for (const AffineBlockFormat &format : affine_formats()) {
            const DeviceWeightsCase w(format, n, k, 1, 1);
            const size_t before = engine.counted.bytes;
            const EngineWeights weights(engine, w);
            REQUIRE(weights.status == NYBL_OK);
            const double bytes =
                static_cast<double>(engine.counted.bytes - before) / static_cast<double>(n * k);
            double worst = 0;
            gpu::OneDnnUse use{};
            for (const size_t m :
                 which.small_only ? std::vector<size_t>{1} : std::vector<size_t>{1, 8, 64, 512}) {
                const auto x = random_activations(m * k, 7);
                std::vector<float> y;
                REQUIRE(multiply_in(engine, w, weights, m, x, nullptr, &y) == NYBL_OK);
                worst = std::max(worst, nmse(y, multiply_exactly(w, m, x, nullptr)));
                REQUIRE(gpu::describe_onednn(*engine.dnn, *weights.get(), m, NYBL_F32, &use) == NYBL_OK);
            }
            std::printf("%-16s %-8s %-24s %-12s %.4f bytes per weight, nmse %.1e\n", which.name, format.name,
                        use.implementation, gpu::mode_name(use.plan.mode), bytes, worst);
        }
    }
}

TEST_CASE("onednn: C1, a group's sum of activations that f16 could not hold", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        const auto one_output = [&](size_t f, const std::vector<uint8_t> &blocks) {
            const DeviceWeightsCase w(affine_formats()[f], affine_formats()[f].block, blocks);
            const EngineWeights weights(engine, w);
            REQUIRE(weights.status == NYBL_OK);
            std::vector<float> y;
            REQUIRE(multiply_in(engine, w, weights, 1, std::vector<float>(w.k, 2048.0f), nullptr, &y) ==
                    NYBL_OK);
            return y[0];
        };
        INFO(which.name);
        std::vector<uint8_t> q4_1(20), q5_1(24), q4_k(144);
        CHECK(one_output(1, q4_1) == 0.0f); // d = m = 0
        q4_1[3] = q5_1[3] = 0x3c;           // m = 1
        CHECK(one_output(1, q4_1) == 65536.0f);
        CHECK(one_output(2, q5_1) == 65536.0f);
        q4_k[3] = 0x3c;                             // dmin = 1, every minimum 1, d = 0
        std::fill_n(&q4_k[8], 4, uint8_t(1));       // minima of groups 0..3
        std::fill_n(&q4_k[12], 4, uint8_t(1 << 4)); // of groups 4..7
        CHECK(one_output(kQ4K, q4_k) == -524288.0f);
    }
}

TEST_CASE("onednn: parameters that f16 cannot hold stay f32", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        if (which.small_only)
            continue;
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        auto blocks = random_blocks(affine_formats()[kQ4K], 3, 512, 3);
        blocks[0] = 0xff, blocks[1] = 0x7b; // d = 65504
        blocks[4] = 63;                     // sc of group 0
        const DeviceWeightsCase overflowing(affine_formats()[kQ4K], 512, blocks);
        blocks[0] = 0x03, blocks[1] = 0x00; // d = 3 * 2^-24: d*sc is exact in f16, being a multiple of 2^-24
        const DeviceWeightsCase tiny(affine_formats()[kQ4K], 512, blocks);
        for (const auto *w : {&overflowing, &tiny}) {
            const EngineWeights weights(engine, *w);
            REQUIRE(weights.status == NYBL_OK);
            const auto x = random_activations(2 * w->k, 5);
            std::vector<float> y;
            REQUIRE(multiply_in(engine, *w, weights, 2, x, nullptr, &y) == NYBL_OK);
            INFO(which.name);
            CHECK(nmse(y, multiply_exactly(*w, 2, x, nullptr)) < which.nmse);
            gpu::OneDnnUse use{};
            REQUIRE(gpu::describe_onednn(*engine.dnn, *weights.get(), 2, NYBL_F32, &use) == NYBL_OK);
            CHECK(use.plan.params == (w == &overflowing ? NYBL_F32 : which.settings.params));
        }
        blocks[3] = 0x7c; // dmin = Inf
        const EngineWeights infinite(engine, DeviceWeightsCase(affine_formats()[kQ4K], 512, blocks));
        CHECK(infinite.status == NYBL_INVALID_DATA);
    }
}

TEST_CASE("onednn: several products on one x, every element type", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        const size_t k = 256, m = which.small_only ? 2 : 9;
        const DeviceWeightsCase a(affine_formats()[kQ4K], 6, k, 1, 1), b(affine_formats()[0], 9, k, 1, 2);
        const EngineWeights wa(engine, a), wb(engine, b);
        const auto values = random_activations(m * k, 3);
        for (const nybl_format type : {NYBL_F32, NYBL_F16, NYBL_BF16}) {
            std::vector<uint16_t> halves;
            std::vector<float> x = values;
            for (float &value : x) {
                halves.push_back(type == NYBL_F16 ? f32_to_f16(value) : f32_to_bf16(value));
                if (type != NYBL_F32)
                    value = type == NYBL_F16 ? f16_to_f32(halves.back()) : bf16_to_f32(halves.back());
            }
            cpu::Job job;
            job.m = m;
            job.k = k;
            job.x = dense_rows(x.data(), k);
            if (type != NYBL_F32)
                job.x = {reinterpret_cast<uint8_t *>(halves.data()), type, 1, 2 * k, 2 * k};
            std::vector<float> ya(m * a.n, NAN), yb(m * b.n, NAN);
            cpu::Product products[2];
            products[0].w = a.matrix(), products[0].y = dense_rows(ya.data(), a.n);
            products[1].w = b.matrix(), products[1].y = dense_rows(yb.data(), b.n);
            const gpu::OneDnnProduct both[] = {{wa.get(), &products[0]}, {wb.get(), &products[1]}};
            const nybl_status status = gpu::run_onednn(*engine.dnn, job, both, 2);
            INFO(which.name << " x_type " << type << ": " << nybl_last_error());
            REQUIRE(status == NYBL_OK);
            CHECK(nmse(ya, multiply_exactly(a, m, x, nullptr)) < which.nmse);
            CHECK(nmse(yb, multiply_exactly(b, m, x, nullptr)) < which.nmse);
        }
    }
}

TEST_CASE("onednn: weights know their panels again, and memory is counted to the byte", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        CHECK(engine.counted.bytes == 0);
        const size_t n = 150, k = 512, param = which.settings.params == NYBL_F32 ? 4 : 2;
        const DeviceWeightsCase w(affine_formats()[kQ4K], n, k, 1, 1);
        {
            cpu::Pool pool(1, nullptr, nullptr);
            const EngineWeights weights(engine, w, &pool);
            REQUIRE(weights.status == NYBL_OK);
            const size_t codes = n * k / 2, params = 2 * n * (k / 32) * param;
            CHECK(engine.counted.bytes == codes + params);
            CHECK(engine.counted.peak_bytes == codes + params); // nothing besides the final copy
            CHECK(gpu::onednn_param_bytes(*weights.get()) == params);
            CHECK(gpu::onednn_holds(*engine.dnn, *weights.get(), w.matrix()));
            DeviceWeightsCase other = w;
            other.panels[other.panels.size() / 2] ^= 1; // one bit, in the middle
            CHECK_FALSE(gpu::onednn_holds(*engine.dnn, *weights.get(), other.matrix()));
            other = w;
            other.panels[1] ^= 1; // a scale of the first row
            CHECK_FALSE(gpu::onednn_holds(*engine.dnn, *weights.get(), other.matrix()));
        }
        CHECK(engine.counted.bytes == 0);
    }
}

TEST_CASE("C18: onednn: primitives are bounded, and one row's result stays the same", "[gpu][onednn]") {
    for (const EngineCase &which : engine_cases()) {
        if (which.small_only)
            continue;
        OpenEngine engine(which.settings);
        REQUIRE(engine.status == NYBL_OK);
        const DeviceWeightsCase w(affine_formats()[kQ4K], 8, 256, 1, 1);
        const EngineWeights weights(engine, w);
        const auto x = random_activations(w.k, 2);
        std::vector<float> first, again, y;
        REQUIRE(multiply_in(engine, w, weights, 1, x, nullptr, &first) == NYBL_OK);
        // More shapes than are kept; then the first one, whose primitive is gone.
        for (size_t n = 1; n <= 70; ++n) {
            const DeviceWeightsCase narrow(affine_formats()[0], n, 32, 1, 3);
            const EngineWeights narrow_weights(engine, narrow);
            const auto narrow_x = random_activations(32, 4);
            REQUIRE(multiply_in(engine, narrow, narrow_weights, 1, narrow_x, nullptr, &y) == NYBL_OK);
            CHECK(nmse(y, multiply_exactly(narrow, 1, narrow_x, nullptr)) < which.nmse);
        }
        // One row, many, one row.
        const auto many = random_activations(64 * w.k, 5);
        REQUIRE(multiply_in(engine, w, weights, 64, many, nullptr, &y) == NYBL_OK);
        CHECK(nmse(y, multiply_exactly(w, 64, many, nullptr)) < which.nmse);
        REQUIRE(multiply_in(engine, w, weights, 1, x, nullptr, &again) == NYBL_OK);
        CHECK(first == again);
    }
}

TEST_CASE("onednn: what does not fit a buffer of the device is refused", "[gpu][onednn]") {
    gpu::OneDnnSettings settings = engine_cases()[0].settings;
    settings.max_buffer_bytes = 300000;
    OpenEngine engine(settings);
    REQUIRE(engine.status == NYBL_OK);
    const EngineWeights large(engine, DeviceWeightsCase(affine_formats()[kQ4K], 1024, 768, 1, 1));
    CHECK(large.status == NYBL_OUT_OF_MEMORY);
    CHECK(engine.counted.bytes == 0);
    const DeviceWeightsCase w(affine_formats()[kQ4K], 16, 256, 1, 1);
    const EngineWeights small(engine, w);
    REQUIRE(small.status == NYBL_OK);
    std::vector<float> y;
    CHECK(multiply_in(engine, w, small, 1024, random_activations(1024 * 256, 1), nullptr, &y) ==
          NYBL_OUT_OF_MEMORY);
    CHECK(std::all_of(y.begin(), y.end(), [](float value) { return std::isnan(value); }));
    const auto x = random_activations(256, 1);
    REQUIRE(multiply_in(engine, w, small, 1, x, nullptr, &y) == NYBL_OK);
    CHECK(nmse(y, multiply_exactly(w, 1, x, nullptr)) < engine_cases()[0].nmse);
    settings.index = 1000;
    CHECK(OpenEngine(settings).status == NYBL_UNSUPPORTED_HARDWARE);
}

} // namespace nybl::test
