// Micro-kernels and unpackers of every format, tile and instruction set keep the promises of the calling
// convention: registers, stack, MXCSR, direction flag, clean upper halves.
#include <catch2/catch_test_macros.hpp>

#include "cpu/activation.h"
#include "cpu/isa.h"
#include "cpu/jit/amx_kernel.h"
#include "cpu/jit/tile_kernel.h"
#include "cpu/jit/unpack_kernel.h"
#include "cpu/jit/weight_generator.h"
#include "fenced.h"
#include "kernels/canary.h"
#include "kernels/product.h"

namespace nybl::test {
namespace {

using namespace cpu::jit;
using Fence = Fenced::Fence;

template <class Function>
std::string broken(Function kernel, const void *args) {
    return kernel ? broken_by_call(reinterpret_cast<const void *>(kernel), args, kHostAbi) : "not generated";
}

// Zeros as operands of two blocks (Packed) or as many groups (Bytes).
std::string broken_tile(WeightForm form, nybl_format format, nybl_isa isa, size_t panels, size_t tokens) {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format);
    const size_t blocks = 2, groups = form == WeightForm::Packed ? blocks * layout.block_k / 32 : blocks;
    const size_t panel =
        blocks * (form == WeightForm::Packed ? layout.block_bytes : size_t(byte_group_bytes(layout, isa)));
    const Fenced w(panels * panel, Fence::Before),
        a(cpu::activation_bytes(tokens, 32 * groups), Fence::Before),
        c(panels * tokens * cpu::kPanelRows * sizeof(float));
    const TileArgs args{w.data(), panel, a.data(), c.as<float>(), blocks};
    const TileFn kernel =
        isa == NYBL_ISA_AMX ? amx_kernel(format, tokens) : tile_kernel(form, format, isa, panels, tokens);
    return broken(kernel, &args);
}

} // namespace

TEST_CASE("micro-kernels keep the promises of the calling convention", "[kernels][jit]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_format format : kPanelFormats)
        for (const nybl_isa isa : runnable_isas())
            for (const WeightForm form : {WeightForm::Packed, WeightForm::Bytes})
                for (size_t panels = 1; panels <= 4; ++panels)
                    for (size_t tokens = 1; tokens <= kMaxTokens; ++tokens) {
                        if (isa == NYBL_ISA_AMX && (form == WeightForm::Packed || panels > 1))
                            continue;
                        if (form == WeightForm::Packed && panels > stream_panels(isa, tokens))
                            continue;
                        CAPTURE(quant::find_format(format)->name, cpu::isa_name(isa), int(form), panels,
                                tokens);
                        CHECK(broken_tile(form, format, isa, panels, tokens) == "");
                    }
}

TEST_CASE("unpackers keep the promises of the calling convention", "[kernels][jit]") {
    if (runnable_isas().empty())
        SKIP("this machine has no AVX2");
    for (const nybl_format format : kPanelFormats)
        for (const nybl_isa isa : runnable_isas()) {
            const cpu::PanelLayout &layout = *cpu::find_panel_layout(format);
            const size_t blocks = 3, groups = blocks * layout.block_k / 32;
            const Fenced src(blocks * layout.block_bytes, Fence::Before),
                dst(groups * size_t(byte_group_bytes(layout, isa)), Fence::Before);
            const UnpackArgs args{src.data(), dst.data(), blocks};
            CAPTURE(quant::find_format(format)->name, cpu::isa_name(isa));
            CHECK(broken(unpack_kernel(format, isa), &args) == "");
            CHECK(src.intact());
            CHECK(dst.intact());
        }
}

} // namespace nybl::test
