// Unquantised activations: generated kernels with the bits of fma(w, x, acc) for k ascending.
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>

#include "cpu/isa.h"
#include "cpu/jit/dequantize_kernel.h"
#include "cpu/jit/f32_kernel.h"
#include "cpu/jit/generator.h"
#include "kernels/canary.h"
#include "kernels/product.h"

namespace nybl::test {
namespace {

using cpu::Strategy;

cpu::KernelChoice f32_choice(nybl_isa isa, size_t mr) {
    return {.strategy = Strategy::F32,
            .isa = isa,
            .mr = uint32_t(mr),
            .nr = uint32_t(cpu::kPanelRows * cpu::jit::f32_panels(isa))};
}

TEST_CASE("dequantised panels hold the codec's values, bit for bit", "[kernels][f32]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(7);
    for (const nybl_format id : kPanelFormats) {
        const quant::Format &format = *quant::find_format(id);
        const cpu::PanelLayout &layout = *cpu::find_panel_layout(id);
        const size_t blocks = 5, k = blocks * layout.block_k, stride = quant::row_size(format, blocks);
        const std::vector<uint8_t> rows = random_blocks(format, cpu::kPanelRows, k, random);
        std::vector<uint8_t> panel(cpu::panel_bytes(layout, k));
        cpu::pack_panel(layout, k, cpu::kPanelRows, rows.data(), stride, panel.data());
        std::vector<float> row(k), expected(k * cpu::kPanelRows);
        for (size_t r = 0; r < cpu::kPanelRows; ++r) {
            format.dequantize(rows.data() + r * stride, row.data(), blocks);
            for (size_t i = 0; i < k; ++i)
                expected[i * cpu::kPanelRows + r] = row[i];
        }
        for (const nybl_isa isa : runnable_isas()) {
            const Fenced fenced_panel(panel.size()), values(expected.size() * sizeof(float));
            std::copy(panel.begin(), panel.end(), fenced_panel.data());
            const cpu::jit::UnpackArgs args{fenced_panel.data(), values.data(), blocks};
            const cpu::jit::UnpackFn kernel = cpu::jit::dequantize_kernel(id, isa);
            REQUIRE(kernel != nullptr);
            kernel(&args);
            CAPTURE(format.name, cpu::isa_name(isa));
            CHECK(values.intact());
            CHECK(same_bits({values.as<float>(), values.as<float>() + expected.size()}, expected));
        }
    }
}

TEST_CASE("unquantised products give the reference's bits", "[kernels][f32]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_format id : kPanelFormats) {
        const size_t block_k = cpu::find_panel_layout(id)->block_k;
        for (const size_t blocks : {1, 3, 9, 17})
            for (const size_t n : {1, 16, 17, 50})
                for (const size_t m : {1, 2, 7, 25}) {
                    RandomProduct product(id, m, n, block_k * blocks, uint32_t(n + m));
                    if (m == 7)
                        product.bias.assign(n, 0.375f);
                    const std::vector<float> expected =
                        product.run({.strategy = Strategy::F32}, NYBL_STORAGE_PACKED, 1);
                    for (const nybl_isa isa : runnable_isas())
                        for (const nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL})
                            for (const size_t mr : {size_t(1), size_t(5), cpu::jit::f32_tokens(isa)}) {
                                CAPTURE(int(id), blocks, n, m, cpu::isa_name(isa), int(storage), mr);
                                REQUIRE(same_bits(product.run(f32_choice(isa, mr), storage, 3), expected));
                            }
                }
    }
}

TEST_CASE("more rows than a block keep their bits, and Inf and NaN their row", "[kernels][f32]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    const size_t m = 131, n = 40, k = 512;
    RandomProduct product(NYBL_Q5_K, m, n, k, 8);
    product.x[3 * k + 100] = std::numeric_limits<float>::quiet_NaN();
    product.x[5 * k + 511] = std::numeric_limits<float>::infinity();
    product.x[6 * k] = std::numeric_limits<float>::denorm_min();
    const std::vector<float> expected = product.run({.strategy = Strategy::F32}, NYBL_STORAGE_PACKED, 1);
    CHECK(std::isnan(expected[3 * n]));
    CHECK(std::isfinite(expected[4 * n]));
    for (const nybl_isa isa : runnable_isas())
        CHECK(same_bits(product.run(f32_choice(isa, cpu::jit::f32_tokens(isa)), NYBL_STORAGE_PACKED, 2),
                        expected));
}

TEST_CASE("kernels of unquantised products keep the promises of the calling convention",
          "[kernels][f32][jit]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_isa isa : runnable_isas()) {
        const size_t panels = cpu::jit::f32_panels(isa), tokens = cpu::jit::f32_tokens(isa);
        const std::vector<float> w(panels * 32 * cpu::kPanelRows), x(32 * tokens);
        std::vector<float> c(panels * tokens * cpu::kPanelRows);
        const cpu::jit::TileArgs args{reinterpret_cast<const uint8_t *>(w.data()), 4 * 32 * cpu::kPanelRows,
                                      reinterpret_cast<const uint8_t *>(x.data()), c.data(), 32};
        CHECK(broken_by_call(reinterpret_cast<const void *>(cpu::jit::f32_kernel(isa, panels, tokens)), &args,
                             cpu::jit::kHostAbi) == "");
        std::vector<uint8_t> panel(cpu::find_panel_layout(NYBL_Q4_K)->block_bytes);
        std::vector<float> floats(256 * cpu::kPanelRows);
        const cpu::jit::UnpackArgs unpack{panel.data(), reinterpret_cast<uint8_t *>(floats.data()), 1};
        CHECK(broken_by_call(reinterpret_cast<const void *>(cpu::jit::dequantize_kernel(NYBL_Q4_K, isa)),
                             &unpack, cpu::jit::kHostAbi) == "");
    }
}

} // namespace
} // namespace nybl::test
