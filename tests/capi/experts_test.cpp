// Experts against one product per slot: strides, shared and separate activations, missing experts, host
// regions.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include <atomic>
#include <barrier>
#include <thread>

using namespace capi_test;

namespace {

constexpr size_t kExperts = 6, kN = 40, kK = 256, kSlots = 3;

struct Problem {
    size_t tokens;
    bool shared;
    std::vector<uint8_t> blocks;
    std::vector<float> x;
    std::vector<int32_t> ids;

    Problem(nybl_format format, size_t n_tokens, bool shared_x)
        : tokens(n_tokens), shared(shared_x), blocks(random_blocks(format, kExperts * kN, kK, 1)),
          x(random_floats(tokens * (shared ? 1 : kSlots) * kK, 2)) {
        for (size_t i = 0; i < tokens * kSlots; ++i)
            ids.push_back(i % 7 == 5 ? -1
                                     : int32_t(i * i % kExperts)); // the same expert twice in a token, too
    }
    nybl_matmul_id_args args(float *y) const {
        auto out = nybl::make<nybl_matmul_id_args>();
        out.n_tokens = tokens;
        out.n_slots = kSlots;
        out.ids = ids.data();
        out.x = x.data();
        out.x_slot_stride = shared ? 0 : 4 * kK;
        out.y = y;
        return out;
    }
    // Slot by slot, each expert as weights of its own.
    std::vector<float> expected(const nybl::Context &ctx, nybl_format format) const {
        std::vector<float> y(tokens * kSlots * kN, 0.0f);
        const size_t bytes = kN * nybl::row_bytes(format, kK);
        for (size_t i = 0; i < ids.size(); ++i)
            if (ids[i] >= 0) {
                const nybl::Weights w(ctx, describe(format, kN, kK, blocks.data() + size_t(ids[i]) * bytes));
                w.matmul(1, x.data() + (shared ? i / kSlots : i) * kK, y.data() + i * kN);
            }
        return y;
    }
};

} // namespace

TEST_CASE("experts give the bits of one product per slot, in both storages, on any number of threads") {
    for (const nybl_format format : {NYBL_Q4_1, NYBL_Q4_K, NYBL_IQ4_NL})
        for (const bool shared : {true, false})
            for (const size_t tokens : {1, 5, 60}) {
                const Problem problem(format, tokens, shared);
                const auto expected = bits(problem.expected(make_context(1), format));
                for (const uint32_t threads : {1u, 3u})
                    for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                        INFO(format_name(format) << ", tokens " << tokens << ", shared " << shared
                                                 << ", threads " << threads << ", storage " << storage);
                        const nybl::Context ctx = make_context(threads);
                        const nybl::Weights w(
                            ctx, describe(format, kN, kK, problem.blocks.data(), kExperts, storage));
                        std::vector<float> y = unwritten(tokens * kSlots * kN);
                        w.matmul_id(problem.args(y.data()));
                        CHECK(bits(y) == expected);
                    }
            }
}

TEST_CASE("experts with strides between everything") {
    const Problem problem(NYBL_Q4_0, 4, false);
    const nybl::Context ctx = make_context(2);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, kN, kK, problem.blocks.data(), kExperts));
    const auto expected = problem.expected(ctx, NYBL_Q4_0);
    const size_t x_slot = kK + 4, x_token = kSlots * x_slot + 6, y_slot = kN + 3,
                 y_token = kSlots * y_slot + 1;
    const size_t id_token = kSlots + 2;
    std::vector<float> x(4 * x_token, 1e30f), y = unwritten(4 * y_token), wanted = unwritten(4 * y_token);
    std::vector<int32_t> ids(4 * id_token, 999);
    for (size_t t = 0; t < 4; ++t)
        for (size_t s = 0; s < kSlots; ++s) {
            const size_t i = t * kSlots + s;
            ids[t * id_token + s] = problem.ids[i];
            std::copy_n(&problem.x[i * kK], kK, &x[t * x_token + s * x_slot]);
            std::copy_n(&expected[i * kN], kN, &wanted[t * y_token + s * y_slot]);
        }
    auto args = problem.args(y.data());
    args.ids = ids.data();
    args.ids_stride = 4 * id_token;
    args.x = x.data();
    args.x_token_stride = 4 * x_token;
    args.x_slot_stride = 4 * x_slot;
    args.y_token_stride = 4 * y_token;
    args.y_slot_stride = 4 * y_slot;
    w.matmul_id(args);
    CHECK(bits(y) == bits(wanted));
}

TEST_CASE("experts inside a host's region") {
    for (const size_t tokens : {1, 9}) {
        const Problem problem(NYBL_Q5_1, tokens, true);
        const nybl::Context ctx = make_context(1);
        const nybl::Weights w(ctx, describe(NYBL_Q5_1, kN, kK, problem.blocks.data(), kExperts));
        const auto expected = bits(problem.expected(ctx, NYBL_Q5_1));
        for (const uint32_t nth : {1u, 2u, 5u, 40u}) {
            std::vector<float> y = unwritten(tokens * kSlots * kN);
            const auto args = problem.args(y.data());
            size_t bytes = 0;
            nybl::check(nybl_matmul_id_scratch_bytes(w.get(), &args, nth, &bytes));
            std::vector<uint8_t> scratch(bytes);
            std::barrier meeting(nth);
            std::atomic<int> failures{0};
            std::vector<std::thread> threads;
            for (uint32_t i = 0; i < nth; ++i)
                threads.emplace_back([&, i] {
                    const auto wait = [](void *user) {
                        static_cast<std::barrier<> *>(user)->arrive_and_wait();
                    };
                    failures += nybl_matmul_id_part(w.get(), &args, i, nth, scratch.data(), bytes, wait,
                                                    &meeting) != NYBL_OK;
                });
            for (std::thread &thread : threads)
                thread.join();
            CHECK(failures == 0);
            CHECK(bits(y) == expected);
        }
    }
}

TEST_CASE("unquantised activations serve experts too") {
    const Problem problem(NYBL_Q4_0, 3, true);
    const nybl::Context ctx = make_context(2);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, kN, kK, problem.blocks.data(), kExperts));
    const nybl::Weights third(
        ctx, describe(NYBL_Q4_0, kN, kK, problem.blocks.data() + 3 * kN * nybl::row_bytes(NYBL_Q4_0, kK)));
    std::vector<float> y = unwritten(3 * kSlots * kN), one(kN);
    auto args = problem.args(y.data());
    const std::vector<int32_t> ids(3 * kSlots, 3);
    args.ids = ids.data();
    args.compute = NYBL_COMPUTE_F32;
    w.matmul_id(args);
    auto single = f32_args(1, problem.x.data() + kK, one.data());
    single.compute = NYBL_COMPUTE_F32;
    third.matmul(single);
    CHECK(bits(one) == bits({y.begin() + kSlots * kN, y.begin() + (kSlots + 1) * kN}));
}
