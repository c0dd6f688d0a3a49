// GPU contexts: opening the device, weights on it, and which calls run there. Whatever the device cannot do
// runs on the CPU, whose copy of the weights is always there.
#pragma once

#include "dispatch/choose_gpu.h"
#include "job.h"

namespace nybl::capi {

nybl_status open_gpu(nybl_context *ctx, uint32_t index) noexcept;
void close_gpu(nybl_context *ctx) noexcept; // does nothing on a CPU context
void add_device_memory(const nybl_context &ctx, nybl_memory_stats *stats) noexcept;

// Copies packed weights to the device of their context. A failure is kept for nybl_matmul_explain and logged;
// the weights are then served by the CPU.
void place_on_gpu(nybl_weights *w) noexcept;
void remove_from_gpu(nybl_weights *w) noexcept;

// What a product of m rows would run as on the weights' context; not served on a CPU context.
dispatch::GpuChoice choose_gpu_kernel(const nybl_weights &w, size_t m, nybl_compute compute,
                                      nybl_format x_type) noexcept;

// The call as a product of its device; false where the CPU has to run it. `product` is call.product or a copy
// that lives as long as *out.
bool describe_on_gpu(const Call &call, const cpu::Product *product, gpu::Product *out) noexcept;
// Runs products of one device that share the job's activations; false: nothing was written, the CPU has to
// run them.
bool run_on_gpu(nybl_context *ctx, const cpu::Job &job, const gpu::Product *products, size_t count) noexcept;

} // namespace nybl::capi
