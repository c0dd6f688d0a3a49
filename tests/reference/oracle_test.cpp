// The oracle against the library: two decoders written apart agree on every legal byte.
#include "reference/oracle.h"

#include "quant/format.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>

namespace {

constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,   NYBL_Q8_1,
                                    NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_Q8_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW};

} // namespace

TEST_CASE("the oracle's half conversion is exact", "[oracle]") {
    CHECK(oracle::half_to_double(0x3C00) == 1.0);
    CHECK(oracle::half_to_double(0x0001) == std::ldexp(1.0, -24));
    CHECK(oracle::half_to_double(0x03FF) == std::ldexp(1023.0, -24));
    CHECK(oracle::half_to_double(0xFBFF) == -65504.0);
    CHECK(oracle::half_to_double(0x3555) == 1365.0 / 4096);
    CHECK(std::isinf(oracle::half_to_double(0x7C00)));
    CHECK(std::isnan(oracle::half_to_double(0x7C01)));
    CHECK((oracle::half_to_double(0x8000) == 0 && std::signbit(oracle::half_to_double(0x8000))));
}

TEST_CASE("oracle and library decode random blocks alike", "[oracle]") {
    std::mt19937 random(20261130);
    for (const nybl_format id : kFormats) {
        const nybl::quant::Format &format = *nybl::quant::find_format(id);
        INFO(format.name);
        const size_t bytes = nybl::quant::row_size(format, 1);
        REQUIRE(oracle::row_bytes(id, format.block_size) == bytes);
        std::vector<uint8_t> block(bytes);
        std::vector<float> values(format.block_size);
        for (int trial = 0; trial < 500; ++trial) {
            const char *field;
            do {
                for (uint8_t &byte : block)
                    byte = static_cast<uint8_t>(random());
                if (id == NYBL_Q8_K) // its f32 scale may make products overflow: keep it below 2
                    block[3] &= 0x3F;
            } while (format.find_invalid(block.data(), 1, &field) != 1);
            if (format.row_factor_bytes) { // decoders of blocks leave it out
                const float factor = 1;
                std::memcpy(&block[format.block_bytes], &factor, sizeof factor);
            }
            format.dequantize(block.data(), values.data(), 1);
            const std::vector<double> exact = oracle::dequantize(id, block.data(), format.block_size);
            // At most two f32 roundings apart, of terms that may cancel.
            double largest = 0;
            for (size_t i = 0; i < exact.size(); ++i)
                largest = std::max(largest, std::abs(exact[i]));
            for (size_t i = 0; i < exact.size(); ++i)
                if (!(std::abs(values[i] - exact[i]) <= largest * 0x1p-20))
                    FAIL_CHECK("element " << i << ": " << values[i] << ", exactly " << exact[i]);
            if (!format.decode_groups)
                continue;
            nybl::quant::WeightGroup groups[8];
            format.decode_groups(block.data(), groups);
            for (size_t i = 0; i < exact.size(); ++i) {
                const nybl::quant::WeightGroup &g = groups[i / 32];
                const double w = double(g.scale) * g.code[i % 32] + double(g.min);
                if (!(std::abs(w - exact[i]) <= largest * 0x1p-20))
                    FAIL_CHECK("group view of element " << i << ": " << w << ", exactly " << exact[i]);
            }
        }
    }
}

TEST_CASE("the oracle multiplies by hand-made rows", "[oracle]") {
    // Two Q8_0 rows: all ones (scale 1), and codes 0..31 with scale 1/2; a bias on each.
    uint8_t w[68] = {0x00, 0x3C};
    std::fill(w + 2, w + 34, uint8_t{1});
    w[35] = 0x38;
    for (int i = 0; i < 32; ++i)
        w[36 + i] = static_cast<uint8_t>(i);
    float x[64], bias[2] = {0.25f, -1};
    for (int i = 0; i < 64; ++i)
        x[i] = i < 32 ? 1.0f : static_cast<float>(i - 32);
    const std::vector<double> y = oracle::matmul(NYBL_Q8_0, w, 0, 2, 32, x, 2, bias);
    CHECK(y == std::vector<double>{32.25, 247, 496.25, 5207});
    const float off[] = {32.25f, 247, 496.25f, 5208};
    CHECK(oracle::nmse(off, y) ==
          Catch::Approx(1 / (32.25 * 32.25 + 247. * 247 + 496.25 * 496.25 + 5207. * 5207)));
}
