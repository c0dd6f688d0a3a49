// Plans of oneDNN's primitives: as text and back, what tells them apart, and the rows that share one.
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpu/onednn_plan.h"

namespace nybl::test {
namespace {

std::vector<gpu::OneDnnPlan> all_plans() {
    std::vector<gpu::OneDnnPlan> plans;
    for (const auto mode :
         {gpu::OneDnnMode::OneTerm, gpu::OneDnnMode::TwoTerm, gpu::OneDnnMode::ScaleBeforeZero})
        for (const auto codes : {gpu::CodeType::S4, gpu::CodeType::U4, gpu::CodeType::U8, gpu::CodeType::S8})
            for (const auto params : {NYBL_F16, NYBL_F32})
                for (const auto activations : {NYBL_F16, NYBL_BF16, NYBL_F32})
                    for (const uint64_t m : {uint64_t(1), uint64_t(64)})
                        for (const uint64_t n : {uint64_t(1), uint64_t(4096), UINT64_MAX})
                            for (const uint64_t k : {uint64_t(64), uint64_t(4096)})
                                for (const uint32_t group : {16u, 32u})
                                    plans.push_back({mode, codes, group, params, activations, m, n, k});
    return plans;
}

} // namespace

TEST_CASE("onednn plan: text round-trips, and every field counts in text, comparison and hash", "[gpu]") {
    const auto plans = all_plans();
    std::set<std::string> texts;
    std::set<uint64_t> hashes;
    for (const gpu::OneDnnPlan &plan : plans) {
        char text[112];
        gpu::write_plan(plan, text, sizeof text);
        gpu::OneDnnPlan again{};
        INFO(text);
        REQUIRE(gpu::read_plan(text, &again));
        CHECK(again == plan);
        texts.insert(text);
        hashes.insert(gpu::hash_plan(plan));
    }
    CHECK(texts.size() == plans.size());
    CHECK(hashes.size() == plans.size());
    for (size_t i = 1; i < plans.size(); ++i)
        REQUIRE_FALSE(plans[i] == plans[0]);
}

TEST_CASE("onednn plan: other texts are no plans", "[gpu]") {
    gpu::OneDnnPlan plan{};
    REQUIRE(gpu::read_plan("u4/32 f16 f16 64x4096x4096 two-term", &plan));
    for (const char *text : {"", "u4", "u4/32 f16 f16 64x4096x4096", "u5/32 f16 f16 64x4096x4096 two-term",
                             "u4/32 f15 f16 64x4096x4096 two-term", "u4/32 f16 f16 64x4096 two-term",
                             "u4/32 f16 f16 64x4096x4096 twoterm", "u4/32 f16 f16 -64x4096x4096 two-term",
                             "u4/32 f16 f16 064x4096x4096 two-term", "u4/32  f16 f16 64x4096x4096 two-term",
                             "u4/32 f16 f16 64x4096x4096 two-term ", "u4 f16 f16 64x4096x4096 two-term",
                             "u4/0 f16 f16 64x4096x4096 two-term"}) {
        gpu::OneDnnPlan other{};
        INFO(text);
        CHECK_FALSE(gpu::read_plan(text, &other));
        CHECK(other == gpu::OneDnnPlan{});
    }
}

TEST_CASE("onednn plan: buckets hold their rows, waste little, and are few", "[gpu]") {
    std::set<size_t> buckets;
    for (size_t m = 1; m <= 4096; ++m) {
        const size_t bucket = gpu::bucket_rows(m);
        REQUIRE(bucket >= m);
        REQUIRE(gpu::bucket_rows(bucket) == bucket);
        REQUIRE(bucket < (m <= 32 ? 2 * m : m <= 512 ? m + 64 : m + 512));
        buckets.insert(bucket);
    }
    CHECK(buckets.size() == 6 + 8 + 7);
}

} // namespace nybl::test
