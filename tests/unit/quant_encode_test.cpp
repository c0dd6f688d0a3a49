// The encoders at the edges: tiny, huge and non-finite input, importance, row ranges, floating-point modes,
// and bytes that no compiler may change.
#include "base/half.h"
#include "base/status.h"
#include "cpu/isa.h"
#include "unit/quant_support.h"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace nybl::quant;
using namespace quant_test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kK = 512;

} // namespace

TEST_CASE("C4: the encoders' bytes are the same on every compiler", "[quant]") {
    // One number for all builds: optimised or not, GCC or Clang, whatever the machine.
    CHECK(checksum_of_all() == kEncodersChecksum);
}

TEST_CASE("C4: the encoders' bytes are the same on every instruction set", "[quant]") {
    const nybl_isa isa = nybl::cpu::effective_isa(NYBL_ISA_BEST);
    if (isa == NYBL_ISA_SCALAR)
        SKIP("this machine has no instruction set to compare with the scalar one");
    constexpr size_t k = 1280; // five super-blocks; 40 blocks of 32
    Numbers numbers(14);
    std::vector<float> x = numbers.bells(5 * k), importance(k);
    for (size_t i = 0; i < k; ++i) {
        x[k + i] += 3.0f;
        x[2 * k + i] *= i % 37 == 0 ? 50.0f : 1.0f;
        x[3 * k + i] *= 0x1p-20f;
        x[4 * k + i] = i % 32 == 0 ? 127.0f : static_cast<float>(i * 7 % 253) / 2 - 63.0f; // ties
        importance[i] = numbers.uniform() * numbers.uniform();
    }
    for (const nybl_format id : kAllFormats)
        for (const nybl_level level : kLevels)
            for (const float *weights :
                 {static_cast<const float *>(nullptr), static_cast<const float *>(importance.data())}) {
                INFO(format_of(id).name << " level " << level);
                CHECK(encode(id, level, x, 5, weights, isa) == encode(id, level, x, 5, weights));
            }
}

TEST_CASE("Q8_0's plain encoder rounds halves away from zero", "[quant]") {
    std::vector<float> x(8 * 32);
    std::vector<int8_t> expected;
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = i % 32 == 0 ? 127.0f : static_cast<float>(i) / 2 - 64.0f; // the scale of each block is 1
        expected.push_back(static_cast<int8_t>(x[i] < 0 ? std::ceil(x[i] - 0.5f) : std::floor(x[i] + 0.5f)));
    }
    for (const nybl_isa isa : {NYBL_ISA_SCALAR, nybl::cpu::effective_isa(NYBL_ISA_BEST)}) {
        const std::vector<uint8_t> blocks = encode(NYBL_Q8_0, NYBL_LEVEL_PLAIN, x, 1, nullptr, isa);
        std::vector<int8_t> codes;
        for (size_t b = 0; b < 8; ++b)
            for (size_t i = 0; i < 32; ++i)
                codes.push_back(static_cast<int8_t>(blocks[34 * b + 2 + i]));
        CHECK(codes == expected);
    }
}

TEST_CASE("decoded values are the same bits on every instruction set", "[quant]") {
    const nybl_isa isa = nybl::cpu::effective_isa(NYBL_ISA_BEST);
    if (isa == NYBL_ISA_SCALAR)
        SKIP("this machine has no instruction set to compare with the scalar one");
    Numbers numbers(15);
    for (const nybl_format id : kAllFormats) {
        // Any bytes are blocks; NaN and infinite scales among them.
        std::vector<uint8_t> bytes(2 * row_size(format_of(id), 256));
        for (uint8_t &byte : bytes)
            byte = static_cast<uint8_t>(numbers.bits() >> 24);
        const std::vector<float> expected = decode(id, bytes, 2), values = decode(id, bytes, 2, isa);
        INFO(format_of(id).name);
        size_t different = 0;
        for (size_t i = 0; i < values.size(); ++i)
            different += std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(expected[i]) &&
                         !(std::isnan(values[i]) && std::isnan(expected[i]));
        CHECK(different == 0);
    }
}

TEST_CASE("C4: a product that ties in f32 is not fused", "[quant]") {
    // x * (1/d) + 8.5 is 14 in exact arithmetic but for a hair; the two roundings of f32 give code 13, a
    // fused sum 12.
    std::vector<float> x(32, 0.0f);
    x[0] = 0x1.b1a448p+0f;
    x[1] = -0x1.e7d8cep-1f;
    const std::vector<uint8_t> bytes = encode(NYBL_Q4_0, NYBL_LEVEL_PLAIN, x, 1, nullptr);
    CHECK((bytes[2 + 1] & 15) == 13);
}

TEST_CASE("C2: tiny elements encode to finite blocks", "[quant]") {
    for (const nybl_format id : kAllFormats)
        for (const nybl_level level : kLevels)
            for (const float tiny : {3.7e-37f, -3.7e-37f, 4e-37f, 1e-45f, 1.2e-38f, 1e-30f, 6e-8f, 1e-7f}) {
                INFO(format_of(id).name << " level " << level << " x[0] = " << tiny);
                std::vector<float> x(256, 0.0f), importance(256, 0.5f);
                x[0] = tiny;
                for (const float *weights :
                     {static_cast<const float *>(nullptr), static_cast<const float *>(importance.data())})
                    for (const float value : decode(id, encode(id, level, x, 1, weights), 1))
                        CHECK(std::abs(value) <= 2 * std::abs(tiny)); // false for a NaN
            }
}

TEST_CASE("input that is not finite or does not fit is refused with its place", "[quant]") {
    for (const nybl_format id : kAllFormats)
        for (const nybl_level level : kLevels) {
            const Format &format = format_of(id);
            INFO(format.name << " level " << level);
            const std::string place = "row 1, block " + std::to_string(300 / format.block_size);
            std::vector<float> x = Numbers(5).bells(2 * kK);
            const auto check = [&] { return check_source(format, {0, 2}, kK, {x.data(), 0}); };
            REQUIRE(check() == NYBL_OK);
            for (const float bad : {kInf, -kInf, kNaN}) {
                x[kK + 300] = bad;
                CHECK(check() == NYBL_INVALID_DATA);
                CHECK(nybl::last_error() == place + ": element 300 of the row is not finite");
            }
            x[kK + 300] = -3e38f;
            if (id == NYBL_Q8_K) { // its scale is f32
                CHECK(check() == NYBL_OK);
            } else {
                CHECK(check() == NYBL_INVALID_DATA);
                CHECK(nybl::last_error() ==
                      place + ": its scale or minimum is beyond what f16 holds (" + format.name + ")");
                x[kK + 301] = 3e38f; // their difference is no f32 any more
                CHECK(check() == NYBL_INVALID_DATA);
            }
        }
}

TEST_CASE("the largest elements that fit are encoded", "[quant]") {
    for (const nybl_format id : kAllFormats) {
        const Format &format = format_of(id);
        INFO(format.name);
        // 2^16 is beyond f16 as a minimum of its own, but not as scale times code.
        const bool own_minimum = id == NYBL_Q4_1 || id == NYBL_Q5_1;
        for (const float large : {65504.0f, 65536.0f, 500000.0f})
            for (const nybl_level level : kLevels) {
                std::vector<float> x = Numbers(6).bells(256);
                for (float &value : x)
                    value *= large / 2;
                x[0] = own_minimum ? -65504.0f : -large;
                for (float &value : x)
                    value = std::max(value, x[0]);
                for (const float value : decode(id, encode(id, level, x, 1, nullptr), 1))
                    CHECK(std::abs(value) <= 1.1f * large); // false for a NaN
            }
    }
}

TEST_CASE("importance: none, all zero, some zero, and refused values", "[quant]") {
    std::vector<float> x = Numbers(8).bells(2 * kK), weights(kK, 0.0f);
    const float *effective = weights.data();
    REQUIRE(check_importance(kK, weights.data(), &effective) == NYBL_OK);
    CHECK(effective == nullptr);
    for (const nybl_format id : kWeightFormats)
        for (const nybl_level level : kLevels) {
            INFO(format_of(id).name << " level " << level);
            CHECK(encode(id, level, x, 2, weights.data()) == encode(id, level, x, 2, nullptr));
        }
    // Zeros in a group or in a whole block beside others: still a sensible code for every element.
    std::fill(weights.begin() + 256, weights.end() - 32, 1.0f);
    for (const nybl_format id : kWeightFormats) {
        INFO(format_of(id).name);
        const std::vector<float> values = decode(id, encode(id, NYBL_LEVEL_DEFAULT, x, 2, weights.data()), 2);
        for (size_t i = 0; i < x.size(); ++i)
            CHECK(std::abs(values[i] - x[i]) < 0.5f);
    }
    // The unit of importance does not matter, to the ends of f32.
    const std::vector<uint8_t> reference = encode(NYBL_Q4_K, NYBL_LEVEL_DEFAULT, x, 2, weights.data());
    for (const float unit : {0x1p-126f, 0x1p-20f, 0x1p127f}) {
        std::vector<float> scaled = weights;
        for (float &weight : scaled)
            weight *= unit;
        CHECK(encode(NYBL_Q4_K, NYBL_LEVEL_DEFAULT, x, 2, scaled.data()) == reference);
    }
    for (const float bad : {-1e-30f, kInf, kNaN}) {
        weights[300] = bad;
        CHECK(check_importance(kK, weights.data(), &effective) == NYBL_INVALID_DATA);
        CHECK(std::string(nybl::last_error()) == "importance 300 is negative or not finite");
    }
}

TEST_CASE("rows may be split into ranges and lie apart", "[quant]") {
    const size_t rows = 5;
    std::vector<float> packed = Numbers(9).bells(rows * kK), apart(rows * (kK + 7), kNaN);
    for (size_t r = 0; r < rows; ++r)
        std::copy_n(&packed[r * kK], kK, &apart[r * (kK + 7)]);
    for (const nybl_format id : kAllFormats) {
        const Format &format = format_of(id);
        INFO(format.name);
        const std::vector<uint8_t> whole = encode(id, NYBL_LEVEL_DEFAULT, packed, rows, nullptr);
        const size_t row = whole.size() / rows, stride = row + 5;
        std::vector<uint8_t> out(rows * stride, 0xA5);
        const SourceRows source{apart.data(), (kK + 7) * sizeof(float)};
        for (const RowRange range : {RowRange{3, 5}, RowRange{0, 1}, RowRange{1, 3}}) {
            CHECK(check_source(format, range, kK, source) == NYBL_OK);
            quantize_rows(format, NYBL_ISA_SCALAR, NYBL_LEVEL_DEFAULT, range, kK, source, nullptr,
                          {out.data(), stride});
        }
        for (size_t r = 0; r < rows; ++r) {
            CHECK(std::memcmp(&out[r * stride], &whole[r * row], row) == 0);
            CHECK(std::all_of(&out[r * stride] + row, &out[r * stride] + stride,
                              [](uint8_t b) { return b == 0xA5; }));
        }
        std::vector<float> values(kK);
        dequantize_rows(format, NYBL_ISA_SCALAR, {0, 1}, kK, {&out[2 * stride], stride}, values.data(), 0);
        const std::vector<float> all = decode(id, whole, rows);
        CHECK(std::equal(values.begin(), values.end(), &all[2 * kK]));
    }
}

TEST_CASE("a last block that K does not fill is encoded as if the rest were not there", "[quant]") {
    const size_t k = 256 + 96;
    const std::vector<float> x = Numbers(12).bells(2 * k);
    std::vector<float> importance = Numbers(13).bells(k);
    for (float &weight : importance)
        weight *= weight;
    for (const nybl_format id : {NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K})
        for (const float *weights :
             {static_cast<const float *>(nullptr), static_cast<const float *>(importance.data())}) {
            const Format &format = format_of(id);
            INFO(format.name);
            size_t bytes = 0;
            REQUIRE(row_bytes(format, k, &bytes) == NYBL_INVALID_ARGUMENT);
            REQUIRE(padded_row_bytes(format, k, &bytes) == NYBL_OK);
            REQUIRE(bytes == 2 * format.block_bytes);
            REQUIRE(check_source(format, {0, 2}, k, {x.data(), 0}) == NYBL_OK);
            std::vector<uint8_t> out(2 * bytes + 1, 0xA5);
            quantize_rows(format, NYBL_ISA_SCALAR, NYBL_LEVEL_DEFAULT, {0, 2}, k, {x.data(), 0}, weights,
                          {out.data(), 0});
            CHECK(out.back() == 0xA5);
            out.pop_back();
            const std::vector<float> values = decode(id, out, 2);
            for (size_t row = 0; row < 2; ++row)
                for (size_t i = 0; i < 512; ++i)
                    CHECK(std::abs(values[row * 512 + i] - (i < k ? x[row * k + i] : 0.0f)) <=
                          (i < k ? 0.3f : 0.0f));
        }
    size_t bytes = 0;
    CHECK(padded_row_bytes(format_of(NYBL_Q4_K), 272, &bytes) == NYBL_INVALID_ARGUMENT);
    CHECK(std::string(nybl::last_error()).find("multiple of 32") != std::string::npos);
}

#if defined(__x86_64__)
TEST_CASE("the caller's floating-point modes change nothing and are left alone", "[quant]") {
    const std::vector<float> x = Numbers(10).bells(2 * kK);
    std::vector<float> small = x;
    for (float &value : small)
        value *= 0x1p-20f; // scales that are subnormal f16, products that flushing would lose
    for (const nybl_format id : kAllFormats) {
        INFO(format_of(id).name);
        const std::vector<uint8_t> expected = encode(id, NYBL_LEVEL_DEFAULT, small, 2, nullptr);
        const std::vector<float> values = decode(id, expected, 2);
        const unsigned saved = _mm_getcsr(), odd = 0x1F80 | 0x8040 | 0x4000; // flush both ways, round up
        _mm_setcsr(odd);
        const std::vector<uint8_t> bytes = encode(id, NYBL_LEVEL_DEFAULT, small, 2, nullptr);
        const std::vector<float> again = decode(id, bytes, 2);
        const unsigned left = _mm_getcsr();
        _mm_setcsr(saved);
        CHECK((left & ~0x3Fu) == odd);
        CHECK(bytes == expected);
        CHECK(again == values);
    }
}
#endif

TEST_CASE("row-wise IQ4_NL errs at most one per cent more than IQ4_NL", "[quant]") {
    constexpr size_t kRows = 8, kK = 1024;
    Numbers numbers(21);
    std::vector<float> x = numbers.bells(kRows * kK), importance(kK);
    for (size_t i = 0; i < x.size() / 2; ++i) // half of the rows with blocks of unlike sizes
        x[i] *= 0.25f + static_cast<float>(i / 32 % 7);
    for (float &weight : importance)
        weight = numbers.uniform() * numbers.uniform();
    const auto error = [&](nybl_format id, const float *given) {
        const std::vector<float> back = decode(id, encode(id, NYBL_LEVEL_DEFAULT, x, kRows, given), kRows);
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            const double off = static_cast<double>(back[i]) - static_cast<double>(x[i]);
            sum += off * off * (given ? static_cast<double>(given[i % kK]) : 1.0);
        }
        return std::sqrt(sum);
    };
    for (const bool weighted : {false, true}) {
        const float *given = weighted ? importance.data() : nullptr;
        const double ratio = error(NYBL_IQ4_NL_ROW, given) / error(NYBL_IQ4_NL, given);
        CAPTURE(weighted);
        CHECK(ratio <= 1.01);
    }
}
