// The GPU side as the rest of the library sees it: a device, weights on it, and products. No OpenCL types, so
// that a build without OpenCL headers has the same interface (and opens no device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

#include "base/memory.h"
#include "cpu/matmul.h"
#include "gpu/variant.h"

namespace nybl::gpu {

class Device;        // an opened device: queue, kernels, scratch; calls on it take turns
class DeviceWeights; // panels of one weight tensor in a device's memory

// What dispatch decides from.
struct Traits {
    Variant variant;
    bool fp16;        // activations may be kept as f16
    bool integer_dot; // and the kernel language to ask for it
    size_t max_buffer_bytes;
    char name[64];
};

// Device `index` of those that OpenCL offers (GPUs and accelerators first, then CPUs), or a status in words.
// Overriding the variant is for tests.
nybl_status open_device(Memory &memory, uint32_t index, const Variant *override_variant,
                        Device **device) noexcept;
void close_device(Device *device) noexcept; // no weights may be left on it
const Traits &traits_of(const Device &device) noexcept;

struct DeviceMemory {
    size_t bytes, peak_bytes, param_bytes;
};
DeviceMemory device_memory(const Device &device) noexcept;

// Copies packed panels to the device, or finds the same bytes there already. `bytes`: all experts.
nybl_status upload_weights(Device &device, const cpu::Matrix &packed, size_t n_experts, size_t bytes,
                           DeviceWeights **weights) noexcept;
void release_weights(Device &device, DeviceWeights *weights) noexcept; // NULL is ignored

struct Product {
    const DeviceWeights *weights;
    const cpu::Product *product; // n, y, bias
    KernelChoice kernel;
};

// Runs a job's products, whose activations are shared and prepared once; all kernels agree on x. Outputs
// change on success only.
nybl_status run_products(Device &device, const cpu::Job &job, const Product *products, size_t count) noexcept;

} // namespace nybl::gpu
