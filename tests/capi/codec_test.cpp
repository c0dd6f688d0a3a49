// Codecs through the C API: threads and strides do not change bytes, progress, cancelling, validation (C9).
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include <cstring>

using namespace capi_test;

TEST_CASE("threads and strides change no byte of a codec, and nothing between rows is touched") {
    const size_t rows = 37, k = 512;
    const auto source = random_floats(rows * k, 1);
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_K, NYBL_Q6_K, NYBL_Q8_K}) {
        const auto blocks = nybl::quantize(format, rows, k, source.data());
        const auto values = nybl::dequantize(format, rows, k, blocks.data());
        const size_t row = nybl::row_bytes(format, k), wide_row = row + 9, wide_k = k + 2;
        std::vector<float> wide_source(rows * wide_k, 1e38f), back = unwritten(rows * wide_k), wanted = back;
        std::vector<uint8_t> wide(rows * wide_row, 0xcd), wanted_blocks = wide;
        for (size_t i = 0; i < rows; ++i) {
            std::copy_n(&source[i * k], k, &wide_source[i * wide_k]);
            std::copy_n(&values[i * k], k, &wanted[i * wide_k]);
            std::memcpy(&wanted_blocks[i * wide_row], &blocks[i * row], row);
        }
        const nybl::Context ctx = make_context(3);
        auto options = nybl::make<nybl_codec_options>();
        options.ctx = ctx.get();
        nybl::check(nybl_quantize_with(&options, format, rows, k, wide_source.data(), 4 * wide_k, nullptr,
                                       wide.data(), wide_row));
        CHECK(wide == wanted_blocks);
        nybl::check(
            nybl_dequantize_with(&options, format, rows, k, wide.data(), wide_row, back.data(), 4 * wide_k));
        CHECK(bits(back) == bits(wanted));
        CHECK(nybl_validate(format, rows, k, wide.data(), wide_row, (rows - 1) * wide_row + row) == NYBL_OK);
    }
}

TEST_CASE("a refused source leaves the destination alone, wherever the fault is, on any number of threads") {
    const size_t rows = 64, k = 256;
    for (const size_t bad : {size_t{0}, 31 * k + 100, rows * k - 1}) {
        auto source = random_floats(rows * k, 2);
        source[bad] = bad % 2 ? 1e38f : 0.0f / 0.0f; // a scale beyond f16, or a NaN
        const std::string where = "row " + std::to_string(bad / k) + ",";
        for (const uint32_t threads : {1u, 4u}) {
            const nybl::Context ctx = make_context(threads);
            auto options = nybl::make<nybl_codec_options>();
            options.ctx = ctx.get();
            std::vector<uint8_t> dst(rows * nybl::row_bytes(NYBL_Q4_K, k), 0xab);
            CHECK(nybl_quantize_with(&options, NYBL_Q4_K, rows, k, source.data(), 0, nullptr, dst.data(),
                                     0) == NYBL_INVALID_DATA);
            INFO(nybl_last_error());
            CHECK(last_error_has(where.c_str()));
            CHECK(dst == std::vector<uint8_t>(dst.size(), 0xab));
        }
    }
}

TEST_CASE("progress counts all rows in order and can stop a codec") {
    const size_t rows = 3000, k = 256;
    const auto source = random_floats(rows * k, 3);
    std::vector<uint8_t> dst(rows * nybl::row_bytes(NYBL_Q8_0, k));
    struct Seen {
        uint64_t last = 0, calls = 0, stop_at = UINT64_MAX;
        bool ordered = true;
    } seen;
    const nybl::Context ctx = make_context(2);
    auto options = nybl::make<nybl_codec_options>();
    options.ctx = ctx.get();
    options.user = &seen;
    options.progress = [](void *user, uint64_t done, uint64_t all) {
        auto &self = *static_cast<Seen *>(user);
        self.ordered = self.ordered && done > self.last && done <= all && all == rows;
        self.last = done;
        return int(++self.calls >= self.stop_at);
    };
    CHECK(nybl_quantize_with(&options, NYBL_Q8_0, rows, k, source.data(), 0, nullptr, dst.data(), 0) ==
          NYBL_OK);
    CHECK(seen.ordered);
    CHECK(seen.last == rows);
    CHECK(seen.calls > 1);
    seen = {};
    seen.stop_at = 1;
    std::vector<float> values(rows * k);
    CHECK(nybl_dequantize_with(&options, NYBL_Q8_0, rows, k, dst.data(), 0, values.data(), 0) ==
          NYBL_CANCELLED);
    CHECK(seen.calls == 1);
    options.progress = [](void *, uint64_t, uint64_t) -> int { throw 1; };
    CHECK(nybl_dequantize_with(&options, NYBL_Q8_0, rows, k, dst.data(), 0, values.data(), 0) ==
          NYBL_INTERNAL);
}

TEST_CASE("C9: non-finite scales are found in the first, a middle and the last block; odd but finite ones "
          "are legal") {
    const size_t rows = 5, k = 768;
    for (const nybl_format format : kFormats) {
        auto info = nybl::make<nybl_format_info>();
        nybl::check(nybl_format_get_info(format, &info));
        const size_t row = nybl::row_bytes(format, k), blocks_per_row = k / info.block_size;
        const auto good = random_blocks(format, rows, k, 4);
        if (info.row_extra_bytes)
            continue;                                          // its blocks have no f16 field
        for (size_t field = 0; field <= info.has_min; ++field) // d, then m or dmin
            for (const auto &[r, b] :
                 {std::pair<size_t, size_t>{0, 0}, {2, blocks_per_row / 2}, {4, blocks_per_row - 1}}) {
                auto bytes = good;
                const auto set = [&](uint16_t half) {
                    std::memcpy(&bytes[r * row + b * info.block_bytes + scale_offset(format) + 2 * field],
                                &half, 2);
                };
                for (const int half : {0x7C00, 0xFC00, 0x7E00, 0xFE01}) {
                    set(uint16_t(half));
                    CHECK(nybl_validate(format, rows, k, bytes.data(), 0, bytes.size()) == NYBL_INVALID_DATA);
                    const auto where = "row " + std::to_string(r) + ", block " + std::to_string(b);
                    INFO(nybl_last_error());
                    CHECK(last_error_has(where.c_str()));
                }
                for (const int half : {0x8000, 0x0001, 0xC000}) {
                    set(uint16_t(half));
                    CHECK(nybl_validate(format, rows, k, bytes.data(), 0, bytes.size()) == NYBL_OK);
                }
            }
    }
}
