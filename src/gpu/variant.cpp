// The shapes that kernels have on each kind of device.
#include "gpu/variant.h"

namespace nybl::gpu {
namespace {

constexpr uint32_t kTeams = 8;  // TEAMS of gemm.cl
constexpr uint32_t kSplits = 8; // work-items that share a row's groups: a GPU is filled where N is small

} // namespace

const char *variant_name(Variant variant) noexcept {
    constexpr const char *kNames[] = {"vector", "lane", "subgroup"};
    return kNames[static_cast<size_t>(variant)];
}

bool is_tiled(Variant variant, Op op) noexcept {
    return op == Op::Gemm && variant != Variant::Subgroup;
}

uint32_t tile_tokens(Variant variant, const KernelChoice &kernel) noexcept {
    return is_tiled(variant, kernel.op) ? kTeams * kernel.tokens : kernel.tokens;
}

WorkGroup work_group(Variant variant, Op op) noexcept {
    const uint32_t lanes = variant == Variant::Vector ? 1 : 16;
    if (is_tiled(variant, op))
        return {lanes, kTeams};
    return {lanes, variant == Variant::Vector || op == Op::Gemm ? 1 : kSplits};
}

} // namespace nybl::gpu
