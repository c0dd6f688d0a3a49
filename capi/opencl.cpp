// nybl_opencl_context_create and nybl_opencl_matmul: a host's own OpenCL objects.
#include <nybl/nybl_opencl.h>

#include "gpu/opencl_host.h"
#include "gpu_path.h"

namespace nybl::capi {
namespace {

nybl_status create_on(const nybl_opencl_desc *given, const nybl_context_desc *given_desc,
                      nybl_context **ctx) {
    nybl_opencl_desc opencl{};
    if (const nybl_status status = read_struct(given, "opencl", &opencl); status != NYBL_OK)
        return status;
    if (!ctx)
        return null_argument("ctx");
    if (!opencl.device)
        return null_argument("opencl: device");
    if (!opencl.context)
        return null_argument("opencl: context");
    if (!opencl.queue)
        return null_argument("opencl: queue");
    nybl_context_desc desc{};
    desc.struct_size = sizeof desc;
    if (given_desc)
        if (const nybl_status status = read_struct(given_desc, "desc", &desc); status != NYBL_OK)
            return status;
    desc.device = NYBL_DEVICE_CPU; // the device comes from the host
    nybl_context *made = nullptr;
    if (const nybl_status status = nybl_context_create(&desc, &made); status != NYBL_OK)
        return status;
    if (const nybl_status status =
            gpu::adopt_device(made->memory, opencl.device, opencl.context, opencl.queue, &made->device);
        status != NYBL_OK) {
        nybl_context_destroy(made);
        return status;
    }
    *ctx = made;
    return NYBL_OK;
}

// A view of m rows of `columns`, from bytes to elements.
nybl_status view_rows(cl_mem mem, nybl_format type, size_t columns, size_t offset, size_t stride,
                      const char *const names[4], gpu::View *view) noexcept {
    if (const nybl_status status = check_element_type(type, names[1]); status != NYBL_OK)
        return status;
    if (!mem)
        return null_argument(names[0]);
    const size_t element = element_bytes(type);
    const Checked row = Checked(columns) * element;
    size_t resolved = 0;
    if (const nybl_status status = resolve_stride(stride, row, row, element, names[3], &resolved);
        status != NYBL_OK)
        return status;
    if (offset % element != 0)
        return fail(NYBL_INVALID_ARGUMENT, "%s is %zu bytes, not a multiple of the element (%zu)", names[2],
                    offset, element);
    *view = {mem, type, offset / element, resolved / element};
    return NYBL_OK;
}

constexpr const char *kX[4] = {"args: x", "args: x_type", "args: x_offset", "args: x_stride"};
constexpr const char *kY[4] = {"args: y", "args: y_type", "args: y_offset", "args: y_stride"};

nybl_status multiply(const nybl_weights *w, const nybl_opencl_matmul_args *given) {
    if (!w)
        return null_argument("w");
    nybl_opencl_matmul_args args{};
    if (const nybl_status status = read_struct(given, "args", &args); status != NYBL_OK)
        return status;
    if (w->n_experts > 1)
        return fail(NYBL_INVALID_ARGUMENT, "w has %zu experts; use nybl_matmul_id", w->n_experts);
    if (const nybl_status status = check_compute(args.compute); status != NYBL_OK)
        return status;
    if (args.n_wait != 0 && !args.wait)
        return null_argument("args: wait");
    gpu::View x{}, y{};
    if (const nybl_status status = view_rows(args.x, args.x_type, w->k, args.x_offset, args.x_stride, kX, &x);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            view_rows(args.y, args.y_type, w->matrix.n, args.y_offset, args.y_stride, kY, &y);
        status != NYBL_OK)
        return status;
    if (args.m == 0 || w->matrix.n == 0)
        return NYBL_OK;
    const auto choice = choose_gpu_kernel(*w, args.m, args.compute, args.x_type);
    if (!choice.served)
        return fail(NYBL_UNSUPPORTED, "no GPU kernel serves this product: %s",
                    w->ctx->device ? choice.reason : "the weights' context is on the CPU");
    return gpu::run_on_buffers(*w->ctx->device, *w->device_weights, choice.kernel, args.m, x, y, args.bias,
                               {args.n_wait, args.wait, args.event});
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_opencl_context_create(const nybl_opencl_desc *opencl, const nybl_context_desc *desc,
                                       nybl_context **ctx) {
    return guarded("nybl_opencl_context_create", [&] { return create_on(opencl, desc, ctx); });
}

nybl_status nybl_opencl_matmul(const nybl_weights *w, const nybl_opencl_matmul_args *args) {
    return guarded("nybl_opencl_matmul", [&] { return multiply(w, args); });
}
