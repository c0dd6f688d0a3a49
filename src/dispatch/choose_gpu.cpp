// The rules for GPU contexts.
#include "dispatch/choose_gpu.h"

#include <algorithm>
#include <cstdio>

#include "quant/format.h"

namespace nybl::dispatch {
namespace {

constexpr uint32_t kGemvMaxM = 8;
constexpr uint32_t kInt8GemmTokens = 4; // eight spill on DG2

// Tokens per work-item of the prefill kernel: what a device's registers hold beside the weights.
constexpr uint32_t gemm_tokens(gpu::Variant variant) noexcept {
    return variant == gpu::Variant::Lane ? 4 : 8;
}

constexpr uint32_t gemv_tokens(size_t m) noexcept {
    return m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
}

gpu::Activations activations(nybl_compute compute, const gpu::Traits &traits) noexcept {
    if (compute == NYBL_COMPUTE_INT8)
        return gpu::Activations::Int8;
    const bool half =
        traits.fp16 && traits.variant == gpu::Variant::Subgroup && compute == NYBL_COMPUTE_DEFAULT;
    return half ? gpu::Activations::F16 : gpu::Activations::F32;
}

// Why the CPU runs a shape; NULL where a kernel serves it.
const char *refusal(const Shape &shape, const gpu::Traits &traits) noexcept {
    if (!gpu::has_kernels(shape.format))
        return "cpu: no GPU kernel reads this format";
    if (shape.storage != NYBL_STORAGE_PACKED)
        return "cpu: weights in original storage are not copied to a GPU";
    if (shape.compute == NYBL_COMPUTE_BF16)
        return "cpu: no GPU kernel multiplies in bf16";
    if (shape.compute == NYBL_COMPUTE_INT8 && traits.variant == gpu::Variant::Vector)
        return "cpu: the device is a CPU, and the CPU path multiplies int8 faster";
    if (std::max({shape.m, shape.n, shape.k, shape.n_experts}) > INT32_MAX)
        return "cpu: a size is beyond 2^31";
    return nullptr;
}

// Weights that oneDNN holds: its kernels or the CPU.
GpuChoice choose_onednn(const Shape &shape, const gpu::Traits &traits, const gpu::Placement &place) noexcept {
    GpuChoice choice{};
    if (shape.compute != NYBL_COMPUTE_DEFAULT) {
        std::snprintf(
            choice.reason, sizeof choice.reason,
            "cpu: the weights are on the device in oneDNN's form, which serves the default compute");
        return choice;
    }
    if (!place.served) {
        std::snprintf(choice.reason, sizeof choice.reason, "cpu: %s", place.note);
        return choice;
    }
    choice.served = true;
    choice.tile_rows = static_cast<uint32_t>(place.use.plan.m);
    std::snprintf(choice.name, sizeof choice.name, "onednn:%s %s", place.use.implementation,
                  gpu::mode_name(place.use.plan.mode));
    char plan[112];
    gpu::write_plan(place.use.plan, plan, sizeof plan);
    std::snprintf(choice.reason, sizeof choice.reason, "oneDNN serves the device: %.70s; on %.50s", plan,
                  traits.name);
    return choice;
}

} // namespace

GpuChoice choose_gpu(const Shape &shape, const gpu::Traits &traits, const gpu::Placement &place) noexcept {
    GpuChoice choice{};
    if (const char *why = refusal(shape, traits)) {
        std::snprintf(choice.reason, sizeof choice.reason, "%s", why);
        return choice;
    }
    if (place.onednn)
        return choose_onednn(shape, traits, place);
    choice.served = true;
    // Each expert sees its share of the rows.
    const size_t rows = shape.n_experts > 1 ? (shape.m + shape.n_experts - 1) / shape.n_experts : shape.m;
    const bool decode = rows <= kGemvMaxM;
    const gpu::Activations x = activations(shape.compute, traits);
    const uint32_t most = x == gpu::Activations::Int8 ? kInt8GemmTokens : gemm_tokens(traits.variant);
    choice.kernel = {decode ? gpu::Op::Gemv : gpu::Op::Gemm, decode ? gemv_tokens(rows) : most, x};
    std::snprintf(choice.name, sizeof choice.name, "opencl:%s %s 16x%u %s", decode ? "gemv" : "gemm",
                  quant::find_format(shape.format)->name, gpu::tile_tokens(traits.variant, choice.kernel),
                  gpu::variant_name(traits.variant));
    choice.tile_rows = choice.kernel.tokens;
    std::snprintf(choice.reason, sizeof choice.reason, "%s; activations in %s; %s%.64s",
                  decode ? "few tokens: weights are read once"
                         : "many tokens: weights are unpacked once per tile of them",
                  gpu::activations_name(x), place.note[0] ? "" : "on ",
                  place.note[0] ? place.note : traits.name);
    return choice;
}

} // namespace nybl::dispatch
