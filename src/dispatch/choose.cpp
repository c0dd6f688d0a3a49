// The dispatch table and the rules around it.
#include "dispatch/choose.h"

#include <cstdio>

#include "cpu/isa.h"
#include "quant/format.h"

namespace nybl::dispatch {
namespace {

// What the generated kernels of an instruction set look like. One line per set, best last.
struct KernelSet {
    nybl_isa isa;
    uint32_t mr; // tokens per tile: one value per set, since the products of a job share the activations
    uint32_t stream_max_m; // above this many tokens, unpacking a panel once for all of them pays
};
constexpr KernelSet kKernelSets[] = {
    {NYBL_ISA_AVX2, 4, 16},
    {NYBL_ISA_AVX_VNNI, 4, 16},
    {NYBL_ISA_AVX512_VNNI, 4, 16},
};

const KernelSet *best_set(nybl_isa isa) noexcept {
    const KernelSet *best = nullptr;
    for (const KernelSet &set : kKernelSets)
        if (set.isa <= isa)
            best = &set;
    return best;
}

struct Rule {
    cpu::KernelChoice kernel;
    const char *op;
    const char *reason;
};

constexpr cpu::KernelChoice kReference{cpu::Strategy::Reference, NYBL_ISA_SCALAR, 1, cpu::kPanelRows, 0};
constexpr cpu::KernelChoice kUnquantised{cpu::Strategy::F32, NYBL_ISA_SCALAR, 1, cpu::kPanelRows, 0};

Rule apply_rules(const Shape &shape) noexcept {
    if (shape.compute == NYBL_COMPUTE_F32)
        return {kUnquantised, "f32", "unquantised activations were asked for"};
    const KernelSet *set = best_set(shape.isa);
    if (!set)
        return {kReference, "reference",
                "the instruction set is scalar: by the machine, NYBL_MAX_ISA or max_isa"};
    if (!cpu::find_panel_layout(shape.format))
        return {kReference, "reference", "no generated kernel for this format"};
    if (shape.storage == NYBL_STORAGE_ORIGINAL)
        return {kReference, "reference", "no generated kernel for original blocks"};
    const bool stream = shape.m <= set->stream_max_m;
    const cpu::KernelChoice kernel{stream ? cpu::Strategy::Stream : cpu::Strategy::Tiled, set->isa, set->mr,
                                   cpu::kPanelRows, set->stream_max_m};
    if (shape.n_experts > 1)
        return {kernel, "moe",
                stream ? "experts, few tokens: weights are read once, all experts in one range"
                       : "experts: those with many tokens unpack each panel once and reuse it"};
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
