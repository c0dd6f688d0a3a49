// Threads, scratch and phases of a product.
#include "job.h"

#include <algorithm>

#include "cpu/block.h"
#include "gpu_path.h"

namespace nybl::capi {
namespace {

// Below these a thread costs more to wake than it saves. Results do not depend on them.
constexpr double kMinProductsPerThread = 128 << 10; // multiply-adds
constexpr size_t kMinQuantisedPerThread = 16 << 10; // activations

// The host need not align scratch.
constexpr size_t kScratchAlign = 64;

constexpr uint32_t kMaxRegionThreads = 1 << 16;

size_t output_rows(const cpu::Job &job) noexcept {
    return job.experts ? job.experts->n_tokens * job.experts->n_slots : job.m;
}

size_t align_up(size_t bytes) noexcept {
    return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

uint32_t quantizing_threads(const cpu::Job &job, uint32_t nth) noexcept {
    return static_cast<uint32_t>(std::clamp<size_t>(job.m * job.k / kMinQuantisedPerThread, 1, nth));
}

void *align_scratch(void *scratch) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(scratch);
    return static_cast<char *>(scratch) + (kScratchAlign - address % kScratchAlign) % kScratchAlign;
}

} // namespace

void Call::set_product(const nybl_weights &w, size_t tokens, size_t rows, nybl_compute mode) noexcept {
    const cpu::Matrix &matrix = w.matrix;
    weights = &w;
    compute = mode;
    output_rows = rows;
    work = rows == 0 || matrix.n == 0 ? Work::Nothing : matrix.k == 0 ? Work::Fill : Work::Product;
    product.w = matrix;
    dispatch::Shape shape = describe_shape(w, tokens, mode);
    shape.rows = rows;
    product.kernel = dispatch::choose_kernel(shape);
    job.k = matrix.k;
    job.pad = matrix.k - w.k;
    job.products = &product;
    job.n_products = 1;
}

nybl_status check_compute(nybl_compute compute) noexcept {
    switch (compute) {
    case NYBL_COMPUTE_DEFAULT:
    case NYBL_COMPUTE_F32:
    case NYBL_COMPUTE_INT8:
        return NYBL_OK;
    case NYBL_COMPUTE_BF16:
        return fail(NYBL_UNSUPPORTED,
                    "args: there is no kernel for compute bf16; use NYBL_COMPUTE_DEFAULT or "
                    "NYBL_COMPUTE_F32");
    }
    return fail(NYBL_INVALID_ARGUMENT, "args: compute %d is none of nybl_compute", static_cast<int>(compute));
}

dispatch::Shape describe_shape(const nybl_weights &w, size_t m, nybl_compute compute) noexcept {
    dispatch::Shape shape{};
    shape.format = w.matrix.format->id;
    shape.storage = w.matrix.storage;
    shape.compute = compute;
    shape.m = m;
    shape.n = w.matrix.n;
    shape.k = w.matrix.k;
    shape.n_experts = w.n_experts;
    shape.isa = w.ctx->isa;
    shape.threads = w.ctx->pool.n_threads();
    shape.tuning = &w.ctx->tuning;
    return shape;
}

uint32_t useful_threads(const nybl_context *ctx, const cpu::Job &job, uint32_t limit) noexcept {
    const uint32_t most = limit ? std::min(limit, ctx->pool.n_threads()) : ctx->pool.n_threads();
    // In floating point: the product of four sizes need not fit 64 bits.
    double products = 0;
    for (size_t p = 0; p < job.n_products; ++p)
        products += static_cast<double>(output_rows(job)) * static_cast<double>(job.products[p].w.n) *
                    static_cast<double>(job.k);
    return static_cast<uint32_t>(
        std::clamp(products / kMinProductsPerThread, 1.0, static_cast<double>(most)));
}

void run_job(nybl_context *ctx, const cpu::Job &job, uint32_t nth, void *scratch) noexcept {
    cpu::begin(job, scratch, nth);
    const uint32_t quantizers = quantizing_threads(job, nth);
    parallel_for(ctx, quantizers, [&](uint32_t i) { cpu::quantize(job, scratch, i, quantizers); });
    parallel_for(ctx, nth, [&](uint32_t i) { cpu::compute(job, scratch, i, nth); });
}

nybl_status run_call(nybl_context *ctx, const Call &call) noexcept {
    if (call.work == Work::Fill)
        fill_rows(call.product, call.output_rows, 0, 1);
    if (call.work != Work::Product)
        return NYBL_OK;
    gpu::Product on_gpu;
    if (describe_on_gpu(call, &call.product, &on_gpu) && run_on_gpu(ctx, call.job, &on_gpu, 1))
        return NYBL_OK;
    const uint32_t nth = useful_threads(ctx, call.job, call.max_threads);
    Scratch scratch(ctx);
    if (const nybl_status status = scratch.acquire(cpu::scratch_bytes(call.job, nth)); status != NYBL_OK)
        return status;
    run_job(ctx, call.job, nth, scratch.data());
    return NYBL_OK;
}

void fill_rows(const cpu::Product &product, size_t rows, uint32_t ith, uint32_t nth) noexcept {
    const float zeros[cpu::kPanelRows] = {};
    const Range range = share(rows, ith, nth);
    for (size_t row = range.begin; row < range.end; ++row)
        for (size_t n = 0; n < product.w.n; n += cpu::kPanelRows)
            cpu::store_outputs(product, row, n, std::min(cpu::kPanelRows, product.w.n - n), zeros);
}

nybl_status check_threads(uint32_t ith, uint32_t nth) noexcept {
    if (nth == 0 || nth > kMaxRegionThreads)
        return fail(NYBL_INVALID_ARGUMENT, "nth is %u; it must be in 1 .. %u", nth, kMaxRegionThreads);
    if (ith >= nth)
        return fail(NYBL_INVALID_ARGUMENT, "ith is %u of %u threads; they count from 0", ith, nth);
    return NYBL_OK;
}

void fill_jobs(const cpu::Job *jobs, size_t count, size_t rows, uint32_t ith, uint32_t nth) noexcept {
    for (size_t i = 0; i < count; ++i)
        for (size_t p = 0; p < jobs[i].n_products; ++p)
            fill_rows(jobs[i].products[p], rows, ith, nth);
}

size_t region_scratch_bytes(const cpu::Job *jobs, size_t count, uint32_t nth) noexcept {
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i)
        bytes += jobs[i].k == 0 ? 0 : align_up(cpu::scratch_bytes(jobs[i], nth));
    return bytes == 0 ? 0 : bytes + kScratchAlign - 1;
}

size_t region_scratch_bytes(const Call &call, uint32_t nth) noexcept {
    return region_scratch_bytes(&call.job, call.work == Work::Product ? 1 : 0, nth);
}

nybl_status run_in_region(const Call &call, const Region &region) {
    return run_in_region(&call.job, call.work == Work::Nothing ? 0 : 1, call.output_rows, region);
}

nybl_status run_in_region(const cpu::Job *jobs, size_t count, size_t output_rows, const Region &region) {
    if (region.nth > 1 && !region.barrier)
        return null_argument("barrier (needed for nth > 1)");
    const size_t needed = region_scratch_bytes(jobs, count, region.nth);
    if (needed == 0) {
        fill_jobs(jobs, count, output_rows, region.ith, region.nth);
        return NYBL_OK;
    }
    if (region.scratch_size < needed)
        return fail(NYBL_BUFFER_TOO_SMALL, "scratch is %zu bytes; this call with %u threads needs %zu",
                    region.scratch_size, region.nth, needed);
    if (!region.scratch)
        return null_argument("scratch");
    const auto barrier = [&] {
        if (region.nth > 1)
            region.barrier(region.user);
    };
    const auto each_job = [&](auto &&phase) {
        auto *scratch = static_cast<char *>(align_scratch(region.scratch));
        for (size_t i = 0; i < count; ++i) {
            phase(jobs[i], scratch);
            scratch += align_up(cpu::scratch_bytes(jobs[i], region.nth));
        }
    };
    // What one thread quantises alone saves the others a barrier: in decode that is a good part of a product.
    const bool alone = quantizing_threads(jobs[0], region.nth) == 1;
    if (region.ith == 0)
        each_job([&](const cpu::Job &job, void *scratch) {
            cpu::begin(job, scratch, region.nth);
            if (alone)
                cpu::quantize(job, scratch, 0, 1);
        });
    barrier();
    if (!alone) {
        each_job(
            [&](const cpu::Job &job, void *scratch) { cpu::quantize(job, scratch, region.ith, region.nth); });
        barrier();
    }
    each_job([&](const cpu::Job &job, void *scratch) { cpu::compute(job, scratch, region.ith, region.nth); });
    return NYBL_OK;
}

} // namespace nybl::capi
