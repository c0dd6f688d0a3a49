// Outputs that are more than the second-level cache holds are written past the caches where whole lines of y
// allow it: every reason for which some or all of them may not be.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "cpu/caches.h"
#include "fenced.h"
#include "support.h"

namespace {

using namespace capi_test;

constexpr size_t kN = 1032, kK = 64; // the last panel has eight rows
constexpr size_t kLine = 64;

// Of one batch, or of one slot.
size_t half_beyond_cache() {
    return nybl::cpu::second_level_cache_bytes() / (sizeof(float) * kN) / 2 + 3;
}

struct Layout {
    const char *name;
    size_t stride; // bytes from row to row of y
    size_t offset; // of y from a page
    nybl_format type = NYBL_F32;
    bool bias = false;
    size_t gap = 0; // bytes between batches, or between tokens, beyond whole lines
};

constexpr size_t whole_lines(size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}
constexpr size_t kWholeLines = whole_lines(sizeof(float) * kN);
constexpr Layout kLayouts[] = {
    {"whole lines", kWholeLines, 0},
    {"rows at the middle of lines", sizeof(float) * (kN + 1), 0},
    {"y at the middle of a line", kWholeLines, 4},
    {"batches or tokens at the middle of lines", kWholeLines, 0, NYBL_F32, false, 4},
    {"half precision", kWholeLines, 0, NYBL_F16},
    {"a bias", kWholeLines, 0, NYBL_F32, true},
};

// All of y's memory, what lies between its rows included.
template <class Product>
std::vector<uint8_t> outputs(const Layout &layout, size_t half, const Product &product) {
    const nybl::test::Fenced memory(layout.offset + 2 * half * (layout.stride + layout.gap + kLine),
                                    nybl::test::Fenced::Fence::Before);
    std::memset(memory.data(), 0xA5, memory.size());
    product(memory.data() + layout.offset);
    CHECK(memory.intact());
    return {memory.data(), memory.data() + memory.size()};
}

template <class Product>
void compare(const Layout &layout, size_t half, const Product &product) {
    const std::vector<uint8_t> expected =
        outputs(layout, half, [&](uint8_t *y) { product(make_context(2, NYBL_ISA_SCALAR), y); });
    for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX})
        for (const uint32_t threads : {1u, 3u}) {
            INFO(layout.name << " " << nybl_isa_string(isa) << " threads " << threads);
            const bool equal = outputs(layout, half, [&](uint8_t *y) {
                                   product(make_context(threads, isa), y);
                               }) == expected;
            CHECK(equal);
        }
}

TEST_CASE("large outputs are right and touch nothing between rows, wherever y lies") {
    const size_t m = half_beyond_cache();
    const auto blocks = random_blocks(NYBL_Q5_0, kN, kK, 1);
    const auto x = random_floats(2 * m * kK, 2), bias = random_floats(kN, 3);
    for (const Layout &layout : kLayouts)
        compare(layout, m, [&](const nybl::Context &ctx, uint8_t *y) {
            const nybl::Weights w(ctx, describe(NYBL_Q5_0, kN, kK, blocks.data()));
            nybl_matmul_args args = f32_args(m, x.data(), nullptr);
            args.batch = 2;
            args.y = y;
            args.y_type = layout.type;
            args.y_stride = layout.stride;
            args.y_batch_stride = whole_lines(m * layout.stride) + layout.gap;
            args.bias = layout.bias ? bias.data() : nullptr;
            w.matmul(args);
        });
}

TEST_CASE("large outputs of experts are right and touch nothing between rows") {
    const size_t tokens = 2 * half_beyond_cache();
    const auto blocks = random_blocks(NYBL_Q8_0, 2 * kN, kK, 4);
    const auto x = random_floats(tokens * kK, 5);
    std::vector<int32_t> ids;
    for (size_t t = 0; t < tokens; ++t) // each expert meets all tokens, in either slot
        for (const int32_t slot : {0, 1})
            ids.push_back(int32_t(t / 3 % 2) ^ slot);
    for (const Layout &layout : kLayouts)
        if (!layout.bias)
            compare(layout, tokens, [&](const nybl::Context &ctx, uint8_t *y) {
                const nybl::Weights w(ctx, describe(NYBL_Q8_0, kN, kK, blocks.data(), 2));
                auto args = nybl::make<nybl_matmul_id_args>();
                args.n_tokens = tokens;
                args.n_slots = 2;
                args.ids = ids.data();
                args.x = x.data();
                args.y = y;
                args.y_type = layout.type;
                args.y_slot_stride = layout.stride;
                args.y_token_stride = whole_lines(2 * layout.stride) + layout.gap;
                w.matmul_id(args);
            });
}

} // namespace
