// nybl_matmul, _scratch_bytes and _part.
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
    if (const nybl_status status = check_volume(rows, w->k, "args: m * batch * k"); status != NYBL_OK)
        return status;
    // With n = 0 nothing of x is read, with k = 0 neither.
    const bool reads_x = matrix.n != 0;
    if (const nybl_status status =
            resolve_rows(const_cast<void *>(args.x), args.x_type, w->k, args.m, batch, args.x_stride,
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

    call->set_product(*w, rows.value(), rows.value(), args.compute);
    call->product.bias = args.bias;
    call->job.m = rows.value();
    call->max_threads = args.n_threads;
    return NYBL_OK;
}

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
