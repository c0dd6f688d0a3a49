// nybl_matmul, _multi, _scratch_bytes and _part.
#include <algorithm>

#include "gpu_path.h"
#include "job.h"

namespace nybl::capi {
namespace {

// Fills in the strides of x or y and checks them and the pointer.
nybl_status resolve_rows(void *base, nybl_format type, uint64_t columns, size_t m, size_t batch,
                         size_t stride, size_t batch_stride, Check check, const char *const names[3],
                         cpu::Rows *rows) noexcept {
    const size_t element = element_bytes(type);
    const Checked row = Checked(columns) * element;
    rows->base = static_cast<uint8_t *>(base);
    rows->type = type;
    rows->inner = m ? m : 1;
    if (const nybl_status status = resolve_stride(stride, row, row, element, names[1], &rows->inner_stride);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = resolve_stride(batch_stride, Checked(m) * rows->inner_stride, row, element,
                                                  names[2], &rows->outer_stride);
        status != NYBL_OK)
        return status;
    const bool empty = m == 0 || columns == 0;
    const Checked extent =
        empty ? Checked(0)
              : strided_bytes(batch, rows->outer_stride, strided_bytes(m, rows->inner_stride, row));
    if (const nybl_status status = check_size(extent, names[0]); status != NYBL_OK)
        return status;
    return check == Check::ShapesOnly ? NYBL_OK : check_pointer(base, extent.value(), element, names[0]);
}

constexpr const char *kX[3] = {"args: x", "args: x_stride", "args: x_batch_stride"};
constexpr const char *kY[3] = {"args: y", "args: y_stride", "args: y_batch_stride"};

nybl_status check_types(const nybl_matmul_args &args) noexcept {
    if (const nybl_status status = check_element_type(args.x_type, "args: x_type"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_element_type(args.y_type, "args: y_type"); status != NYBL_OK)
        return status;
    return check_compute(args.compute);
}

} // namespace

nybl_status prepare_matmul(const nybl_weights *w, const nybl_matmul_args *given, Check check,
                           Call *call) noexcept {
    if (!w)
        return null_argument("w");
    nybl_matmul_args args{};
    if (const nybl_status status = read_struct(given, "args", &args); status != NYBL_OK)
        return status;
    if (w->n_experts > 1)
        return fail(NYBL_INVALID_ARGUMENT, "w has %zu experts; use nybl_matmul_id", w->n_experts);
    if (const nybl_status status = check_types(args); status != NYBL_OK)
        return status;
    const cpu::Matrix &matrix = w->matrix;
    const size_t batch = args.batch ? args.batch : 1;
    const Checked rows = Checked(args.m) * batch;
    if (const nybl_status status = check_volume(rows, matrix.k, "args: m * batch * k"); status != NYBL_OK)
        return status;
    // With n = 0 nothing of x is read, with k = 0 neither.
    const bool reads_x = matrix.n != 0;
    if (const nybl_status status =
            resolve_rows(const_cast<void *>(args.x), args.x_type, matrix.k, args.m, batch, args.x_stride,
                         args.x_batch_stride, reads_x ? check : Check::ShapesOnly, kX, &call->job.x);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = resolve_rows(args.y, args.y_type, matrix.n, args.m, batch, args.y_stride,
                                                args.y_batch_stride, check, kY, &call->product.y);
        status != NYBL_OK)
        return status;
    if (check == Check::Everything && args.bias)
        if (const nybl_status status = check_pointer(args.bias, 4 * matrix.n, 4, "args: bias");
            status != NYBL_OK)
            return status;

    call->weights = w;
    call->compute = args.compute;
    call->output_rows = rows.value();
    call->work = rows.value() == 0 || matrix.n == 0 ? Work::Nothing
                 : matrix.k == 0                    ? Work::Fill
                                                    : Work::Product;
    call->product.w = matrix;
    call->product.bias = args.bias;
    call->product.kernel = choose_kernel(*w, rows.value(), args.compute).kernel;
    call->job.m = rows.value();
    call->job.k = matrix.k;
    call->job.products = &call->product;
    call->job.n_products = 1;
    call->max_threads = args.n_threads;
    return NYBL_OK;
}

namespace {

bool same_x(const cpu::Rows &a, const cpu::Rows &b) noexcept {
    return a.base == b.base && a.type == b.type && a.inner == b.inner && a.inner_stride == b.inner_stride &&
           a.outer_stride == b.outer_stride;
}

nybl_status check_same_x(const Call &first, const Call &other, uint32_t i) noexcept {
    if (first.job.k != other.job.k)
        return fail(NYBL_INVALID_ARGUMENT, "w[%u] has k = %zu, w[0] has %zu: they cannot share x", i,
                    other.job.k, first.job.k);
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

// Checks every product and writes those with work to do to `products`: first the ones on generated kernels,
// then, from the end, the ones on the reference. These two kinds do not share the layout of the quantised
// activations.
struct Sorted {
    size_t generated = 0, reference = 0; // products of each kind
};
nybl_status sort_products(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args,
                          const Call &first, cpu::Product *products, Sorted *sorted) noexcept {
    for (uint32_t i = 0; i < count; ++i) {
        Call call;
        if (const nybl_status status = prepare_matmul(w[i], element(args, i), Check::Everything, &call);
            status != NYBL_OK)
            return status;
        if (const nybl_status status = check_same_x(first, call, i); status != NYBL_OK)
            return status;
        if (call.work == Work::Nothing)
            continue;
        const bool generated = call.product.kernel.isa != NYBL_ISA_SCALAR;
        products[generated ? sorted->generated++ : count - ++sorted->reference] = call.product;
    }
    return NYBL_OK;
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
    if (!w)
        return null_argument("w");
    if (const nybl_status status = check_array(args, count); status != NYBL_OK)
        return status;
    Call first;
    if (const nybl_status status = prepare_matmul(w[0], args, Check::Everything, &first); status != NYBL_OK)
        return status;
    nybl_context *ctx = w[0]->ctx;
    Scratch list(ctx), scratch(ctx);
    if (const nybl_status status = list.acquire(count * sizeof(cpu::Product)); status != NYBL_OK)
        return status;
    auto *products = static_cast<cpu::Product *>(list.data());
    Sorted sorted;
    if (const nybl_status status = sort_products(count, w, args, first, products, &sorted); status != NYBL_OK)
        return status;
    if (multi_on_gpu(count, w, args, first))
        return NYBL_OK;
    cpu::Job jobs[2] = {first.job, first.job};
    jobs[0].products = products;
    jobs[0].n_products = sorted.generated;
    jobs[1].products = products + count - sorted.reference;
    jobs[1].n_products = sorted.reference;
    if (first.job.k == 0) {
        for (const cpu::Job &job : jobs)
            for (size_t i = 0; i < job.n_products; ++i)
                fill_rows(job.products[i], first.output_rows, 0, 1);
        return NYBL_OK;
    }
    // All memory before the first output changes.
    size_t bytes = 0;
    uint32_t nth[2] = {};
    for (size_t i = 0; i < 2; ++i)
        if (jobs[i].n_products != 0) {
            nth[i] = useful_threads(ctx, jobs[i], first.max_threads);
            bytes = std::max(bytes, cpu::scratch_bytes(jobs[i], nth[i]));
        }
    if (const nybl_status status = scratch.acquire(bytes); status != NYBL_OK)
        return status;
    for (size_t i = 0; i < 2; ++i)
        if (jobs[i].n_products != 0)
            run_job(ctx, jobs[i], nth[i], scratch.data());
    return NYBL_OK;
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_matmul(const nybl_weights *w, const nybl_matmul_args *args) {
    return guarded("nybl_matmul", [&] {
        Call call;
        const nybl_status status = prepare_matmul(w, args, Check::Everything, &call);
        return status == NYBL_OK ? run_call(w->ctx, call) : status;
    });
}

nybl_status nybl_matmul_multi(uint32_t count, const nybl_weights *const *w, const nybl_matmul_args *args) {
    return guarded("nybl_matmul_multi", [&] { return multi(count, w, args); });
}

nybl_status nybl_matmul_scratch_bytes(const nybl_weights *w, const nybl_matmul_args *args, uint32_t nth,
                                      size_t *bytes) {
    return guarded("nybl_matmul_scratch_bytes",
                   [&] { return plan_region<nybl_matmul_args>(prepare_matmul, w, args, nth, bytes); });
}

nybl_status nybl_matmul_part(const nybl_weights *w, const nybl_matmul_args *args, uint32_t ith, uint32_t nth,
                             void *scratch, size_t scratch_size, void (*barrier)(void *user), void *user) {
    return guarded("nybl_matmul_part", [&] {
        return join_region<nybl_matmul_args>(prepare_matmul, w, args,
                                             {ith, nth, scratch, scratch_size, barrier, user});
    });
}
