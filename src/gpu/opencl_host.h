// Devices and products on a host's own OpenCL objects.
#pragma once

#include "gpu/launch.h"

namespace nybl::gpu {

// A device on objects of the host, which it retains; the queue must be in order.
nybl_status adopt_device(Memory &memory, cl_device_id id, cl_context context, cl_command_queue queue,
                         Device **device) noexcept;

// m rows of x times the weights to y, enqueued.
nybl_status run_on_buffers(Device &device, const DeviceWeights &weights, const KernelChoice &choice, size_t m,
                           const View &x, const View &y, cl_mem bias, const Events &events) noexcept;

} // namespace nybl::gpu
