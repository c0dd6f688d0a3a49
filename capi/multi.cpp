// nybl_matmul_multi, and the same inside a host's parallel region.
#include <algorithm>

#include "gpu_path.h"
#include "job.h"

namespace nybl::capi {
namespace {

bool same_x(const cpu::Rows &a, const cpu::Rows &b) noexcept {
    return a.base == b.base && a.type == b.type && a.inner == b.inner && a.inner_stride == b.inner_stride &&
           a.outer_stride == b.outer_stride;
}

nybl_status check_same_x(const Call &first, const Call &other, uint32_t i) noexcept {
    if (other.weights->k != first.weights->k)
        return fail(NYBL_INVALID_ARGUMENT, "w[%u] has k = %zu, w[0] has %zu: they cannot share x", i,
                    other.weights->k, first.weights->k);
    if (first.job.m != other.job.m || !same_x(first.job.x, other.job.x))
        return fail(NYBL_INVALID_ARGUMENT,
                    "args[%u]: m, batch, x, x_type or a stride of x differs from args[0]", i);
    if ((first.product.kernel.strategy == cpu::Strategy::F32) !=
        (other.product.kernel.strategy == cpu::Strategy::F32))
        return fail(NYBL_INVALID_ARGUMENT, "args[%u]: compute differs from args[0]", i);
    return NYBL_OK;
}

// Element i of an array whose elements have the caller's size, which may not be this version's.
const nybl_matmul_args *element(const nybl_matmul_args *args, uint32_t i) noexcept {
    return reinterpret_cast<const nybl_matmul_args *>(reinterpret_cast<const char *>(args) +
                                                      i * args->struct_size);
}

nybl_status check_array(const nybl_matmul_args *args, uint32_t count) noexcept {
    if (const nybl_status status = check_struct(args, sizeof *args, "args[0]"); status != NYBL_OK)
        return status;
    if (args->struct_size % alignof(nybl_matmul_args) != 0)
        return fail(NYBL_INVALID_ARGUMENT, "args[0]: struct_size %zu is no multiple of %zu",
                    args->struct_size, alignof(nybl_matmul_args));
    for (uint32_t i = 1; i < count; ++i)
        if (element(args, i)->struct_size != args->struct_size)
            return fail(NYBL_INVALID_ARGUMENT, "args[%u]: struct_size %zu differs from args[0]'s %zu", i,
                        element(args, i)->struct_size, args->struct_size);
    return NYBL_OK;
}

// Checks everything and writes the products with work to do to `products`: first the ones on generated
// kernels, then, from the end, the ones on the reference. These two kinds do not share the layout of the
// quantised activations, so they are two jobs.
struct Jobs {
    cpu::Job list[2];
    size_t size = 0;

    nybl_status list_products(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                              Check check, Call *first, cpu::Product *products) noexcept;
};

nybl_status Jobs::list_products(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                                Check check, Call *first, cpu::Product *products) noexcept {
    size_t generated = 0, reference = 0;
    for (uint32_t i = 0; i < count; ++i) {
        Call call;
        if (const nybl_status status = prepare_matmul(w[i], element(args, i), check, &call);
            status != NYBL_OK)
            return status;
        if (const nybl_status status = check_same_x(*first, call, i); status != NYBL_OK)
            return status;
        if (call.work == Work::Nothing)
            continue;
        const bool is_generated = call.product.kernel.isa != NYBL_ISA_SCALAR;
        products[is_generated ? generated++ : count - ++reference] = call.product;
    }
    const auto add = [&](const cpu::Product *of, size_t n) {
        if (n == 0)
            return;
        cpu::Job &job = list[size++];
        job = first->job;
        job.products = of;
        job.n_products = n;
        // As long as the longest padded row; the others read a part.
        for (size_t i = 0; i < n; ++i)
            job.k = std::max(job.k, of[i].w.k);
        job.pad = job.k - first->weights->k;
    };
    add(products, generated);
    add(products + count - reference, reference);
    return NYBL_OK;
}

// The arrays, and the first product, which says what the others must share.
nybl_status check_first(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                        Check check, Call *first) noexcept {
    if (!w)
        return null_argument("w");
    if (const nybl_status status = check_array(args, count); status != NYBL_OK)
        return status;
    return prepare_matmul(w[0], args, check, first);
}

// All products on the device of the first one's context, or none: then nothing was written. Everything was
// checked before.
bool multi_on_gpu(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                  const Call &first) noexcept {
    nybl_context *ctx = w[0]->ctx;
    if (!ctx->device || first.work != Work::Product)
        return false;
    Scratch list(ctx);
    if (list.acquire(count * (sizeof(cpu::Product) + sizeof(gpu::Product))) != NYBL_OK)
        return false;
    auto *products = static_cast<cpu::Product *>(list.data());
    auto *on_gpu = reinterpret_cast<gpu::Product *>(products + count);
    size_t used = 0;
    for (uint32_t i = 0; i < count; ++i) {
        Call call;
        if (prepare_matmul(w[i], element(args, i), Check::Everything, &call) != NYBL_OK || w[i]->ctx != ctx)
            return false;
        if (call.work == Work::Nothing)
            continue;
        products[used] = call.product;
        if (call.compute != first.compute || !describe_on_gpu(call, products + used, on_gpu + used))
            return false;
        ++used;
    }
    return run_on_gpu(ctx, first.job, on_gpu, used);
}

nybl_status multi(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args) {
    if (count == 0)
        return NYBL_OK;
    Call first;
    if (const nybl_status status = check_first(count, w, args, Check::Everything, &first); status != NYBL_OK)
        return status;
    nybl_context *ctx = w[0]->ctx;
    Scratch products(ctx), scratch(ctx);
    if (const nybl_status status = products.acquire(count * sizeof(cpu::Product)); status != NYBL_OK)
        return status;
    Jobs jobs;
    if (const nybl_status status = jobs.list_products(count, w, args, Check::Everything, &first,
                                                      static_cast<cpu::Product *>(products.data()));
        status != NYBL_OK)
        return status;
    if (multi_on_gpu(count, w, args, first))
        return NYBL_OK;
    if (first.job.k == 0) {
        fill_jobs(jobs.list, jobs.size, first.output_rows, 0, 1);
        return NYBL_OK;
    }
    // All memory before the first output changes.
    size_t bytes = 0;
    uint32_t nth[2] = {};
    for (size_t i = 0; i < jobs.size; ++i) {
        nth[i] = useful_threads(ctx, jobs.list[i], first.max_threads);
        bytes = std::max(bytes, cpu::scratch_bytes(jobs.list[i], nth[i]));
    }
    if (const nybl_status status = scratch.acquire(bytes); status != NYBL_OK)
        return status;
    for (size_t i = 0; i < jobs.size; ++i)
        run_job(ctx, jobs.list[i], nth[i], scratch.data());
    return NYBL_OK;
}

// In a region every thread lists the products for itself, on its stack, because every thread checks all
// arguments before the first barrier.
constexpr uint32_t kMaxRegionProducts = 16;

nybl_status list_in_region(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                           Check check, Call *first, cpu::Product *products, Jobs *jobs) noexcept {
    if (count > kMaxRegionProducts)
        return fail(NYBL_INVALID_ARGUMENT, "count is %u; inside a region it must be in 0 .. %u", count,
                    kMaxRegionProducts);
    if (const nybl_status status = check_first(count, w, args, check, first); status != NYBL_OK)
        return status;
    return jobs->list_products(count, w, args, check, first, products);
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_matmul_multi(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args) {
    return guarded("nybl_matmul_multi", [&] { return multi(count, w, args); });
}

nybl_status nybl_matmul_multi_scratch_bytes(uint32_t count, const nybl_weights *const *w,
                                            const nybl_matmul_args *args, uint32_t nth, size_t *bytes) {
    return guarded("nybl_matmul_multi_scratch_bytes", [&]() -> nybl_status {
        if (!bytes)
            return null_argument("bytes");
        if (const nybl_status status = check_threads(0, nth); status != NYBL_OK)
            return status;
        cpu::Product products[kMaxRegionProducts];
        Call first;
        Jobs jobs;
        if (count != 0)
            if (const nybl_status status =
                    list_in_region(count, w, args, Check::ShapesOnly, &first, products, &jobs);
                status != NYBL_OK)
                return status;
        *bytes = region_scratch_bytes(jobs.list, jobs.size, nth);
        return NYBL_OK;
    });
}

nybl_status nybl_matmul_multi_part(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                                   uint32_t ith, uint32_t nth, void *scratch, size_t scratch_size,
                                   void (*barrier)(void *user), void *user) {
    return guarded("nybl_matmul_multi_part", [&] {
        if (const nybl_status status = check_threads(ith, nth); status != NYBL_OK || count == 0)
            return status;
        cpu::Product products[kMaxRegionProducts];
        Call first;
        Jobs jobs;
        if (const nybl_status status =
                list_in_region(count, w, args, Check::Everything, &first, products, &jobs);
            status != NYBL_OK)
            return status;
        return run_in_region(jobs.list, jobs.size, first.output_rows,
                             {ith, nth, scratch, scratch_size, barrier, user});
    });
}
