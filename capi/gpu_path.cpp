// The GPU path below the C API.
#include "gpu_path.h"

#include <cstdio>

namespace nybl::capi {
namespace {

void log_failure(const nybl_context &ctx, const char *what) noexcept {
    if (!ctx.log)
        return;
    char message[640];
    std::snprintf(message, sizeof message, "%s on the CPU: %s", what, last_error());
    try {
        ctx.log(ctx.log_user, 1, message);
    } catch (...) { // a log that fails is no reason to fail
    }
}

} // namespace

nybl_status open_gpu(nybl_context *ctx, uint32_t index) noexcept {
    return gpu::open_device(ctx->memory, index, nullptr, &ctx->device);
}

void close_gpu(nybl_context *ctx) noexcept {
    gpu::close_device(ctx->device);
    ctx->device = nullptr;
}

void add_device_memory(const nybl_context &ctx, nybl_memory_stats *stats) noexcept {
    if (!ctx.device)
        return;
    const gpu::DeviceMemory memory = gpu::device_memory(*ctx.device);
    stats->device_bytes = memory.bytes;
    stats->device_peak_bytes = memory.peak_bytes;
    stats->device_param_bytes = memory.param_bytes;
}

void place_on_gpu(nybl_weights *w) noexcept {
    if (!w->ctx->device || w->data_bytes == 0 || w->matrix.k != w->k ||
        !gpu::has_kernels(w->matrix.format->id))
        return;
    w->device_status = gpu::upload_weights(*w->ctx->device, w->matrix, w->n_experts, w->data_bytes,
                                           &w->ctx->pool, &w->device_weights);
    if (w->device_status != NYBL_OK)
        log_failure(*w->ctx, "weights stay");
}

void remove_from_gpu(nybl_weights *w) noexcept {
    if (w->device_weights)
        gpu::release_weights(*w->ctx->device, w->device_weights);
}

dispatch::GpuChoice choose_gpu_kernel(const nybl_weights &w, size_t m, nybl_compute compute,
                                      nybl_format x_type) noexcept {
    dispatch::GpuChoice choice{};
    if (!w.ctx->device)
        return choice;
    const gpu::Placement place =
        w.device_weights ? gpu::place_of(*w.ctx->device, *w.device_weights, m, x_type) : gpu::Placement{};
    choice = dispatch::choose_gpu(describe_shape(w, m, compute), gpu::traits_of(*w.ctx->device), place);
    if (choice.served && !w.device_weights) {
        choice.served = false;
        std::snprintf(choice.reason, sizeof choice.reason, "cpu: the weights are not on the device: %s",
                      w.device_status == NYBL_OK ? "they are empty" : nybl_status_string(w.device_status));
    }
    return choice;
}

bool describe_on_gpu(const Call &call, const cpu::Product *product, gpu::Product *out) noexcept {
    const auto choice = choose_gpu_kernel(*call.weights, call.output_rows, call.compute, call.job.x.type);
    if (choice.served)
        *out = {call.weights->device_weights, product, choice.kernel};
    return choice.served;
}

bool run_on_gpu(nybl_context *ctx, const cpu::Job &job, const gpu::Product *products, size_t count) noexcept {
    if (gpu::run_products(*ctx->device, job, products, count) == NYBL_OK)
        return true;
    log_failure(*ctx, "a product runs");
    return false;
}

} // namespace nybl::capi
