// Empty problems: nothing to do is fine, no terms give zeros or the bias, types are checked all the same.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace capi_test;

TEST_CASE("m = 0, n = 0 and k = 0 in every product") {
    const nybl::Context ctx = make_context(3);
    for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
        const auto blocks = random_blocks(NYBL_Q4_1, 40, 64, 1);
        const nybl::Weights full(ctx, describe(NYBL_Q4_1, 40, 64, blocks.data(), 1, storage));
        const nybl::Weights no_rows(ctx, describe(NYBL_Q4_1, 0, 64, nullptr, 1, storage));
        const nybl::Weights no_terms(ctx, describe(NYBL_Q4_1, 40, 0, nullptr, 1, storage));
        const auto x = random_floats(3 * 64, 2);
        const auto bias = random_floats(40, 3);
        CHECK_NOTHROW(full.matmul(0, nullptr, nullptr));
        CHECK_NOTHROW(no_rows.matmul(3, nullptr, nullptr));
        CHECK_NOTHROW(no_rows.matmul(3, x.data(), nullptr));

        std::vector<float> y = unwritten(3 * 40), wanted(3 * 40, 0.0f);
        no_terms.matmul(3, nullptr, y.data());
        CHECK(bits(y) == bits(wanted));
        auto args = f32_args(3, nullptr, y.data());
        args.bias = bias.data();
        for (size_t i = 0; i < 3; ++i)
            std::copy(bias.begin(), bias.end(), wanted.begin() + std::ptrdiff_t(40 * i));
        no_terms.matmul(args);
        CHECK(bits(y) == bits(wanted));
        // In a region, without barriers or scratch.
        forget(y);
        size_t bytes = 1;
        CHECK(nybl_matmul_scratch_bytes(no_terms.get(), &args, 4, &bytes) == NYBL_OK);
        CHECK(bytes == 0);
        for (uint32_t i = 0; i < 4; ++i)
            CHECK(nybl_matmul_part(
                      no_terms.get(), &args, i, 4, nullptr, 0, [](void *) { FAIL("the barrier was called"); },
                      nullptr) == NYBL_OK);
        CHECK(bits(y) == bits(wanted));

        args = f32_args(0, nullptr, nullptr);
        args.x_type = NYBL_Q4_0;
        CHECK(nybl_matmul(full.get(), &args) == NYBL_INVALID_ARGUMENT);
        args.x_type = NYBL_F32;
        args.x_stride = 4 * 64 - 4;
        CHECK(nybl_matmul(full.get(), &args) == NYBL_INVALID_ARGUMENT);
    }
}

TEST_CASE("no tokens, no slots, no rows and no terms of experts") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, 2 * 8, 64, 1);
    const nybl::Weights full(ctx, describe(NYBL_Q4_0, 8, 64, blocks.data(), 2));
    const nybl::Weights no_rows(ctx, describe(NYBL_Q4_0, 0, 64, nullptr, 2));
    const nybl::Weights no_terms(ctx, describe(NYBL_Q4_0, 8, 0, nullptr, 2));
    const std::vector<int32_t> ids{0, 1, -1, 1};
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_slots = 2;
    CHECK(nybl_matmul_id(full.get(), &args) == NYBL_OK);
    args.n_tokens = 2;
    args.n_slots = 0;
    CHECK(nybl_matmul_id(full.get(), &args) == NYBL_OK);
    args.n_slots = 2;
    args.ids = ids.data();
    CHECK(nybl_matmul_id(no_rows.get(), &args) == NYBL_OK);
    std::vector<float> y = unwritten(4 * 8);
    args.y = y.data();
    CHECK(nybl_matmul_id(no_terms.get(), &args) == NYBL_OK);
    CHECK(bits(y) == std::vector<uint32_t>(4 * 8, 0));
    // Nothing but slots without an expert.
    const std::vector<int32_t> none(4, -1);
    const auto x = random_floats(2 * 64, 2);
    forget(y);
    args.ids = none.data();
    args.x = x.data();
    CHECK(nybl_matmul_id(full.get(), &args) == NYBL_OK);
    CHECK(bits(y) == std::vector<uint32_t>(4 * 8, 0));
}

TEST_CASE("empty codecs and weights") {
    const nybl::Context ctx = make_context();
    CHECK(nybl_quantize(NYBL_Q4_0, 0, 32, nullptr, 0, nullptr, nullptr, 0) == NYBL_OK);
    CHECK(nybl_quantize(NYBL_Q4_0, 3, 0, nullptr, 0, nullptr, nullptr, 0) == NYBL_OK);
    CHECK(nybl_dequantize(NYBL_Q4_0, 0, 32, nullptr, 0, nullptr, 0) == NYBL_OK);
    CHECK(nybl_dequantize(NYBL_Q4_0, 3, 0, nullptr, 0, nullptr, 0) == NYBL_OK);
    CHECK(nybl_validate(NYBL_Q4_0, 0, 32, nullptr, 0, 0) == NYBL_OK);
    CHECK(nybl_validate(NYBL_Q4_0, 3, 0, nullptr, 0, 0) == NYBL_OK);
    CHECK(nybl_quantize(static_cast<nybl_format>(5), 0, 32, nullptr, 0, nullptr, nullptr, 0) ==
          NYBL_INVALID_ARGUMENT);
    for (const auto &[n, k] : {std::pair<size_t, size_t>{0, 256}, {8, 0}}) {
        auto desc = describe(NYBL_Q4_K, n, k, nullptr);
        desc.validate = 1;
        const nybl::Weights w(ctx, desc);
        CHECK(nybl_weights_unpack(w.get(), nullptr, 0) == NYBL_OK);
        const void *packed = &desc;
        size_t bytes = 1;
        uint64_t id = 0;
        CHECK(nybl_weights_packed(w.get(), &packed, &bytes, &id) == NYBL_OK);
        CHECK(bytes == 0);
        nybl_weights *made = nullptr;
        REQUIRE(nybl_weights_from_packed(ctx.get(), &desc, nullptr, 0, id, &made) == NYBL_OK);
        nybl_weights_destroy(made);
        REQUIRE(nybl_weights_quantize(ctx.get(), &desc, nullptr, 0, nullptr, nullptr, &made) == NYBL_OK);
        nybl_weights_destroy(made);
    }
}

// Every combination of nothing and something, of format, storage, arithmetic, element types and bias.
TEST_CASE("limits: m, n and k of 0 in every combination touch nothing or write the bias") {
    constexpr size_t kM = 3, kN = 18, kK = 256;
    const nybl::Context ctx = make_context(2);
    const auto x = random_floats(kM * kK, 4), bias = random_floats(kN, 5);
    const std::vector<uint8_t> untouched(4 * kM * kN, 0xAB);
    for (const nybl_format format : kFormats) {
        const auto blocks = random_blocks(format, kN, kK, 6);
        for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL})
            for (unsigned some = 0; some < 8; ++some) {
                const size_t m = some & 1 ? kM : 0, n = some & 2 ? kN : 0, k = some & 4 ? kK : 0;
                const bool empty = n == 0 || k == 0;
                const auto desc = describe(format, n, k, empty ? nullptr : blocks.data(), 1, storage);
                nybl_weights *made = nullptr;
                const nybl_status created = nybl_weights_create(ctx.get(), &desc, &made);
                if (created == NYBL_UNSUPPORTED && storage == NYBL_STORAGE_PACKED)
                    continue; // a format without a packed layout
                REQUIRE(created == NYBL_OK);
                const nybl::Weights w(made);
                for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32})
                    for (const nybl_format type : {NYBL_F32, NYBL_F16, NYBL_BF16})
                        for (const bool biased : {false, true}) {
                            INFO(format_name(format) << " storage " << storage << " m " << m << " n " << n
                                                     << " k " << k << " type " << type);
                            std::vector<uint8_t> y = untouched;
                            auto args = f32_args(m, m && !empty ? x.data() : nullptr, nullptr);
                            args.y = m && n ? y.data() : nullptr;
                            args.y_type = type;
                            args.compute = compute;
                            args.bias = biased ? bias.data() : nullptr;
                            CHECK(nybl_matmul(w.get(), &args) == NYBL_OK);
                            const size_t written = m * n * (type == NYBL_F32 ? 4 : 2);
                            CHECK(
                                std::equal(y.begin() + std::ptrdiff_t(written), y.end(), untouched.begin()));
                            if (k == 0 && !biased)
                                CHECK(std::all_of(y.begin(), y.begin() + std::ptrdiff_t(written),
                                                  [](uint8_t byte) { return byte == 0; }));
                            if (k == 0 && biased && type == NYBL_F32)
                                for (size_t i = 0; i < m && n; ++i)
                                    CHECK(std::memcmp(&y[4 * i * n], bias.data(), 4 * n) == 0);
                        }
            }
    }
}

TEST_CASE("limits: rows, tokens and weights without elements take no time, however many they are") {
    constexpr uint64_t kMany = UINT64_MAX / 128;
    const nybl::Context ctx = make_context(2);
    CHECK(nybl_quantize(NYBL_Q4_0, kMany, 0, nullptr, 0, nullptr, nullptr, 0) == NYBL_OK);
    CHECK(nybl_dequantize(NYBL_Q4_0, kMany, 0, nullptr, 0, nullptr, 0) == NYBL_OK);
    CHECK(nybl_validate(NYBL_Q4_0, kMany, 0, nullptr, 0, 0) == NYBL_OK);
    for (nybl_context *threads : {static_cast<nybl_context *>(nullptr), ctx.get()}) {
        auto affine = nybl::make<nybl_affine_desc>();
        affine.ctx = threads;
        affine.max_rounding_error = 1;
        CHECK(nybl_affine_export(NYBL_Q4_1, kMany, 0, nullptr, 0, &affine) == NYBL_OK);
        CHECK(affine.max_rounding_error == 0);
    }
    auto desc = describe(NYBL_Q4_0, kMany, 0, nullptr);
    desc.validate = 1;
    const nybl::Weights w(ctx, desc);
    nybl_weights *made = nullptr;
    CHECK(nybl_weights_quantize(ctx.get(), &desc, nullptr, 0, nullptr, nullptr, &made) == NYBL_OK);
    nybl_weights_destroy(made);
    auto args = f32_args(0, nullptr, nullptr);
    CHECK(nybl_matmul(w.get(), &args) == NYBL_OK);
    const nybl::Weights experts(ctx, describe(NYBL_Q4_0, 1, 0, nullptr, 2));
    auto id_args = nybl::make<nybl_matmul_id_args>();
    id_args.n_tokens = kMany;
    CHECK(nybl_matmul_id(experts.get(), &id_args) == NYBL_OK);
}
