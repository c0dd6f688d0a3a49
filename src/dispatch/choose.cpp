// The rules of dispatch; the numbers that they compare with are in tuning.cpp.
#include "dispatch/choose.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "cpu/isa.h"
#include "cpu/jit/f32_kernel.h"
#include "cpu/jit/tile_kernel.h"
#include "quant/format.h"

namespace nybl::dispatch {
namespace {

constexpr size_t divide_up(size_t a, size_t b) noexcept {
    return a / b + (a % b != 0); // any m may be asked about
}

// Tokens per tile so that m tokens make equal tiles: 17 over at most 16 are 9 and 8, not 16 and 1.
uint32_t even_tiles(size_t m, uint32_t most) noexcept {
    return static_cast<uint32_t>(divide_up(m, divide_up(m, most)));
}

// Tokens that an expert meets on average; a token is usually sent to an eighth of them or less.
size_t mean_tokens(const Shape &shape, size_t m) noexcept {
    if (shape.n_experts <= 1)
        return m;
    constexpr size_t kUsualShare = 8;
    return shape.rows ? divide_up(shape.rows, shape.n_experts) : divide_up(m, kUsualShare);
}

struct Rule {
    cpu::KernelChoice kernel;
    const char *op;
    const char *reason;
    const KernelSet *threshold = nullptr; // whose stream_max_m decided, if one did
};

// The layout of the activations, mr, depends on the instruction set, m and the tuning alone: the products of
// a job share it, whatever their formats and kernels.
Rule apply_rules(const Shape &shape, size_t m) noexcept {
    cpu::KernelChoice kernel;
    const KernelSet *set = shape.tuning->find(shape.isa);
    const cpu::PanelLayout *layout = cpu::find_panel_layout(shape.format);
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
    // Experts of few tokens are streamed one by one, so tiles are those of streaming.
    const bool stream_tiles = mean_tokens(shape, m) <= set->stream_max_m;
    kernel.mr = even_tiles(m, stream_tiles ? set->stream_tokens : set->tiled_tokens);
    kernel.stream_max_m = set->stream_max_m;
    if (!layout)
        return {kernel, "reference", "no generated kernel for this format"};
    kernel.strategy = stream ? cpu::Strategy::Stream : cpu::Strategy::Tiled;
    kernel.isa = stream ? set->stream_isa : set->isa;
    kernel.nr =
        static_cast<uint32_t>(cpu::kPanelRows * (stream ? cpu::jit::stream_panels(kernel.isa, kernel.mr)
                                                        : size_t(set->tiled_panels)));
    if (shape.n_experts > 1)
        return {kernel, "moe",
                stream ? "weights are read once, all experts in one range"
                       : "experts with that many unpack each panel once and reuse it",
                set};
    if (shape.storage == NYBL_STORAGE_ORIGINAL)
        return stream ? Rule{kernel, "decode_original", "original rows are read once, where they lie", set}
                      : Rule{kernel, "prefill_original",
                             "original rows are gathered into panels, which are reused", set};
    return stream ? Rule{kernel, "decode", "weights are read once and unpacked in registers", set}
                  : Rule{kernel, "prefill", "each panel is unpacked once and reused", set};
}

// "M = 12 <= 16 (table): weights are read once ...". What does not fit is left out: a refusal's end, at
// worst, which the context's log has in full.
void explain(const Shape &shape, size_t m, const Rule &rule, char *reason, size_t size) noexcept {
    size_t used = 0;
    const auto add = [&](std::string_view text) {
        const size_t length = std::min(text.size(), size - 1 - used);
        std::memcpy(reason + used, text.data(), length);
        used += length;
        reason[used] = '\0';
    };
    if (const KernelSet *set = rule.threshold) {
        char compared[64];
        std::snprintf(compared, sizeof compared, "M = %zu %s %u (%s): ", m,
                      m <= set->stream_max_m ? "<=" : ">", set->stream_max_m.value,
                      set->stream_max_m.source());
        add(compared);
    }
    add(rule.reason);
    if (shape.tuning->refusal[0] != '\0') {
        add("; NYBL_TUNING is ignored: ");
        add(shape.tuning->refusal);
    }
}

void lower_case(char *text) noexcept {
    for (; *text; ++text)
        if (*text >= 'A' && *text <= 'Z')
            *text = static_cast<char>(*text - 'A' + 'a');
}

} // namespace

cpu::KernelChoice choose_kernel(const Shape &shape) noexcept {
    return apply_rules(shape, std::max<size_t>(shape.m, 1)).kernel;
}

Choice choose(const Shape &shape) noexcept {
    const size_t m = std::max<size_t>(shape.m, 1);
    const Rule rule = apply_rules(shape, m);
    const quant::Format *format = quant::find_format(shape.format);
    Choice choice;
    choice.kernel = rule.kernel;
    std::snprintf(choice.name, sizeof choice.name, "%s_%s_%ux%u_%s", rule.op,
                  format ? format->name : "unknown", rule.kernel.nr, rule.kernel.mr,
                  cpu::isa_name(rule.kernel.isa));
    lower_case(choice.name);
    explain(shape, m, rule, choice.reason, sizeof choice.reason);
    return choice;
}

} // namespace nybl::dispatch
