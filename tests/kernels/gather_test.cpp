// Original blocks: gathered panels byte for byte, products bit for bit, and not a byte read beside the rows.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/isa.h"
#include "cpu/jit/gather_kernel.h"
#include "cpu/jit/generator.h"
#include "cpu/jit/original_kernel.h"
#include "cpu/panel_source.h"
#include "cpu/reference.h"
#include "fenced.h"
#include "kernels/canary.h"
#include "kernels/product.h"

namespace nybl::test {
namespace {

using cpu::kPanelRows;
using cpu::Strategy;

size_t row_bytes(const quant::Format &format, size_t k) {
    return quant::row_size(format, k / format.block_size);
}

// Gathers 16 rows of `blocks` blocks, the first at `first`, and compares with the packed panel.
void check_gather(const quant::Format &format, nybl_isa isa, const uint8_t *first, size_t stride,
                  size_t blocks) {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format.id);
    const size_t k = blocks * layout.block_k;
    std::vector<uint8_t> expected(cpu::panel_bytes(layout, k));
    cpu::pack_panel(layout, k, kPanelRows, first, stride, expected.data());
    expected.resize(blocks * layout.block_bytes);
    const Fenced got(blocks * layout.block_bytes);
    const uint8_t *rows[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r)
        rows[r] = first + r * stride;
    const cpu::jit::GatherFn kernel = cpu::jit::gather_kernel(format.id, isa);
    REQUIRE(kernel != nullptr);
    const cpu::jit::GatherArgs args{.rows = rows, .dst = got.data(), .blocks = blocks, .ahead = 4096};
    kernel(&args);
    CAPTURE(format.name, cpu::isa_name(isa), blocks, stride);
    CHECK(got.intact());
    REQUIRE(std::equal(expected.begin(), expected.end(), got.data()));
}

TEST_CASE("gathered rows are the packed panel, at every alignment, up to the last byte",
          "[kernels][gather]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(5);
    for (const nybl_format id : kPanelFormats) {
        const quant::Format &format = *quant::find_format(id);
        for (const size_t blocks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17}) {
            const size_t bytes = row_bytes(format, blocks * format.block_size);
            for (const size_t gap : {0, 1, 2, 3, 5, 8, 13, 62, 64}) {
                // The first byte takes every alignment as sizes vary; the last one touches the fence.
                const Fenced memory(kPanelRows * (bytes + gap) - gap);
                for (size_t i = 0; i < kPanelRows * (bytes + gap) - gap; ++i)
                    memory.data()[i] = uint8_t(random());
                for (const nybl_isa isa : runnable_isas())
                    check_gather(format, isa, memory.data(), bytes + gap, blocks);
            }
        }
    }
}

TEST_CASE("rows of a panel may lie anywhere, also in one place", "[kernels][gather]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(6);
    for (const nybl_format id : kPanelFormats) {
        const quant::Format &format = *quant::find_format(id);
        const std::vector<uint8_t> row = random_blocks(format, 1, 1024, random);
        const Fenced memory(row.size());
        std::memcpy(memory.data(), row.data(), row.size());
        for (const nybl_isa isa : runnable_isas())
            check_gather(format, isa, memory.data(), 0, 1024 / format.block_size);
    }
}

TEST_CASE("original weights give the bits of packed ones", "[kernels][gather]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_format id : kPanelFormats) {
        const size_t block_k = cpu::find_panel_layout(id)->block_k;
        for (const size_t blocks : {1, 3, 9, 33})
            for (const size_t n : {1, 7, 16, 17, 50})
                for (const size_t m : {1, 3, 5, 16, 33}) {
                    const RandomProduct product(id, m, n, block_k * blocks, uint32_t(n + m));
                    const std::vector<float> expected = product.reference();
                    for (const nybl_isa isa : runnable_isas())
                        for (const Strategy strategy : {Strategy::Stream, Strategy::Tiled})
                            for (const uint32_t nr : {16u, 32u}) {
                                if (strategy == Strategy::Stream && m > 16)
                                    continue;
                                if (isa == NYBL_ISA_AMX && (strategy == Strategy::Stream || nr > 16))
                                    continue; // it tiles single panels
                                const cpu::KernelChoice kernel{.strategy = strategy,
                                                               .isa = isa,
                                                               .mr = isa >= NYBL_ISA_AVX512_VNNI ? 4u : 2u,
                                                               .nr = nr};
                                CAPTURE(int(id), blocks, n, m, cpu::isa_name(isa), int(strategy), nr);
                                REQUIRE(same_bits(product.run(kernel, NYBL_STORAGE_ORIGINAL, 2), expected));
                            }
                }
    }
}

TEST_CASE("packing by kernels gives the plain bytes, padding included", "[kernels][gather]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(9);
    for (const nybl_format id : kPanelFormats) {
        const quant::Format &format = *quant::find_format(id);
        const cpu::PanelLayout &layout = *cpu::find_panel_layout(id);
        const size_t k = 5 * layout.block_k;
        const std::vector<uint8_t> blocks = random_blocks(format, kPanelRows, k, random);
        for (const size_t rows : {size_t(3), kPanelRows}) {
            std::vector<uint8_t> expected(cpu::panel_bytes(layout, k), 0xA5);
            cpu::pack_panel(layout, k, rows, blocks.data(), row_bytes(format, k), expected.data());
            for (const nybl_isa isa : runnable_isas()) {
                std::vector<uint8_t> got(expected.size(), 0x5A);
                cpu::pack_panel(isa, layout, k, rows, blocks.data(), row_bytes(format, k), got.data());
                CHECK(got == expected);
            }
        }
    }
}

TEST_CASE("decode of original rows gives the reference's bits and stays within the rows",
          "[kernels][gather]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(10);
    std::normal_distribution<float> normal;
    for (const nybl_format id : kPanelFormats) {
        if (!cpu::jit::has_original_kernel(id))
            continue;
        const quant::Format &format = *quant::find_format(id);
        for (const size_t blocks : {1, 2, 3, 4, 5, 9, 16}) {
            const size_t k = blocks * format.block_size, bytes = blocks * format.block_bytes;
            const std::vector<uint8_t> original = random_blocks(format, cpu::jit::kOriginalRows, k, random);
            std::vector<float> x(k);
            for (float &value : x)
                value = normal(random);
            for (const nybl_isa isa : runnable_isas()) {
                std::vector<cpu::ActivationGroup> groups(k / 32);
                cpu::quantize_row(cpu::dot_family(isa), NYBL_F32, reinterpret_cast<const uint8_t *>(x.data()),
                                  k, groups.data());
                const auto *a = reinterpret_cast<const uint8_t *>(groups.data());
                for (const size_t gap : {0, 1, 7}) {
                    const Fenced memory(cpu::jit::kOriginalRows * (bytes + gap) - gap);
                    const uint8_t *rows[cpu::jit::kOriginalRows];
                    std::vector<float> c(cpu::jit::kOriginalRows), expected;
                    for (size_t r = 0; r < cpu::jit::kOriginalRows; ++r) {
                        uint8_t *row = memory.data() + r * (bytes + gap);
                        rows[r] = row;
                        std::memcpy(row, original.data() + r * bytes, bytes);
                        expected.push_back(cpu::dot_reference(format, row, {a, 1, 0}, k));
                    }
                    const cpu::jit::OriginalFn kernel = cpu::jit::original_kernel(id, isa);
                    REQUIRE(kernel != nullptr);
                    const cpu::jit::OriginalArgs args{rows, a, c.data(), blocks, rows[0]};
                    kernel(&args);
                    CAPTURE(format.name, cpu::isa_name(isa), blocks, gap);
                    REQUIRE(same_bits(c, expected));
                    CHECK(broken_by_call(reinterpret_cast<const void *>(kernel), &args, cpu::jit::kHostAbi) ==
                          "");
                }
            }
        }
    }
}

TEST_CASE("gather kernels keep the promises of the calling convention", "[kernels][gather][jit]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_format id : {NYBL_Q4_0, NYBL_Q5_1, NYBL_Q5_K}) {
        const quant::Format &format = *quant::find_format(id);
        const std::vector<uint8_t> row(5 * format.block_bytes);
        std::vector<uint8_t> dst(5 * cpu::find_panel_layout(id)->block_bytes);
        const uint8_t *rows[kPanelRows];
        std::fill(rows, rows + kPanelRows, row.data());
        const cpu::jit::GatherArgs args{rows, dst.data(), 5, 0};
        for (const nybl_isa isa : runnable_isas())
            CHECK(broken_by_call(reinterpret_cast<const void *>(cpu::jit::gather_kernel(id, isa)), &args,
                                 cpu::jit::kHostAbi) == "");
    }
}

} // namespace
} // namespace nybl::test
