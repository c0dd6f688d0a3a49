// Products by kernels of the Win64 calling convention have the bits of the scalar reference, and give back
// what that convention promises (win64_place.cpp watches).
#include "placed/win64_place.h"

#include <catch2/catch_test_macros.hpp>

#include <iterator>

#include "capi/support.h"
#include "cpu/isa.h"
#include "cpu/vec_dot.h"

using namespace capi_test;
using nybl::cpu::jit::KernelKind;

namespace {

std::vector<nybl_isa> native_isas() {
    std::vector<nybl_isa> isas;
    for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX})
        if (make_context(1, isa).isa() == isa)
            isas.push_back(isa);
    return isas;
}

} // namespace

TEST_CASE("win64: every kernel family gives the reference's bits and the caller's registers") {
    const std::vector<nybl_isa> isas = native_isas();
    if (isas.empty())
        SKIP("this machine or NYBL_MAX_ISA has no AVX2");
    const size_t n = 35, k = 512, most = 49;
    const nybl::Context scalar = make_context(1, NYBL_ISA_SCALAR);
    for (const nybl_format format : kFormats) {
        const auto blocks = random_blocks(format, n, k, 1);
        const nybl::Weights reference(scalar,
                                      describe(format, n, k, blocks.data(), 1, NYBL_STORAGE_ORIGINAL));
        std::vector<nybl::Weights> weights;
        for (const nybl_isa isa : isas)
            for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                const auto desc = describe(format, n, k, blocks.data(), 1, storage);
                nybl_weights *made = nullptr;
                const nybl_status status = nybl_weights_create(make_context(2, isa).get(), &desc, &made);
                CHECK((status == NYBL_OK || status == NYBL_UNSUPPORTED)); // no packed layout
                if (status == NYBL_OK)
                    weights.emplace_back(made);
            }
        for (const size_t m : {size_t{1}, size_t{3}, size_t{16}, most})
            for (const nybl_format type : {NYBL_F32, NYBL_F16, NYBL_BF16})
                for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
                    const auto x = random_floats(m * k, 2); // read as f16 or bf16: any numbers
                    const auto product = [&](const nybl::Weights &w) {
                        std::vector<float> y = unwritten(m * n);
                        auto args = f32_args(m, x.data(), y.data());
                        args.x_type = type;
                        args.compute = compute;
                        w.matmul(args);
                        for (float &value : y) // any NaN equals any NaN
                            value = value == value ? value : 0.0f;
                        return bits(y);
                    };
                    const auto expected = product(reference);
                    for (const nybl::Weights &w : weights) {
                        INFO(w.explain(m).name << " m " << m << " type " << type << " compute " << compute);
                        CHECK(product(w) == expected);
                    }
                }
        auto info = nybl::make<nybl_format_info>();
        nybl::check(nybl_format_get_info(format, &info));
        const auto a = nybl::quantize(info.vec_dot_type, 1, k, random_floats(k, 3).data());
        for (const nybl_isa isa : isas) {
            const nybl_vec_dot_fn fast = nybl::cpu::find_vec_dot(format, isa);
            const nybl_vec_dot_fn plain = nybl::cpu::find_vec_dot(format, NYBL_ISA_SCALAR);
            if (fast == nullptr)
                continue;
            std::vector<float> got(1), wanted(1);
            fast(k, blocks.data(), a.data(), got.data());
            plain(k, blocks.data(), a.data(), wanted.data());
            CHECK(bits(got) == bits(wanted));
        }
    }
    // Nothing of this would show where a family was left to the reference.
    const auto placed = nybl::test::placed_kernels();
    for (const nybl_isa isa : isas) {
        const nybl_isa vectors = isa == NYBL_ISA_AMX ? NYBL_ISA_AVX512_VNNI : isa; // AMX is for tiles only
        INFO(nybl_isa_string(isa));
        CHECK(placed.count({KernelKind::Prefill, isa}) == 1);
        for (const KernelKind kind :
             {KernelKind::Decode, KernelKind::DecodeOriginal, KernelKind::Unpack, KernelKind::Gather,
              KernelKind::Quantize, KernelKind::VecDot, KernelKind::Dequantize, KernelKind::F32}) {
            INFO("kind " << int(kind));
            CHECK(placed.count({kind, vectors}) == 1);
        }
    }
}
