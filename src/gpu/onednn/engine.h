// The objects of oneDNN behind gpu/onednn.h. Only its engines, streams, memory and matmul are used, and
// memory only by mapping it, so that one source serves every runtime that oneDNN is built for. Functions here
// may throw dnnl::error; those of gpu/onednn.h turn it into a status.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "gpu/onednn.h"

namespace nybl::gpu {

// A memory object that is counted.
struct Allocation {
    dnnl::memory mem;
    size_t bytes = 0;
};

// Mapped for the life of the object.
class Mapped {
  public:
    explicit Mapped(const dnnl::memory &mem) : mem_(mem), data_(static_cast<uint8_t *>(mem.map_data())) {}
    ~Mapped();
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    uint8_t *data() const noexcept { return data_; }
    void unmap(); // says whether it failed, which the destructor cannot

  private:
    const dnnl::memory &mem_;
    uint8_t *data_;
};

struct Step {
    dnnl::matmul primitive;
    dnnl::memory::desc scratchpad;
};

// One product: the matmul, and in two-term mode what adds the zero points: the sums of X's groups times them.
// F16 sums come in two parts, since one keeps 11 bits of the sum's 24: the mean of the group (which f16 holds
// wherever it holds the activations), and kLowScale times what that lost. Formats with zero points have
// groups of 32.
constexpr float kGroupSize = 32.0f, kLowScale = 2048.0f;
struct Primitives {
    OneDnnPlan plan{};
    uint64_t hash = 0, last_use = 0; // 0: an empty slot
    Step product, terms[2];
    size_t n_terms = 0;
    char implementation[48] = "";
};

// Descriptions of a plan's memory: all row-major but the codes, which are [N, K].
struct Shapes {
    explicit Shapes(const OneDnnPlan &plan);
    dnnl::memory::desc x, codes, params, sums, y;
};

class OneDnnWeights {
  public:
    AffinePlan affine{};
    Allocation codes, scales, zeros;

    OneDnnPlan plan(const OneDnn &dnn, size_t m, nybl_format x_type) const noexcept;
};

class OneDnn {
  public:
    static constexpr size_t kMaxPrimitives = 64;

    OneDnn(Memory &host_memory, DeviceMemory &counters, const OneDnnSettings &how);
    ~OneDnn();
    OneDnn(const OneDnn &) = delete;
    OneDnn &operator=(const OneDnn &) = delete;

    Allocation allocate(const dnnl::memory::desc &desc);
    void release(Allocation *allocation) noexcept;
    // At least `bytes`; contents are lost where it grows.
    void grow(size_t bytes, Allocation *allocation);
    // The beginning of an allocation in another shape.
    dnnl::memory view(const Allocation &allocation, const dnnl::memory::desc &desc) const;

    // Made at first use and kept; the one not used for longest makes room.
    Primitives &find(const OneDnnPlan &plan);
    // oneDNN's name for what it would run, without making it; of several matmuls the slow one's.
    void name_implementation(const OneDnnPlan &plan, char *name, size_t size) const;
    // Whether that is worth running: a reference implementation is not.
    bool is_fast(const char *implementation) const noexcept;

    Memory &memory;
    DeviceMemory &counted;
    const OneDnnSettings settings;
    dnnl::engine engine;
    dnnl::stream stream;
    struct {
        Allocation x, sums[2], y[kMaxOneDnnProducts], pad;
    } scratch;

  private:
    Primitives primitives_[kMaxPrimitives];
    uint64_t uses_ = 0;
};

// The exception being handled, as a status in words. For catch blocks.
nybl_status fail_onednn(const char *what) noexcept;

} // namespace nybl::gpu
