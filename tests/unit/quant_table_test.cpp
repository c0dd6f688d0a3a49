// The table of formats: its rows agree with each other and with what a look-up answers.
#include "base/status.h"
#include "unit/quant_support.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>

using namespace nybl::quant;
using namespace quant_test;

TEST_CASE("every format of the table is consistent", "[quant]") {
    for (const nybl_format id : kAllFormats) {
        const Format *format = find_format(id);
        REQUIRE(format != nullptr);
        INFO(format->name);
        CHECK(format->id == id);
        CHECK(format->block_size % kGroup == 0);
        CHECK((format->decode_groups != nullptr) == format->is_weight);
        const Format *partner = find_format(format->vec_dot_type);
        REQUIRE(partner != nullptr);
        CHECK(partner->block_size == format->block_size);
    }
}

TEST_CASE("unknown and plain types are refused in words", "[quant]") {
    const Format *format = nullptr;
    CHECK(get_format(static_cast<nybl_format>(99), &format) == NYBL_INVALID_ARGUMENT);
    CHECK(std::strstr(nybl::last_error(), "99") != nullptr);
    CHECK(get_format(NYBL_F16, &format) == NYBL_UNSUPPORTED);
    CHECK(std::strstr(nybl::last_error(), "F16") != nullptr);
    CHECK(format == nullptr);
}

TEST_CASE("a row that is no whole number of blocks names the multiple", "[quant]") {
    size_t bytes = 77;
    CHECK(row_bytes(format_of(NYBL_Q5_1), 33, &bytes) == NYBL_INVALID_ARGUMENT);
    CHECK(std::string(nybl::last_error()).find("multiple of 32") != std::string::npos);
    CHECK(row_bytes(format_of(NYBL_Q6_K), 288, &bytes) == NYBL_INVALID_ARGUMENT);
    CHECK(std::string(nybl::last_error()).find("multiple of 256") != std::string::npos);
    CHECK(row_bytes(format_of(NYBL_Q8_K), UINT64_MAX - 255, &bytes) == NYBL_INVALID_ARGUMENT);
    CHECK(bytes == 77);
    CHECK(row_bytes(format_of(NYBL_Q4_K), 0, &bytes) == NYBL_OK);
    CHECK(bytes == 0);
    CHECK(row_bytes(format_of(NYBL_Q4_K), 512, &bytes) == NYBL_OK);
    CHECK(bytes == 288);
}

TEST_CASE("the group view and the dequantised values are the same numbers", "[quant]") {
    Numbers numbers(11);
    for (const nybl_format id : kWeightFormats) {
        const Format &format = format_of(id);
        INFO(format.name);
        const std::vector<uint8_t> bytes = encode(id, NYBL_LEVEL_DEFAULT, numbers.bells(4 * 256), 1, nullptr);
        const std::vector<float> values = decode(id, bytes, 1);
        float factor = 1;
        if (format.row_factor_bytes)
            std::memcpy(&factor, &bytes[bytes.size() - sizeof factor], sizeof factor);
        for (size_t b = 0; b < values.size() / format.block_size; ++b) {
            WeightGroup groups[8];
            format.decode_groups(&bytes[b * format.block_bytes], groups);
            for (size_t i = 0; i < format.block_size; ++i) {
                const WeightGroup &g = groups[i / kGroup];
                CHECK(factor * (g.scale * static_cast<float>(g.code[i % kGroup]) + g.min) ==
                      values[b * format.block_size + i]);
            }
        }
    }
}
