// The GPU side as the rest of the library sees it: a device, weights on it, and products. No OpenCL types, so
// that a build without OpenCL headers has the same interface (and opens no device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

#include "base/memory.h"
#include "cpu/matmul.h"
#include "gpu/onednn.h"
#include "gpu/variant.h"

namespace nybl::gpu {

class Device;        // an opened device: queue, kernels, scratch; calls on it take turns
class DeviceWeights; // one weight tensor in a device's memory

// What dispatch decides from.
struct Traits {
    Variant variant;
    bool fp16;        // activations may be kept as f16
    bool integer_dot; // and the kernel language to ask for it
    size_t max_buffer_bytes;
    char name[64];
    bool matrix_engine; // multiplies matrices in one instruction
};

// Device `index` of those that OpenCL offers (GPUs and accelerators first, then CPUs), or a status in words.
// Overriding the variant is for tests.
nybl_status open_device(Memory &memory, uint32_t index, const Variant *override_variant,
                        Device **device) noexcept;
void close_device(Device *device) noexcept; // no weights may be left on it
const Traits &traits_of(const Device &device) noexcept;

// Has oneDNN hold plain weight matrices from now on, where it serves them. open_device does so by itself on
// Intel GPUs; tests do with other settings.
nybl_status attach_onednn(Device &device, const OneDnnSettings &settings) noexcept;

DeviceMemory device_memory(const Device &device) noexcept;

// Brings packed panels to the device, or finds the same ones there already: in oneDNN's form where it serves
// them, otherwise as they are. `bytes`: all experts. `pool` decodes; NULL: this thread does.
nybl_status upload_weights(Device &device, const cpu::Matrix &packed, size_t n_experts, size_t bytes,
                           cpu::Pool *pool, DeviceWeights **weights) noexcept;
void release_weights(Device &device, DeviceWeights *weights) noexcept; // NULL is ignored

// How weights are held, and what oneDNN runs m rows as where it holds them.
struct Placement {
    bool onednn = false;
    bool served = true; // false: oneDNN holds them, and cannot multiply so many rows
    OneDnnUse use{};
    char note[96] = ""; // not served, or own kernels where oneDNN might be expected: why
};
Placement place_of(Device &device, const DeviceWeights &weights, size_t m, nybl_format x_type) noexcept;

// What the device's oneDNN would run for a shape; NYBL_UNSUPPORTED, in words, where it has none.
nybl_status name_on_device(Device &device, nybl_format format, size_t m, size_t n, size_t k,
                           OneDnnUse *use) noexcept;

struct Product {
    const DeviceWeights *weights;
    const cpu::Product *product; // n, y, bias
    KernelChoice kernel;         // unless oneDNN holds the weights
};

// Runs a job's products, whose activations are shared and prepared once; all kernels agree on x. An output
// changes once its product has succeeded.
nybl_status run_products(Device &device, const cpu::Job &job, const Product *products, size_t count) noexcept;

} // namespace nybl::gpu
