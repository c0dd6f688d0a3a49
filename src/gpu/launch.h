// The two launches of a product, on buffers wherever they come from.
#pragma once

#include "gpu/device.h"

namespace nybl::gpu {

constexpr size_t element_bytes(nybl_format type) noexcept {
    return type == NYBL_F32 ? 4 : 2;
}

// Rows in a device buffer; offset and stride count elements.
struct View {
    cl_mem mem;
    nybl_format type;
    size_t offset, stride;
};

struct TileList {
    size_t count;
    cl_mem tiles, map; // NULL without experts
};

struct Events {
    cl_uint n_wait = 0;
    const cl_event *wait = nullptr;
    cl_event *done = nullptr;
};

// x to scratch.prepared and scratch.sums, which are large enough.
nybl_status prepare_rows(Device &device, cl_kernel kernel, const View &x, size_t rows, size_t groups,
                         const Events &events) noexcept;
// From there to y; bias may be NULL.
nybl_status multiply_rows(Device &device, cl_kernel kernel, const DeviceWeights &weights,
                          const KernelChoice &choice, size_t rows, const TileList &tiles, cl_mem bias,
                          const View &y, const Events &events) noexcept;

} // namespace nybl::gpu
