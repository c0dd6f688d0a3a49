// Which GPU kernel serves a call, if any: a pure function of the shape and the device's traits.
#pragma once

#include "dispatch/choose.h"
#include "gpu/gpu.h"

namespace nybl::dispatch {

struct GpuChoice {
    bool served;              // false: the CPU runs it
    gpu::KernelChoice kernel; // unless oneDNN runs it
    uint32_t tile_rows;       // tokens per micro-kernel, or of oneDNN's primitive
    char name[96];    // "opencl:gemv Q4_K 16x4 vector", "onednn:jit:gemm:any two-term"; empty unless served
    char reason[160]; // one sentence, either way
};

// place: how the weights are held.
GpuChoice choose_gpu(const Shape &shape, const gpu::Traits &traits,
                     const gpu::Placement &place = {}) noexcept;

} // namespace nybl::dispatch
