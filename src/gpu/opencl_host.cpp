// Products from buffer to buffer: the same launches, without copies.
#include "gpu/opencl_host.h"

#include <mutex>

#include "base/status.h"

namespace nybl::gpu {

nybl_status run_on_buffers(Device &device, const DeviceWeights &weights, const KernelChoice &choice, size_t m,
                           const View &x, const View &y, cl_mem bias, const Events &events) noexcept {
    if (!device.usable())
        return fail(NYBL_DEVICE_ERROR,
                    "GPU: the context was created before a fork; the child needs one of its own");
    if (weights.affine)
        return fail(NYBL_UNSUPPORTED,
                    "GPU: the weights are in oneDNN's form, which takes no buffers of the host");
    const std::lock_guard guard(device.lock);
    const size_t groups = weights.k / quant::kGroup;
    Kernels kernels;
    if (const nybl_status status = device.find_kernels({weights.format, choice, false}, &kernels);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = device.grow_buffer(m * groups * prepared_group(choice.x).values,
                                                      "prepared activations", &device.scratch.prepared);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = device.grow_buffer(m * groups * prepared_group(choice.x).sums,
                                                      "sums of activations", &device.scratch.sums);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            prepare_rows(device, kernels.prepare, x, m, groups, {events.n_wait, events.wait, nullptr});
        status != NYBL_OK)
        return status;
    const size_t n_tiles = (m - 1) / tile_tokens(device.traits.variant, choice) + 1;
    return multiply_rows(device, kernels.product, weights, choice, m, {n_tiles, nullptr, nullptr}, bias, y,
                         {0, nullptr, events.done});
}

} // namespace nybl::gpu
