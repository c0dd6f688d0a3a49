// The dispatch table and the rules around it.
#include "dispatch/choose.h"

#include <algorithm>
#include <cstdio>

#include "cpu/isa.h"
#include "cpu/jit/f32_kernel.h"
#include "cpu/jit/tile_kernel.h"
#include "quant/format.h"

namespace nybl::dispatch {
namespace {

// How an instruction set is used. One line per set, best last; re-measured by hand until `tune` exists.
struct KernelSet {
    nybl_isa isa;
    nybl_isa stream_isa;    // whose kernels read packed panels: AMX has none of its own
    uint32_t stream_max_m;  // above this many tokens, unpacking a panel once for all of them pays
    uint32_t stream_tokens; // tokens per tile, at most
    uint32_t tiled_tokens;
    uint32_t tiled_panels;
};
constexpr KernelSet kKernelSets[] = {
    {NYBL_ISA_AVX2, NYBL_ISA_AVX2, 28, 16, 4, 1},
    {NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX_VNNI, 48, 16, 6, 1},
    {NYBL_ISA_AVX512_VNNI, NYBL_ISA_AVX512_VNNI, 48, 16, 12, 2},
    {NYBL_ISA_AMX, NYBL_ISA_AVX512_VNNI, 48, 16, 16, 1},
};

const KernelSet *best_set(nybl_isa isa) noexcept {
    const KernelSet *best = nullptr;
    for (const KernelSet &set : kKernelSets)
        if (set.isa <= isa)
            best = &set;
    return best;
}

// Tokens per tile so that m tokens make equal tiles: 17 over at most 16 are 9 and 8, not 16 and 1.
uint32_t even_tiles(size_t m, uint32_t most) noexcept {
    const size_t tiles = (m + most - 1) / most;
    return static_cast<uint32_t>((m + tiles - 1) / tiles);
}

struct Rule {
    cpu::KernelChoice kernel;
    const char *op;
    const char *reason;
};

// The layout of the activations, mr, depends on the instruction set and m alone: the products of a job share
// it, whatever their formats and kernels.
Rule apply_rules(const Shape &shape) noexcept {
    cpu::KernelChoice kernel;
    const KernelSet *set = best_set(shape.isa);
    const cpu::PanelLayout *layout = cpu::find_panel_layout(shape.format);
    const size_t m = std::max<size_t>(shape.m, 1);
    if (shape.compute == NYBL_COMPUTE_F32) {
        kernel.strategy = cpu::Strategy::F32;
        if (!set || !layout)
            return {kernel, "f32", "unquantised activations were asked for; no generated kernel"};
        kernel.isa = set->stream_isa;
        kernel.mr = even_tiles(m, static_cast<uint32_t>(cpu::jit::f32_tokens(kernel.isa)));
        kernel.nr = static_cast<uint32_t>(cpu::kPanelRows * cpu::jit::f32_panels(kernel.isa));
        return {kernel, "f32", "unquantised activations were asked for"};
    }
    if (!set)
        return {kernel, "reference",
                "the instruction set is scalar: by the machine, NYBL_MAX_ISA, max_isa, or a system that "
                "refuses generated code"};
    const bool stream = m <= set->stream_max_m;
    kernel.mr = even_tiles(m, stream ? set->stream_tokens : set->tiled_tokens);
    kernel.stream_max_m = set->stream_max_m;
    if (!layout)
        return {kernel, "reference", "no generated kernel for this format"};
    kernel.strategy = stream ? cpu::Strategy::Stream : cpu::Strategy::Tiled;
    kernel.isa = stream ? set->stream_isa : set->isa;
    kernel.nr = static_cast<uint32_t>(
        cpu::kPanelRows * (stream ? cpu::jit::stream_panels(kernel.isa, kernel.mr) : set->tiled_panels));
    if (shape.n_experts > 1)
        return {kernel, "moe",
                stream ? "experts, few tokens: weights are read once, all experts in one range"
                       : "experts: those with many tokens unpack each panel once and reuse it"};
    if (shape.storage == NYBL_STORAGE_ORIGINAL)
        return stream
                   ? Rule{kernel, "decode_original", "few tokens: original rows are gathered piece by piece"}
                   : Rule{kernel, "prefill_original",
                          "many tokens: original rows are gathered into panels, which are reused"};
    return stream ? Rule{kernel, "decode", "few tokens: weights are read once and unpacked in registers"}
                  : Rule{kernel, "prefill", "many tokens: each panel is unpacked once and reused"};
}

void lower_case(char *text) noexcept {
    for (; *text; ++text)
        if (*text >= 'A' && *text <= 'Z')
            *text = static_cast<char>(*text - 'A' + 'a');
}

} // namespace

Choice choose(const Shape &shape) noexcept {
    const Rule rule = apply_rules(shape);
    const quant::Format *format = quant::find_format(shape.format);
    Choice choice;
    choice.kernel = rule.kernel;
    std::snprintf(choice.name, sizeof choice.name, "%s_%s_%ux%u_%s", rule.op,
                  format ? format->name : "unknown", rule.kernel.nr, rule.kernel.mr,
                  cpu::isa_name(rule.kernel.isa));
    lower_case(choice.name);
    std::snprintf(choice.reason, sizeof choice.reason, "%s", rule.reason);
    return choice;
}

} // namespace nybl::dispatch
