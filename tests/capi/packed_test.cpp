// Weights: packing and back, packed bytes kept and mapped again, validation, quantizing straight into panels.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

using namespace capi_test;

namespace {

// Rows of blocks at a stride, filler between them.
std::vector<uint8_t> spread(const std::vector<uint8_t> &rows, size_t row_bytes, size_t stride) {
    const size_t n = rows.size() / row_bytes;
    std::vector<uint8_t> out(n ? (n - 1) * stride + row_bytes : 0, 0xcd);
    for (size_t i = 0; i < n; ++i)
        std::memcpy(&out[i * stride], &rows[i * row_bytes], row_bytes);
    return out;
}

} // namespace

TEST_CASE("C18: unpack gives the original bytes for n in 1..17, from either storage, experts and strides "
          "included") {
    const nybl::Context ctx = make_context(3);
    for (const nybl_format format : kFormats)
        for (const size_t experts : {1, 3})
            for (size_t n = 1; n <= 17; ++n) {
                const size_t k = 512, bytes = nybl::row_bytes(format, k);
                INFO(format_name(format) << ", n = " << n << ", experts " << experts);
                const auto blocks = random_blocks(format, n * experts, k, uint32_t(n));
                const auto source = spread(blocks, bytes, bytes + 5);
                for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                    auto desc = describe(format, n, k, source.data(), experts, storage);
                    desc.row_stride = bytes + 5;
                    desc.data_size = source.size();
                    const nybl::Weights w(ctx, desc);
                    std::vector<uint8_t> back(blocks.size(), 0xee);
                    nybl::check(nybl_weights_unpack(w.get(), back.data(), 0));
                    CHECK(back == blocks);
                    std::vector<uint8_t> wide(source.size(), 0xcd);
                    nybl::check(nybl_weights_unpack(w.get(), wide.data(), bytes + 5));
                    CHECK(wide == source);
                }
            }
}

TEST_CASE("C18: a large product in between changes nothing") {
    const size_t n = 40, k = 256;
    const nybl::Context ctx = make_context(2);
    const auto blocks = random_blocks(NYBL_Q5_K, n, k, 1);
    const nybl::Weights w(ctx, describe(NYBL_Q5_K, n, k, blocks.data()));
    const auto x = random_floats(64 * k, 2);
    std::vector<float> first(n), third(n), between(64 * n);
    w.matmul(1, x.data(), first.data());
    w.matmul(64, x.data(), between.data());
    w.matmul(1, x.data(), third.data());
    CHECK(bits(first) == bits(third));
    between.resize(n);
    CHECK(bits(between) == bits(first));
}

TEST_CASE("packed bytes may be kept and used again where they are; another layout or size is refused") {
    const size_t n = 21, k = 256, experts = 2;
    const nybl::Context ctx = make_context(), scalar = make_context(1, NYBL_ISA_SCALAR);
    for (const nybl_format format : kFormats) {
        INFO(format_name(format));
        const auto blocks = random_blocks(format, n * experts, k, 3);
        const nybl::Weights w(ctx, describe(format, n, k, blocks.data(), experts));
        const void *packed = nullptr;
        size_t bytes = 0;
        uint64_t id = 0;
        nybl::check(nybl_weights_packed(w.get(), &packed, &bytes, &id));
        const auto file = std::unique_ptr<uint8_t, void (*)(void *)>(
            static_cast<uint8_t *>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free);
        std::memcpy(file.get(), packed, bytes);
        auto desc = describe(format, n, k, nullptr, experts);
        desc.validate = 1;
        nybl_weights *made = nullptr;
        nybl::check(nybl_weights_from_packed(scalar.get(), &desc, file.get(), bytes, id, &made));
        {
            const nybl::Weights mapped(made);
            std::vector<uint8_t> back(blocks.size());
            nybl::check(nybl_weights_unpack(mapped.get(), back.data(), 0));
            CHECK(back == blocks);
        }
        made = nullptr;
        CHECK(nybl_weights_from_packed(ctx.get(), &desc, file.get(), bytes, id + 1, &made) ==
              NYBL_INVALID_ARGUMENT);
        CHECK(last_error_has("layout_id"));
        CHECK(nybl_weights_from_packed(ctx.get(), &desc, file.get(), bytes - 1, id, &made) ==
              NYBL_INVALID_ARGUMENT);
        CHECK(nybl_weights_from_packed(ctx.get(), &desc, file.get() + 32, bytes, id, &made) ==
              NYBL_INVALID_ARGUMENT);
        CHECK(last_error_has("aligned"));
        // A bad scale in row 17 of expert 1 (the second panel's row 1: f16 d of all rows come first, f32
        // factors behind the groups of 16 integers and 256 bytes of codes).
        uint8_t *panel = file.get() + bytes / 4 * 3;
        if (format == NYBL_IQ4_NL_ROW) {
            const float bad = std::numeric_limits<float>::infinity();
            std::memcpy(panel + k / 32 * 272 + sizeof bad, &bad, sizeof bad);
        } else {
            panel[2] = 0x00;
            panel[3] = 0x7c;
        }
        CHECK(nybl_weights_from_packed(ctx.get(), &desc, file.get(), bytes, id, &made) == NYBL_INVALID_DATA);
        CHECK(last_error_has("expert 1, row 17, block 0"));
        CHECK(made == nullptr);
    }
    const auto blocks = random_blocks(NYBL_Q4_0, n, k, 3);
    const nybl::Weights original(ctx, describe(NYBL_Q4_0, n, k, blocks.data(), 1, NYBL_STORAGE_ORIGINAL));
    const void *packed = nullptr;
    size_t bytes = 0;
    uint64_t id = 0;
    CHECK(nybl_weights_packed(original.get(), &packed, &bytes, &id) == NYBL_INVALID_ARGUMENT);
}

TEST_CASE("validate names expert, row and block of the first bad block, whatever the threads") {
    const size_t n = 37, k = 1024, experts = 3;
    for (const nybl_format format : kFormats) {
        auto blocks = random_blocks(format, n * experts, k, 4);
        auto info = nybl::make<nybl_format_info>();
        nybl::check(nybl_format_get_info(format, &info));
        if (info.row_extra_bytes)
            continue; // its blocks have no f16 field
        const size_t bytes = nybl::row_bytes(format, k);
        const auto spoil = [&](size_t row, size_t block) {
            uint8_t *scale = &blocks[row * bytes + block * info.block_bytes + scale_offset(format)];
            scale[0] = 0x01;
            scale[1] = 0xfe; // NaN
        };
        spoil(2 * n + 30, 0);
        spoil(n + 20, 3);
        spoil(n + 20, 1);
        for (const uint32_t threads : {1u, 4u}) {
            const nybl::Context ctx = make_context(threads);
            for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                auto desc = describe(format, n, k, blocks.data(), experts, storage);
                desc.validate = 1;
                nybl_weights *made = nullptr;
                CHECK(nybl_weights_create(ctx.get(), &desc, &made) == NYBL_INVALID_DATA);
                CHECK(made == nullptr);
                INFO(nybl_last_error());
                CHECK(last_error_has("expert 1, row 20, block 1"));
                CHECK(last_error_has(info.name));
            }
        }
    }
}

TEST_CASE("quantizing straight into panels gives the weights of quantizing first, reports progress, and can "
          "be stopped") {
    const size_t n = 45, k = 512, experts = 2, rows = n * experts;
    const auto source = random_floats(rows * k, 5);
    auto importance = random_floats(k, 6);
    for (float &value : importance)
        value = value * value;
    struct Progress {
        uint64_t last = 0, calls = 0, stop_at = UINT64_MAX;
        bool ordered = true;
    };
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q4_K})
        for (const uint32_t threads : {1u, 3u}) {
            const nybl::Context ctx = make_context(threads);
            Progress progress;
            auto options = nybl::make<nybl_codec_options>();
            options.user = &progress;
            options.progress = [](void *user, uint64_t done, uint64_t all) {
                auto &seen = *static_cast<Progress *>(user);
                seen.ordered = seen.ordered && done > seen.last && done <= all;
                seen.last = done;
                return int(++seen.calls >= seen.stop_at);
            };
            const auto desc = describe(format, n, k, nullptr, experts);
            nybl_weights *made = nullptr;
            nybl::check(nybl_weights_quantize(ctx.get(), &desc, source.data(), 0, importance.data(), &options,
                                              &made));
            const nybl::Weights w(made);
            CHECK(progress.ordered);
            CHECK(progress.last == rows);
            std::vector<uint8_t> back(rows * nybl::row_bytes(format, k));
            nybl::check(nybl_weights_unpack(w.get(), back.data(), 0));
            CHECK(back == nybl::quantize(format, rows, k, source.data(), importance.data()));

            const size_t before = ctx.memory().host_bytes;
            progress = {};
            progress.stop_at = 1;
            made = nullptr;
            CHECK(nybl_weights_quantize(ctx.get(), &desc, source.data(), 0, nullptr, &options, &made) ==
                  NYBL_CANCELLED);
            CHECK(made == nullptr);
            CHECK(ctx.memory().host_bytes == before);
        }
    const nybl::Context ctx = make_context();
    nybl_weights *made = nullptr;
    auto bad = source;
    bad[3 * 512 + 40] = 1.0f / 0.0f;
    auto desc = describe(NYBL_Q4_0, n, k, nullptr);
    CHECK(nybl_weights_quantize(ctx.get(), &desc, bad.data(), 0, nullptr, nullptr, &made) ==
          NYBL_INVALID_DATA);
    CHECK(last_error_has("row 3, block 1"));
    desc.storage = NYBL_STORAGE_ORIGINAL;
    CHECK(nybl_weights_quantize(ctx.get(), &desc, source.data(), 0, nullptr, nullptr, &made) ==
          NYBL_INVALID_ARGUMENT);
    CHECK(made == nullptr);
}
