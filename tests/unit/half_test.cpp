// Half-precision conversions: every f16, and every rounding boundary between two of them, against exact
// arithmetic.
#include "base/half.h"
#include "reference/oracle.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

using namespace nybl;

TEST_CASE("every f16 becomes the f32 of the same value", "[half]") {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const double exact = oracle::half_to_double(half);
        const float value = f16_to_f32(half);
        if (std::isnan(exact) ? !std::isnan(value)
                              : std::bit_cast<uint64_t>(double(value)) != std::bit_cast<uint64_t>(exact))
            FAIL_CHECK("f16 " << bits << " gave " << value << " for " << exact);
        if (f16_is_finite(half) != std::isfinite(exact))
            FAIL_CHECK("f16_is_finite is wrong for " << bits);
    }
}

TEST_CASE("f32 to f16 rounds to nearest even at every boundary", "[half]") {
    for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
        const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
        const double a = oracle::half_to_double(low);
        // Beyond the largest f16 the next step would be 65536, were there one.
        const double b = high == 0x7C00 ? 65536.0 : oracle::half_to_double(high);
        const auto middle = static_cast<float>((a + b) / 2); // 12 significant bits: exact
        const uint16_t even = bits % 2 ? high : low;
        const float inf = std::numeric_limits<float>::infinity();
        const bool right = f32_to_f16(static_cast<float>(a)) == low && f32_to_f16(middle) == even &&
                           f32_to_f16(std::nextafter(middle, -inf)) == low &&
                           f32_to_f16(std::nextafter(middle, inf)) == high &&
                           f32_to_f16(-middle) == (even | 0x8000);
        if (!right)
            FAIL_CHECK("between f16 " << low << " and " << high);
    }
    CHECK(f32_to_f16(-0.0f) == 0x8000);
    CHECK(f32_to_f16(std::numeric_limits<float>::denorm_min()) == 0);
    CHECK(f32_to_f16(std::numeric_limits<float>::max()) == 0x7C00);
    CHECK(f32_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00);
    CHECK((f32_to_f16(std::numeric_limits<float>::quiet_NaN()) & 0x7E00) == 0x7E00);
}

TEST_CASE("bf16 is the upper half of an f32, rounded to nearest even", "[half]") {
    for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
        const uint32_t full = bits << 16;
        const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
        const bool right = std::bit_cast<uint32_t>(bf16_to_f32(low)) == full &&
                           f32_to_bf16(std::bit_cast<float>(full)) == low &&
                           f32_to_bf16(std::bit_cast<float>(full + 0x7FFF)) == low &&
                           f32_to_bf16(std::bit_cast<float>(full + 0x8000)) == (bits % 2 ? high : low) &&
                           f32_to_bf16(std::bit_cast<float>(full + 0x8001)) == high;
        if (!right)
            FAIL_CHECK("at bf16 " << bits);
    }
    const uint16_t nan =
        f32_to_bf16(std::bit_cast<float>(0x7F800001u)); // the cut-off payload may not leave an infinity
    CHECK((nan & 0x7FC0) == 0x7FC0);
}
