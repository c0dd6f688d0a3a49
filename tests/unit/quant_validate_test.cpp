// Non-finite scales are found wherever they are, and nothing else is taken for one.
#include "base/half.h"
#include "base/status.h"
#include "unit/quant_support.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>

using namespace nybl::quant;
using namespace quant_test;

namespace {

struct Field {
    nybl_format id;
    size_t offset;
    const char *text;
};
constexpr Field kHalfFields[] = {
    {NYBL_Q4_0, 0, "scale d"},      {NYBL_Q4_1, 0, "scale d"},   {NYBL_Q4_1, 2, "minimum m"},
    {NYBL_Q5_0, 0, "scale d"},      {NYBL_Q5_1, 0, "scale d"},   {NYBL_Q5_1, 2, "minimum m"},
    {NYBL_Q8_0, 0, "scale d"},      {NYBL_Q8_1, 0, "scale d"},   {NYBL_Q4_K, 0, "scale d"},
    {NYBL_Q4_K, 2, "minimum dmin"}, {NYBL_Q5_K, 0, "scale d"},   {NYBL_Q5_K, 2, "minimum dmin"},
    {NYBL_Q6_K, 208, "scale d"},    {NYBL_IQ4_NL, 0, "scale d"},
};
constexpr size_t kRows = 3, kBlocks = 5, kPad = 3; // rows lie kPad bytes apart: strides and odd addresses

struct Tensor {
    const Format &format;
    size_t stride;
    std::vector<uint8_t> bytes;

    explicit Tensor(nybl_format id)
        : format(format_of(id)), stride(kBlocks * format.block_bytes + kPad), bytes(kRows * stride, 0xFF) {
        Numbers numbers(7);
        for (size_t r = 0; r < kRows; ++r) {
            const std::vector<uint8_t> row =
                encode(id, NYBL_LEVEL_PLAIN, numbers.bells(kBlocks * format.block_size), 1, nullptr);
            std::copy(row.begin(), row.end(), &bytes[r * stride]);
        }
    }
    uint8_t *block(size_t row, size_t b) { return &bytes[row * stride + b * format.block_bytes]; }
    nybl_status validate() const {
        return validate_rows(format, {0, kRows}, kBlocks * format.block_size, {bytes.data(), stride});
    }
};

} // namespace

TEST_CASE("C9: a non-finite f16 field is reported with row, block and name", "[quant][validate]") {
    for (const Field &field : kHalfFields) {
        Tensor tensor(field.id);
        INFO(tensor.format.name << " " << field.text);
        REQUIRE(tensor.validate() == NYBL_OK);
        const std::pair<size_t, size_t> places[] = {{0, 0}, {1, 2}, {kRows - 1, kBlocks - 1}};
        for (const auto &[row, b] : places) {
            uint8_t *at = tensor.block(row, b) + field.offset;
            uint16_t saved;
            std::memcpy(&saved, at, 2);
            for (const uint16_t bad : std::initializer_list<uint16_t>{0x7C00, 0xFC00, 0x7E00, 0xFE01}) {
                std::memcpy(at, &bad, 2);
                CHECK(tensor.validate() == NYBL_INVALID_DATA);
                const std::string expected = "row " + std::to_string(row) + ", block " + std::to_string(b) +
                                             ": " + field.text + " is not finite (" + tensor.format.name +
                                             ")";
                CHECK(nybl::last_error() == expected);
            }
            for (const uint16_t legal : std::initializer_list<uint16_t>{0x8000, 0x0001, 0xC000}) {
                std::memcpy(at, &legal, 2);
                CHECK(tensor.validate() == NYBL_OK);
            }
            std::memcpy(at, &saved, 2);
        }
    }
}

TEST_CASE("of two bad blocks the first is reported, and a range looks at its own rows", "[quant][validate]") {
    Tensor tensor(NYBL_Q4_1);
    const uint16_t inf = 0x7C00;
    std::memcpy(tensor.block(2, 0), &inf, 2);
    std::memcpy(tensor.block(1, 3), &inf, 2);
    CHECK(tensor.validate() == NYBL_INVALID_DATA);
    CHECK(std::string(nybl::last_error()).rfind("row 1, block 3", 0) == 0);
    const size_t k = kBlocks * tensor.format.block_size;
    CHECK(validate_rows(tensor.format, {0, 1}, k, {tensor.bytes.data(), tensor.stride}) == NYBL_OK);
    CHECK(validate_rows(tensor.format, {2, 3}, k, {tensor.bytes.data(), tensor.stride}) == NYBL_INVALID_DATA);
    CHECK(std::string(nybl::last_error()).rfind("row 2, block 0", 0) == 0);
}

TEST_CASE("Q8_K's f32 scale is checked, and Q8_1's sum may overflow", "[quant][validate]") {
    Tensor k(NYBL_Q8_K);
    REQUIRE(k.validate() == NYBL_OK);
    for (const uint32_t bad : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7F800001u}) {
        std::memcpy(k.block(1, 1), &bad, 4);
        CHECK(k.validate() == NYBL_INVALID_DATA);
    }
    // The sum of 32 times 2048 is beyond f16. That is legal: who uses it recomputes it.
    const std::vector<uint8_t> bytes =
        encode(NYBL_Q8_1, NYBL_LEVEL_DEFAULT, std::vector<float>(32, 2048.0f), 1, nullptr);
    uint16_t sum;
    std::memcpy(&sum, &bytes[2], 2);
    CHECK(sum == 0x7C00);
    CHECK(validate_rows(format_of(NYBL_Q8_1), {0, 1}, 32, {bytes.data(), 0}) == NYBL_OK);
}

TEST_CASE("C9: a row's factor is bad where its largest product is not finite", "[quant][validate]") {
    const Format &format = format_of(NYBL_IQ4_NL_ROW);
    Numbers numbers(8);
    const size_t k = kBlocks * format.block_size;
    const std::vector<uint8_t> good =
        encode(NYBL_IQ4_NL_ROW, NYBL_LEVEL_DEFAULT, numbers.bells(kRows * k), kRows, nullptr);
    const size_t stride = good.size() / kRows;
    const auto validate = [&](size_t row, float factor) {
        std::vector<uint8_t> bytes = good;
        std::memcpy(&bytes[(row + 1) * stride - sizeof factor], &factor, sizeof factor);
        return validate_rows(format, {0, kRows}, k, {bytes.data(), 0});
    };
    constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                    kLargest = std::numeric_limits<float>::max() / (128 * 127);
    for (size_t row = 0; row < kRows; ++row) {
        for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::max(), -1.001f * kLargest}) {
            CHECK(validate(row, bad) == NYBL_INVALID_DATA);
            CHECK(nybl::last_error() == "row " + std::to_string(row) +
                                            ", block 0: the largest product of the row's factor is not "
                                            "finite (IQ4_NL_ROW)");
        }
        for (const float legal : {0.0f, -0.0f, -1.0f, 0.999f * kLargest, 1e-45f})
            CHECK(validate(row, legal) == NYBL_OK);
    }
}
