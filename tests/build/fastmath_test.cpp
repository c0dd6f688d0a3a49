// The codecs as a host's fast-math flags would make them: a compiler that is told no NaN exists must not let
// one through.
#include "base/status.h"
#include "quant/format.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct Field {
    nybl_format format;
    size_t offset; // of an f16 scale or minimum in the block
};

constexpr Field kF16Fields[] = {
    {NYBL_Q4_0, 0}, {NYBL_Q4_1, 0}, {NYBL_Q4_1, 2}, {NYBL_Q5_1, 0},   {NYBL_Q5_1, 2}, {NYBL_Q4_K, 0},
    {NYBL_Q4_K, 2}, {NYBL_Q5_K, 0}, {NYBL_Q5_K, 2}, {NYBL_IQ4_NL, 0}, {NYBL_Q8_0, 0}, {NYBL_Q8_1, 0},
};

// The index that the validator reports for three blocks, of which the last holds `bits` in that field.
size_t first_invalid(const nybl::quant::Format &format, size_t offset, uint16_t bits) {
    constexpr size_t kBlocks = 3;
    std::vector<uint8_t> blocks(kBlocks * format.block_bytes, 0);
    std::memcpy(&blocks[2 * format.block_bytes + offset], &bits, sizeof bits);
    const char *name = nullptr;
    return format.find_invalid(blocks.data(), kBlocks, &name);
}

} // namespace

TEST_CASE("C3: fast-math: non-finite scales are still found") {
    for (const Field &field : kF16Fields) {
        const nybl::quant::Format *format = nybl::quant::find_format(field.format);
        REQUIRE(format != nullptr);
        CAPTURE(format->name, field.offset);
        for (const uint16_t bits : {0x7C00, 0xFC00, 0x7E00, 0xFE01}) {
            CAPTURE(bits);
            CHECK(first_invalid(*format, field.offset, bits) == 2);
        }
        for (const uint16_t bits : {0x8000, 0x0001, 0xC000, 0x7BFF}) {
            CAPTURE(bits);
            CHECK(first_invalid(*format, field.offset, bits) == 3);
        }
    }
}

TEST_CASE("C3: fast-math: a non-finite f32 scale of Q8_K is still found") {
    const nybl::quant::Format *format = nybl::quant::find_format(NYBL_Q8_K);
    REQUIRE(format != nullptr);
    for (const uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u}) {
        CAPTURE(bits);
        std::vector<uint8_t> blocks(2 * format->block_bytes, 0);
        std::memcpy(&blocks[format->block_bytes], &bits, sizeof bits);
        const char *name = nullptr;
        CHECK(format->find_invalid(blocks.data(), 2, &name) == 1);
    }
}
