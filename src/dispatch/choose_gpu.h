// Which GPU kernel serves a call, if any: a pure function of the shape and the device's traits.
#pragma once

#include "dispatch/choose.h"
#include "gpu/gpu.h"

namespace nybl::dispatch {

struct GpuChoice {
    bool served; // false: the CPU runs it
    gpu::KernelChoice kernel;
    char name[96];    // "opencl:gemv q4_k 16x4 vector"; empty unless served
    char reason[160]; // one sentence, either way
};

GpuChoice choose_gpu(const Shape &shape, const gpu::Traits &traits) noexcept;

} // namespace nybl::dispatch
