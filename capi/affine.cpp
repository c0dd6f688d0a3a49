// nybl_affine_sizes and nybl_affine_export.
#include "gpu/affine.h"

#include <algorithm>
#include <atomic>

#include "checks.h"
#include "context.h"
#include "quant/codec.h"

namespace nybl::capi {
namespace {

// The caller's description, and what it plans for n rows of k.
nybl_status read_plan(nybl_format format, uint64_t n, uint64_t k, const nybl_affine_desc *given,
                      nybl_affine_desc *desc, gpu::AffinePlan *plan) noexcept {
    if (const nybl_status status = read_struct(given, "desc", desc); status != NYBL_OK)
        return status;
    const quant::Format *known = nullptr;
    if (const nybl_status status = get_weight_format(format, &known); status != NYBL_OK)
        return status;
    return gpu::plan_affine(format, n, k, desc->param_type, desc->layout, desc->codes_k_major != 0, plan);
}

nybl_status sizes(nybl_format format, uint64_t n, uint64_t k, nybl_affine_desc *out) {
    nybl_affine_desc desc{};
    gpu::AffinePlan plan;
    if (const nybl_status status = read_plan(format, n, k, out, &desc, &plan); status != NYBL_OK)
        return status;
    desc.codes_size = plan.codes_size;
    desc.scales_size = plan.scales_size;
    desc.zeros_size = plan.zeros_size;
    write_struct(desc, out);
    return NYBL_OK;
}

nybl_status check_buffer(const void *ptr, size_t size, size_t needed, const char *what) noexcept {
    if (size < needed)
        return fail(NYBL_BUFFER_TOO_SMALL, "desc: %s is %zu bytes; this export needs %zu", what, size,
                    needed);
    return check_pointer(ptr, needed, 1, what);
}

nybl_status check_buffers(const gpu::AffinePlan &plan, const nybl_affine_desc &desc) noexcept {
    if (const nybl_status status = check_buffer(desc.codes, desc.codes_size, plan.codes_size, "codes");
        status != NYBL_OK)
        return status;
    if (const nybl_status status = check_buffer(desc.scales, desc.scales_size, plan.scales_size, "scales");
        status != NYBL_OK)
        return status;
    return check_buffer(desc.zeros, desc.zeros_size, plan.zeros_size, "zeros");
}

// Runs body(begin, end) over parts of [0, total) on the context's threads, or at once on this one.
template <class Body>
void for_parts(nybl_context *ctx, size_t total, const Body &body) noexcept {
    if (!ctx) {
        body(size_t{0}, total);
        return;
    }
    const auto parts = static_cast<uint32_t>(std::min<size_t>(total, ctx->pool.n_threads()));
    parallel_for(ctx, parts, [&](uint32_t i) {
        const Range range = share(total, i, parts);
        body(range.begin, range.end);
    });
}

nybl_status check_source(nybl_context *ctx, const gpu::AffinePlan &plan,
                         const gpu::AffineSource &source) noexcept {
    if (!ctx)
        return gpu::check_affine(plan, source, 0, plan.n);
    std::atomic<bool> bad{false};
    for_parts(ctx, plan.n, [&](size_t begin, size_t end) {
        if (gpu::check_affine(plan, source, begin, end) != NYBL_OK)
            bad.store(true, std::memory_order_relaxed);
    });
    // Again on this thread, whose error sentence the caller reads, and from the first row on.
    return bad.load(std::memory_order_relaxed) ? gpu::check_affine(plan, source, 0, plan.n) : NYBL_OK;
}

void raise_to(std::atomic<float> *largest, float value) noexcept {
    float seen = largest->load(std::memory_order_relaxed);
    while (seen < value && !largest->compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

nybl_status run_export(nybl_format format, uint64_t n, uint64_t k, const void *src, size_t given_stride,
                       nybl_affine_desc *out) {
    nybl_affine_desc desc{};
    gpu::AffinePlan plan;
    if (const nybl_status status = read_plan(format, n, k, out, &desc, &plan); status != NYBL_OK)
        return status;
    size_t row_bytes = 0, stride = 0;
    if (const nybl_status status = quant::row_bytes(*plan.format, k, &row_bytes); status != NYBL_OK)
        return status;
    if (const nybl_status status =
            resolve_stride(given_stride, row_bytes, row_bytes, 1, "src_stride", &stride);
        status != NYBL_OK)
        return status;
    const Checked extent = k == 0 ? Checked(0) : strided_bytes(n, stride, row_bytes);
    if (const nybl_status status = check_size(extent, "src_stride"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(src, extent.value(), 1, "src"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_buffers(plan, desc); status != NYBL_OK)
        return status;

    if (n == 0 || k == 0) { // any number of rows without elements
        desc.max_rounding_error = 0;
        write_struct(desc, out);
        return NYBL_OK;
    }
    const gpu::AffineSource source{static_cast<const uint8_t *>(src), stride};
    const gpu::AffineTarget target{static_cast<uint8_t *>(desc.codes), static_cast<uint8_t *>(desc.scales),
                                   static_cast<uint8_t *>(desc.zeros)};
    if (const nybl_status status = check_source(desc.ctx, plan, source); status != NYBL_OK)
        return status;
    std::atomic<float> largest{0.0f};
    for_parts(desc.ctx, gpu::affine_items(plan), [&](size_t begin, size_t end) {
        raise_to(&largest, gpu::export_affine(plan, source, target, begin, end));
    });
    desc.max_rounding_error = largest.load(std::memory_order_relaxed);
    write_struct(desc, out);
    return NYBL_OK;
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_affine_sizes(nybl_format format, uint64_t n, uint64_t k, nybl_affine_desc *desc) {
    return guarded("nybl_affine_sizes", [&] { return sizes(format, n, k, desc); });
}

nybl_status nybl_affine_export(nybl_format format, uint64_t n, uint64_t k, const void *src, size_t src_stride,
                               nybl_affine_desc *desc) {
    return guarded("nybl_affine_export", [&] { return run_export(format, n, k, src, src_stride, desc); });
}
