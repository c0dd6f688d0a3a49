// The shapes that kernels have on each kind of device.
#include "gpu/variant.h"

#include <cstdio>

#include "cpu/panel.h"
#include "gpu/affine.h"

namespace nybl::gpu {
namespace {

constexpr uint32_t kTeams = 8;  // TEAMS of gemm.cl
constexpr uint32_t kSplits = 8; // work-items that share a row's groups: a GPU is filled where N is small

// Codes are stored as unsigned numbers above it.
int code_bias(nybl_format format) noexcept {
    return format == NYBL_Q4_0 ? 8 : format == NYBL_Q5_0 ? 16 : format == NYBL_Q6_K ? 32 : 0;
}

} // namespace

bool has_kernels(nybl_format format) noexcept {
    CodeType codes;
    return affine_code_type(format, &codes);
}

const char *variant_name(Variant variant) noexcept {
    constexpr const char *kNames[] = {"vector", "lane", "subgroup"};
    return kNames[static_cast<size_t>(variant)];
}

const char *activations_name(Activations x) noexcept {
    constexpr const char *kNames[] = {"f32", "f16", "int8"};
    return kNames[static_cast<size_t>(x)];
}

bool is_tiled(Variant variant, const KernelChoice &kernel) noexcept {
    return kernel.op == Op::Gemm && variant != Variant::Subgroup && kernel.x != Activations::Int8;
}

GroupBytes prepared_group(Activations x) noexcept {
    constexpr GroupBytes kBytes[] = {{32 * 4, 4}, {32 * 2, 4}, {32, 8}};
    return kBytes[static_cast<size_t>(x)];
}

uint32_t tile_tokens(Variant variant, const KernelChoice &kernel) noexcept {
    return is_tiled(variant, kernel) ? kTeams * kernel.tokens : kernel.tokens;
}

void write_build_options(Variant variant, bool integer_dot, const KernelKey &key, char *text,
                         size_t size) noexcept {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(key.format);
    std::snprintf(text, size,
                  "-D ROWS=%d -D SUBGROUPS=%d -D TOKENS=%u -D SPLITS=%u -D X_HALF=%d -D EXPERTS=%d "
                  "-D BLOCK_BYTES=%u -D BLOCK_GROUPS=%u -D MIN_OFFSET=%u -D SCALES_OFFSET=%u "
                  "-D QUANTS_OFFSET=%u -D GROUP_BYTES=%u -D HIGH_BYTES=%u -D CODE_BITS=%u -D SUB_SCALES=%d "
                  "-D CODE_BIAS=%d -D LUT=%d%s",
                  variant == Variant::Vector ? 16 : 1, variant == Variant::Subgroup, key.kernel.tokens,
                  work_group(variant, key.kernel).rows, key.kernel.x == Activations::F16, key.experts,
                  layout.block_bytes, layout.block_k / 32, layout.min_offset, layout.scales_offset,
                  layout.quants_offset, layout.group_bytes, layout.high_bytes, layout.code_bits,
                  key.format == NYBL_Q6_K, code_bias(key.format), key.format == NYBL_IQ4_NL,
                  integer_dot && key.kernel.x == Activations::Int8 ? " -cl-std=CL3.0" : "");
}

WorkGroup work_group(Variant variant, const KernelChoice &kernel) noexcept {
    const uint32_t lanes = variant == Variant::Vector ? 1 : 16;
    if (is_tiled(variant, kernel))
        return {lanes, kTeams};
    return {lanes, variant == Variant::Vector || kernel.op == Op::Gemm ? 1 : kSplits};
}

} // namespace nybl::gpu
