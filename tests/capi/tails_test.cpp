// Case C7: every M, N, K and thread count around the edges of tiles, panels and blocks. Outputs depend on a
// row of X and a row of W alone, so one scalar product of the largest size is the expectation of every
// smaller one.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>

#include "fenced.h"
#include "support.h"

namespace {

using namespace capi_test;

constexpr size_t kMaxM = 129, kMaxN = 1001;
constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

std::vector<size_t> edge_m() {
    std::vector<size_t> all{63, 64, 65, 127, 129};
    for (size_t m = 1; m <= 35; ++m)
        all.push_back(m);
    return all;
}
std::vector<size_t> edge_n() {
    std::vector<size_t> all{31, 33, 287, 1000, 1001};
    for (size_t n = 1; n <= 17; ++n)
        all.push_back(n);
    return all;
}

struct Problem {
    nybl_format format;
    size_t k;
    std::vector<float> x = random_floats(kMaxM * k, 7);
    std::vector<uint8_t> w = random_blocks(format, kMaxN, k, 8);
    std::vector<float> expected = std::vector<float>(kMaxM * kMaxN);

    Problem(nybl_format f, size_t length, size_t m, size_t n) : format(f), k(length) {
        const nybl::Context scalar = make_context(2, NYBL_ISA_SCALAR);
        const nybl::Weights weights(scalar, describe(format, n, k, w.data()));
        nybl_matmul_args args = f32_args(m, x.data(), expected.data());
        args.y_stride = kMaxN * sizeof(float);
        weights.matmul(args);
    }

    bool matches(const nybl::Weights &weights, size_t m, size_t n) const {
        const nybl::test::Fenced memory(m * n * sizeof(float));
        auto *y = memory.as<float>();
        std::fill_n(y, m * n, kUnwritten);
        weights.matmul(f32_args(m, x.data(), y));
        for (size_t row = 0; row < m; ++row)
            if (std::memcmp(y + row * n, expected.data() + row * kMaxN, n * sizeof(float)) != 0)
                return false;
        return memory.intact();
    }
};

TEST_CASE("C7: tails of M and N, on every thread count") {
    const std::vector<size_t> all_m = edge_m();
    for (const nybl_format format : kFormats) {
        const bool super = format == NYBL_Q4_K || format == NYBL_Q5_K || format == NYBL_Q6_K;
        const Problem problem(format, super ? 256 : 96, kMaxM, kMaxN);
        for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX})
            for (const uint32_t threads : {1u, 2u, 3u, 5u, 7u}) {
                const nybl::Context ctx = make_context(threads, isa);
                for (const size_t n : edge_n()) {
                    const nybl::Weights weights(ctx, describe(format, n, problem.k, problem.w.data()));
                    // Each N meets a different share of the M; over all of them every M is there.
                    for (size_t i = (n + threads) % 5; i < all_m.size(); i += 5) {
                        INFO(format_name(format) << " M " << all_m[i] << " N " << n << " threads " << threads
                                                 << " " << nybl_isa_string(isa));
                        CHECK(problem.matches(weights, all_m[i], n));
                    }
                }
            }
    }
}

TEST_CASE("C7: lengths of K") {
    constexpr size_t kM = 19, kN = 33;
    for (const nybl_format format : kFormats) {
        const bool super = format == NYBL_Q4_K || format == NYBL_Q5_K || format == NYBL_Q6_K;
        for (const size_t blocks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 18, 43}) {
            if (super && blocks > 3 && blocks != 43)
                continue;
            const Problem problem(format, (super ? 256 : 32) * blocks, kM, kN);
            for (const nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL})
                for (const nybl_isa isa :
                     {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX}) {
                    const nybl::Context ctx = make_context(2, isa);
                    const nybl::Weights weights(
                        ctx, describe(format, kN, problem.k, problem.w.data(), 1, storage));
                    for (const size_t m : {1, 4, 19}) {
                        INFO(format_name(format) << " K " << problem.k << " M " << m << " storage " << storage
                                                 << " " << nybl_isa_string(isa));
                        CHECK(problem.matches(weights, m, kN));
                    }
                }
        }
    }
}

} // namespace
