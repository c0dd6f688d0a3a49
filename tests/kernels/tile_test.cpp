// Packed and byte panels through the micro-kernels of every instruction set: the bits of the scalar
// reference.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "cpu/caches.h"
#include "cpu/isa.h"
#include "cpu/jit/amx_kernel.h"
#include "kernels/product.h"

namespace nybl::test {
namespace {

using cpu::KernelChoice;
using cpu::Strategy;

// Every tile height, over as many panels as that strategy may ask for.
std::vector<KernelChoice> kernel_choices(Strategy strategy, nybl_isa isa) {
    std::vector<KernelChoice> choices;
    for (const uint32_t panels : {1u, 2u, 3u, 4u})
        for (uint32_t mr = 1; mr <= cpu::jit::kMaxTokens; ++mr)
            if (strategy == Strategy::Tiled ? isa != NYBL_ISA_AMX || panels == 1 : panels == 1)
                choices.push_back({.strategy = strategy, .isa = isa, .mr = mr, .nr = 16 * panels});
    return choices;
}

void check(const RandomProduct &product, const KernelChoice &kernel, const std::vector<float> &expected,
           size_t nth) {
    INFO(cpu::isa_name(kernel.isa) << " strategy " << int(kernel.strategy) << " mr " << kernel.mr << " nr "
                                   << kernel.nr << " threads " << nth);
    CHECK(same_bits(product.run(kernel, NYBL_STORAGE_PACKED, nth), expected));
}

size_t block_k(nybl_format format) {
    return cpu::find_panel_layout(format)->block_k;
}

// Where a kernel cannot be generated the reference takes over, and a comparison with the reference proves
// nothing.
TEST_CASE("every tile shape that dispatch can ask for is generated", "[kernels]") {
    using namespace cpu::jit;
    for (const nybl_format format : kPanelFormats)
        for (const nybl_isa isa : runnable_isas())
            for (size_t tokens = 1; tokens <= kMaxTokens; ++tokens) {
                INFO(quant::find_format(format)->name << " " << cpu::isa_name(isa) << " tokens " << tokens);
                if (isa == NYBL_ISA_AMX) {
                    CHECK(amx_kernel(format, tokens) != nullptr);
                    continue;
                }
                const size_t panels = stream_panels(isa, tokens);
                CHECK(tile_kernel(WeightForm::Packed, format, isa, panels, tokens) != nullptr);
                CHECK(tile_kernel(WeightForm::Packed, format, isa, 1, tokens) != nullptr);
                for (const size_t side : {1, 2, 3, 4})
                    CHECK(tile_kernel(WeightForm::Bytes, format, isa, side, tokens) != nullptr);
            }
}

TEST_CASE("every tile shape gives the reference's bits", "[kernels]") {
    for (const nybl_format format : kPanelFormats) {
        const size_t m = 17, n = 16 * 7 + 5, k = block_k(format) * 3;
        const RandomProduct product(format, m, n, k, 1);
        const std::vector<float> expected = product.reference();
        INFO(quant::find_format(format)->name);
        for (const nybl_isa isa : runnable_isas())
            for (const Strategy strategy : {Strategy::Stream, Strategy::Tiled})
                for (const KernelChoice &kernel : kernel_choices(strategy, isa))
                    check(product, kernel, expected, 1);
    }
}

TEST_CASE("tails of N, lengths of K and thread counts do not change bits", "[kernels]") {
    for (const nybl_format format : kPanelFormats) {
        INFO(quant::find_format(format)->name);
        for (const size_t blocks : {1, 2, 5, 9, 17}) {
            for (const size_t n : {1, 15, 16, 17, 33, 130}) {
                for (size_t m = 1; m <= 4; ++m) {
                    const RandomProduct product(format, m, n, block_k(format) * blocks, uint32_t(n + m));
                    const std::vector<float> expected = product.reference();
                    for (const nybl_isa isa : runnable_isas())
                        for (const size_t nth : {1, 2, 3, 5, 7})
                            check(product,
                                  {.strategy = Strategy::Stream, .isa = isa, .mr = uint32_t(m), .nr = 16},
                                  expected, nth);
                }
            }
        }
    }
}

// n = 1040: whole lines of y everywhere, which may be written past the caches unless a bias is added; 1032:
// none may.
TEST_CASE("outputs beyond the second-level cache have the reference's bits", "[kernels]") {
    for (const size_t n : {1040, 1032}) {
        const size_t m = cpu::second_level_cache_bytes() / (sizeof(float) * n) + 5;
        RandomProduct product(NYBL_Q4_1, m, n, 64, 7);
        for (const bool bias : {false, true}) {
            product.bias.assign(bias ? n : 0, 0.5f);
            const std::vector<float> expected = product.reference();
            for (const nybl_isa isa : runnable_isas())
                for (const size_t nth : {1, 2})
                    check(product, {.strategy = Strategy::Tiled, .isa = isa, .mr = 4, .nr = 16}, expected,
                          nth);
        }
    }
}

TEST_CASE("C5: the largest sums stay exact", "[kernels]") {
    for (const nybl_format format : kPanelFormats) {
        RandomProduct product(format, 4, 16, block_k(format) * 2, 3);
        // One magnitude in every place: each quant is +127 or -127, the ends of every integer sum.
        for (size_t i = 0; i < product.x.size(); ++i)
            product.x[i] = (i / 7) % 3 == 0 ? -1.0f : 1.0f;
        const std::vector<float> expected = product.reference();
        for (const nybl_isa isa : runnable_isas())
            for (const Strategy strategy : {Strategy::Stream, Strategy::Tiled})
                check(product, {.strategy = strategy, .isa = isa, .mr = 4, .nr = 16}, expected, 1);
    }
}

TEST_CASE("a NaN stays in its row", "[kernels]") {
    RandomProduct product(NYBL_Q4_K, 5, 40, 512, 4);
    const std::vector<float> clean = product.reference();
    product.x[2 * 512 + 300] = std::numeric_limits<float>::quiet_NaN();
    for (const nybl_isa isa : runnable_isas()) {
        const std::vector<float> y = product.run(
            {.strategy = Strategy::Stream, .isa = isa, .mr = 3, .nr = 16}, NYBL_STORAGE_PACKED, 2);
        for (size_t i = 0; i < y.size(); ++i)
            if (i / 40 == 2)
                CHECK(y[i] != y[i]);
            else
                CHECK(y[i] == clean[i]);
    }
}

} // namespace
} // namespace nybl::test
