// An opened OpenCL device: its traits, memory and kernels. Internal to src/gpu.
#pragma once

#include "base/fork.h"
#include "gpu/gpu.h"
#include "gpu/opencl.h"

namespace nybl::gpu {

// A device buffer that is counted. Contents are undefined after growing.
struct Buffer {
    cl_mem mem = nullptr;
    size_t size = 0;
};

// One compiled program: a product and the preparation of its activations.
struct Kernels {
    cl_kernel prepare = nullptr, product = nullptr;
};

struct Scratch {
    Buffer x, prepared, sums, y, bias, tiles, map;
};

class DeviceWeights {
  public:
    DeviceWeights *next = nullptr;
    uint32_t references = 1;
    uint64_t hash = 0;
    nybl_format format{};
    size_t n = 0, k = 0, n_experts = 1, panel_stride = 0, expert_stride = 0;
    size_t param_bytes = 0; // scales and minima among the bytes
    Buffer panels;
    OneDnnWeights *affine = nullptr; // in place of panels
    char note[96] = "";              // why oneDNN does not hold them; empty where it is not expected to
};

class Device {
  public:
    Device(Memory &host_memory, const OpenCl &functions) noexcept : memory(host_memory), cl(functions) {}
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    nybl_status create_buffer(size_t size, const char *what, Buffer *buffer) noexcept;
    nybl_status grow_buffer(size_t size, const char *what, Buffer *buffer) noexcept;
    void free_buffer(Buffer *buffer) noexcept;

    // Compiled at first use and kept: there are at most kSlots programs.
    nybl_status find_kernels(const KernelKey &key, Kernels *kernels) noexcept;

    // Room for a count per expert, kept for later calls.
    nybl_status expert_counts(size_t n_experts, uint32_t **counts) noexcept;

    // A device does not survive fork(): a child must not touch it.
    bool usable() const noexcept { return fork_generation() == generation; }

    Memory &memory;
    const OpenCl &cl;
    ForkLock lock; // everything below, and the queue's order
    Traits traits{};
    cl_device_id id = nullptr;
    cl_context context = nullptr;
    cl_command_queue queue = nullptr;
    DeviceMemory counted{};
    DeviceWeights *weights = nullptr; // all that are uploaded
    Scratch scratch;
    OneDnn *onednn = nullptr;
    char onednn_note[96] = ""; // why an Intel GPU has none
    const uint32_t generation = fork_generation();

  private:
    static constexpr size_t kFormats = 9, kShapes = 5;
    static constexpr size_t kSlots = kFormats * kShapes * 2 * 3;
    nybl_status compile(const KernelKey &key, Kernels *kernels) noexcept;

    Kernels kernels_[kSlots];
    uint32_t *counts_ = nullptr;
    size_t counts_size_ = 0; // bytes
};

} // namespace nybl::gpu
