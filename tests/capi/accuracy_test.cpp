// How far products are from f64 arithmetic on exactly dequantised weights and unquantised activations.
// Comparisons with exact arithmetic have a tolerance; comparisons between kernels never do.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <random>

#include "reference/oracle.h"
#include "support.h"

namespace {

using namespace capi_test;

constexpr size_t kN = 48, kK = 1024;

enum class Data { Gaussian, Shifted, HeavyTailed, OutlierChannels };
constexpr const char *kNames[] = {"Gaussian", "mean-shifted", "Student t, 4 degrees", "outlier channels"};

std::vector<float> activations(Data data, size_t m) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::student_t_distribution<float> student(4.0f);
    std::vector<float> x(m * kK);
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = data == Data::HeavyTailed ? student(random) : normal(random);
        if (data == Data::Shifted)
            x[i] += 3.0f;
        if (data == Data::OutlierChannels && i % kK % 97 == 5)
            x[i] *= 50.0f;
    }
    return x;
}

std::vector<uint8_t> gaussian_weights(nybl_format format) {
    const std::vector<float> w = random_floats(kN * kK, 12);
    std::vector<uint8_t> blocks(kN * oracle::row_bytes(format, kK));
    REQUIRE(nybl_quantize(format, kN, kK, w.data(), 0, nullptr, blocks.data(), 0) == NYBL_OK);
    return blocks;
}

double error_of(nybl_format format, Data data, size_t m) {
    const nybl::Context ctx = make_context();
    const std::vector<uint8_t> w = gaussian_weights(format);
    const nybl::Weights weights(ctx, describe(format, kN, kK, w.data()));
    const std::vector<float> x = activations(data, m);
    std::vector<float> y(m * kN);
    weights.matmul(f32_args(m, x.data(), y.data()));
    return oracle::nmse(y.data(), oracle::matmul(format, w.data(), 0, kN, kK, x.data(), m));
}

TEST_CASE("error against exact arithmetic, every format and kind of data") {
    for (const nybl_format format : kFormats)
        for (const Data data : {Data::Gaussian, Data::Shifted, Data::HeavyTailed, Data::OutlierChannels}) {
            const double nmse = error_of(format, data, 8);
            std::printf("%-6s %-20s NMSE %.2e\n", format_name(format).c_str(), kNames[size_t(data)], nmse);
            INFO(format_name(format) << " " << kNames[size_t(data)]);
            // One scale per 32 activations: a uniform step of max/127, whose share grows with the tail of the
            // data.
            CHECK(nmse < (data == Data::OutlierChannels ? 2e-4 : data == Data::HeavyTailed ? 8e-5 : 4e-5));
        }
}

TEST_CASE("Q4_1 is as exact as published, for one token and for many, by the same bits") {
    // The published relative RMS errors are 5.29e-3 at one token and 5.35e-3 to 5.39e-3 at 64.
    for (const size_t m : {1, 64}) {
        const double rms = std::sqrt(error_of(NYBL_Q4_1, Data::Gaussian, m));
        std::printf("Q4_1, M = %zu: relative RMS error %.3e\n", m, rms);
        CHECK(rms > 4.5e-3);
        CHECK(rms < 5.8e-3);
    }
}

} // namespace
