// The block-level dot product: generated code against the reference, bit for bit, on every instruction set of
// this machine; the reference against exact sums.
#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <immintrin.h>
#include <random>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "cpu/jit/executable_memory.h"
#include "cpu/jit/vec_dot_generator.h"
#include "cpu/jit/vec_dot_kernel.h"
#include "cpu/vec_dot.h"
#include "cpu/vec_dot_reference.h"
#include "kernels/canary.h"
#include "kernels/vec_dot_rows.h"
#include "quant/format.h"

using namespace nybl;
using nybl::test::Fenced;
using nybl::test::vec_dot_formats;
using nybl::test::VecDotFormat;
using nybl::test::VecDotRows;

namespace {

constexpr uint16_t kNotFinite[] = {0x7C00, 0xFC00, 0x7E00, 0xFE01};

// The generated instruction sets that can run here.
std::vector<nybl_isa> native_isas() {
    std::vector<nybl_isa> isas;
    const cpu::CpuRegisters machine = cpu::read_cpu_registers();
    for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI}) {
        if (cpu::isa_available(machine, isa) && cpu::effective_isa(NYBL_ISA_BEST) >= isa) {
            isas.push_back(isa);
        }
    }
    return isas;
}

float run(nybl_vec_dot_fn function, const VecDotRows &rows) {
    float out[3] = {1234.5f, std::nanf(""), 1234.5f};
    function(rows.k(), rows.w.data(), rows.a.data(), &out[1]);
    REQUIRE((out[0] == 1234.5f && out[2] == 1234.5f));
    return out[1];
}

// Equal bits; any NaN equals any NaN.
bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

void require_all_equal(const VecDotRows &rows) {
    const float expected = run(cpu::find_vec_dot_reference(rows.format.id), rows);
    for (const nybl_isa isa : native_isas()) {
        const nybl_vec_dot_fn function = cpu::find_vec_dot(rows.format.id, isa);
        REQUIRE(function != cpu::find_vec_dot_reference(rows.format.id));
        const float got = run(function, rows);
        if (!same(got, expected)) {
            CAPTURE(rows.format.name, cpu::isa_name(isa), rows.blocks, got, expected);
            FAIL("not the bits of the reference");
        }
    }
}

// The dot product in f64 of what the bytes mean.
double exact_dot(const VecDotRows &rows, double *magnitude) {
    const quant::Format &weights = *quant::find_format(rows.format.id);
    const quant::Format &activations = *quant::find_format(weights.vec_dot_type);
    std::vector<float> w(rows.k()), a(rows.k());
    weights.dequantize(rows.w.data(), w.data(), rows.blocks);
    activations.dequantize(rows.a.data(), a.data(), rows.blocks);
    double sum = 0;
    *magnitude = 0;
    for (size_t i = 0; i < w.size(); ++i) {
        sum += double{w[i]} * double{a[i]};
        *magnitude += std::abs(double{w[i]} * double{a[i]});
    }
    return sum;
}

// Makes the stored sums of activation blocks agree with their bytes.
void fix_sums(const VecDotRows &rows) {
    for (size_t b = 0; b < rows.blocks; ++b) {
        uint8_t *block = rows.a_block(b);
        if (rows.format.a_bytes == 36) {
            uint16_t one = 0x3C00; // d = 1, so that s is exact in f16
            VecDotRows::put(block, one);
            int sum = 0;
            for (size_t e = 0; e < 32; ++e) {
                block[4 + e] = static_cast<uint8_t>(static_cast<int8_t>(block[4 + e]) / 4);
                sum += static_cast<int8_t>(block[4 + e]);
            }
            VecDotRows::put(block + 2, static_cast<_Float16>(sum));
        } else if (rows.format.a_bytes == 292) {
            for (size_t i = 0; i < 16; ++i) {
                int sum = 0;
                for (size_t e = 0; e < 16; ++e) {
                    sum += static_cast<int8_t>(block[4 + 16 * i + e]);
                }
                VecDotRows::put(block + 260 + 2 * i, static_cast<int16_t>(sum));
            }
        }
    }
}

} // namespace

TEST_CASE("generated dot products have the bits of the reference", "[vec_dot]") {
    if (native_isas().empty()) {
        SKIP("no generated kernel runs here: this machine or NYBL_MAX_ISA has no AVX2");
    }
    std::mt19937 random(11);
    for (const VecDotFormat &format : vec_dot_formats()) {
        for (size_t blocks = 0; blocks <= (format.block == 32 ? 37 : 9); ++blocks) {
            for (const Fenced::Fence fence : {Fenced::Fence::Behind, Fenced::Fence::Before}) {
                for (int repeat = 0; repeat < 4; ++repeat) {
                    VecDotRows rows(format, blocks, fence);
                    rows.fill(random);
                    require_all_equal(rows);
                }
            }
        }
        VecDotRows rows(format, format.block == 32 ? 448 : 56);
        rows.fill(random);
        require_all_equal(rows);
    }
}

TEST_CASE("C5: sums are exact at the ends of every range", "[vec_dot]") {
    std::mt19937 random(12);
    for (const VecDotFormat &format : vec_dot_formats()) {
        for (const int w_byte : {0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x08}) {
            for (const int a_byte : {0x80, 0x7F, 0x81, 0xFF}) {
                VecDotRows rows(format, 7);
                rows.fill(random);
                for (size_t b = 0; b < rows.blocks; ++b) {
                    uint8_t scale[2]; // at the end of Q6_K's blocks
                    std::memcpy(scale, rows.w_block(b) + format.w_halves.back(), sizeof scale);
                    std::memset(rows.w_block(b) + 4, w_byte, format.w_bytes - 4);
                    std::memcpy(rows.w_block(b) + format.w_halves.back(), scale, sizeof scale);
                    std::memset(rows.a_block(b) + 4, a_byte, format.a_bytes - 4);
                }
                require_all_equal(rows);
            }
        }
    }
}

TEST_CASE("C5: table values meet the activations at the ends of their range exactly", "[vec_dot]") {
    const VecDotFormat &format = vec_dot_formats()[1];
    REQUIRE(format.id == NYBL_IQ4_NL);
    struct Case {
        uint8_t codes;
        int8_t q;
        float sum;
    };
    for (const Case &c : {Case{0xFF, 127, 459232}, Case{0x00, -128, 520192}, Case{0xFF, -128, -462848}}) {
        VecDotRows rows(format, 1);
        VecDotRows::put(rows.w_block(0), uint16_t{0x3C00}); // 1
        VecDotRows::put(rows.a_block(0), uint16_t{0x3C00});
        std::memset(rows.w_block(0) + 2, c.codes, 16);
        std::memset(rows.a_block(0) + 2, c.q, 32);
        CHECK(run(cpu::find_vec_dot_reference(format.id), rows) == c.sum);
        for (const nybl_isa isa : native_isas()) {
            CHECK(run(cpu::find_vec_dot(format.id, isa), rows) == c.sum);
        }
    }
}

TEST_CASE("the reference is the dot product of what the bytes mean", "[vec_dot]") {
    std::mt19937 random(13);
    for (const VecDotFormat &format : vec_dot_formats()) {
        for (const size_t blocks : {1, 2, 3, 4, 5, 16}) {
            VecDotRows rows(format, blocks);
            rows.fill(random);
            fix_sums(rows);
            double magnitude = 0;
            const double exact = exact_dot(rows, &magnitude);
            const double got = run(cpu::find_vec_dot_reference(format.id), rows);
            CAPTURE(format.name, blocks, exact, got);
            // Each of at most some hundred roundings is below 2^-24 of the magnitudes it sums.
            CHECK(std::abs(got - exact) <= magnitude * 1e-6);
        }
    }
}

TEST_CASE("a Q8_1 sum that is not finite is made from the bytes", "[vec_dot]") {
    std::mt19937 random(14);
    for (const VecDotFormat &format : vec_dot_formats()) {
        if (format.a_bytes != 36) {
            continue;
        }
        for (const uint16_t bad : kNotFinite) {
            for (size_t at = 0; at < 11; ++at) {
                VecDotRows rows(format, 11);
                rows.fill(random);
                VecDotRows::put(rows.a_block(at) + 2, bad);
                require_all_equal(rows);
                const float got = run(cpu::find_vec_dot_reference(format.id), rows);
                CHECK(std::isfinite(got));
                // Where d is 1, the sum of the bytes is what a writer would have stored.
                VecDotRows::put(rows.a_block(at), uint16_t{0x3C00});
                const float recomputed = run(cpu::find_vec_dot_reference(format.id), rows);
                int sum = 0;
                for (size_t e = 0; e < 32; ++e) {
                    sum += static_cast<int8_t>(rows.a_block(at)[4 + e]);
                }
                VecDotRows::put(rows.a_block(at) + 2, static_cast<_Float16>(sum));
                if (std::abs(sum) <= 2048) {
                    CHECK(same(run(cpu::find_vec_dot_reference(format.id), rows), recomputed));
                }
            }
        }
    }
}

TEST_CASE("scales that are not finite come out as the reference has them", "[vec_dot]") {
    std::mt19937 random(15);
    for (const VecDotFormat &format : vec_dot_formats()) {
        for (const uint16_t bad : kNotFinite) {
            for (const size_t field : format.w_halves) {
                VecDotRows rows(format, 5);
                rows.fill(random);
                VecDotRows::put(rows.w_block(3) + field, bad);
                require_all_equal(rows);
            }
        }
    }
}

TEST_CASE("the caller's floating-point mode is neither obeyed nor changed", "[vec_dot]") {
    std::mt19937 random(16);
    const unsigned before = _mm_getcsr();
    for (const VecDotFormat &format : vec_dot_formats()) {
        VecDotRows rows(format, 9);
        rows.fill(random);
        if (format.block == 256) { // products that are subnormal in f32
            for (size_t b = 0; b < rows.blocks; ++b) {
                VecDotRows::put(rows.a_block(b), 3e-42f);
            }
        }
        std::vector<nybl_vec_dot_fn> functions = {cpu::find_vec_dot_reference(format.id)};
        for (const nybl_isa isa : native_isas()) {
            functions.push_back(cpu::find_vec_dot(format.id, isa));
        }
        for (const nybl_vec_dot_fn function : functions) {
            float plain = 0;
            function(rows.k(), rows.w.data(), rows.a.data(), &plain);
            for (const unsigned mode :
                 {0x8040u, 0x6000u, 0x2000u, 0x4000u, 0xE040u}) { // FTZ and DAZ; rounding
                const unsigned mxcsr = (before & ~0xE07Fu) | mode;
                float got = 0;
                _mm_setcsr(mxcsr);
                function(rows.k(), rows.w.data(), rows.a.data(), &got);
                const unsigned after = _mm_getcsr();
                _mm_setcsr(before);
                CHECK(after == mxcsr);
                CHECK(same(got, plain));
            }
        }
    }
}

TEST_CASE("generated dot products keep both calling conventions", "[vec_dot]") {
    if (native_isas().empty()) {
        SKIP("no generated kernel runs here: this machine or NYBL_MAX_ISA has no AVX2");
    }
    std::mt19937 random(17);
    for (const VecDotFormat &format : vec_dot_formats()) {
        for (const nybl_isa isa : native_isas()) {
            for (const cpu::jit::Abi abi : {cpu::jit::Abi::SystemV, cpu::jit::Abi::Win64}) {
                const cpu::jit::KernelKey key{cpu::jit::KernelKind::VecDot, format.id, isa};
                cpu::jit::VecDot32 of_32(key);
                cpu::jit::VecDot256 of_256(key);
                cpu::jit::VecDotQ6K of_q6_k(key);
                const std::span<const uint8_t> code = format.block == 32       ? of_32.finish(abi)
                                                      : format.id == NYBL_Q6_K ? of_q6_k.finish(abi)
                                                                               : of_256.finish(abi);
                const void *entry = cpu::jit::make_executable(code);
                REQUIRE(entry != nullptr);
                VecDotRows rows(format, 15);
                rows.fill(random);
                float out = 0;
                const cpu::jit::VecDotArgs args{rows.w.data(), rows.a.data(), rows.blocks, &out};
                CAPTURE(format.name, cpu::isa_name(isa), abi == cpu::jit::Abi::Win64);
                CHECK(test::broken_by_call(entry, &args, abi) == "");
                cpu::jit::release_executable(entry, code.size());
            }
        }
    }
}

TEST_CASE("formats without a block-level dot product have none", "[vec_dot]") {
    for (const nybl_format format : {NYBL_F32, NYBL_Q8_1, NYBL_Q8_K}) {
        CHECK(cpu::find_vec_dot(format, NYBL_ISA_AMX) == nullptr);
        CHECK(cpu::find_vec_dot(format, NYBL_ISA_SCALAR) == nullptr);
        CHECK(cpu::jit::vec_dot_kernel(format, NYBL_ISA_AVX2) == nullptr);
    }
    for (const VecDotFormat &format : vec_dot_formats()) {
        CHECK(cpu::find_vec_dot(format.id, NYBL_ISA_SCALAR) == cpu::find_vec_dot_reference(format.id));
    }
}
