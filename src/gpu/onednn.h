// Products by oneDNN, as the rest of src/gpu sees them: no type of oneDNN, so that a build without it has the
// same interface (and opens no engine). Callers hold the device's lock.
#pragma once

#include "base/memory.h"
#include "cpu/matmul.h"
#include "cpu/threads.h"
#include "gpu/onednn_plan.h"

namespace nybl::gpu {

class OneDnn;        // an engine of oneDNN, its primitives and scratch
class OneDnnWeights; // codes, scales and scaled zero points of one weight tensor in its memory

// Bytes on a device.
struct DeviceMemory {
    size_t bytes, peak_bytes, param_bytes;
};

struct OneDnnSettings {
    bool cpu_engine = false; // for tests: multiplies f32 activations, by whatever implementation there is
    nybl_format params = NYBL_F16; // what scales and zero points are kept as, where they fit it
    uint32_t index = 0;            // of oneDNN's engines of the kind
    bool matrix_engine = false;    // the device multiplies matrices in one instruction
    size_t max_buffer_bytes = SIZE_MAX;
};

// A status in words where this build has no oneDNN, or oneDNN has no such engine. `counted` outlives it.
nybl_status open_onednn(Memory &memory, DeviceMemory &counted, const OneDnnSettings &settings,
                        OneDnn **opened) noexcept;
void close_onednn(OneDnn *dnn) noexcept; // no weights may be left; NULL is ignored
// In a forked child: gives host memory back and touches nothing of the parent's device.
void abandon_onednn(OneDnn *dnn) noexcept;

// Decodes packed panels (one expert) straight into the engine's memory. NYBL_UNSUPPORTED, in words, where
// oneDNN has no more than a reference implementation for them. `pool` may be NULL: this thread alone.
nybl_status upload_onednn(OneDnn &dnn, const cpu::Matrix &packed, cpu::Pool *pool,
                          OneDnnWeights **weights) noexcept;
void release_onednn(OneDnn &dnn, OneDnnWeights *weights) noexcept;
void abandon_onednn_weights(OneDnn &dnn, OneDnnWeights *weights) noexcept; // as abandon_onednn
// Whether the weights hold what these panels decode to.
bool onednn_holds(OneDnn &dnn, const OneDnnWeights &weights, const cpu::Matrix &packed) noexcept;
size_t onednn_param_bytes(const OneDnnWeights &weights) noexcept;

// What m rows of x would run as.
struct OneDnnUse {
    OneDnnPlan plan;
    char implementation[48]; // oneDNN's name for it: "jit:gemm:any"
};
nybl_status describe_onednn(OneDnn &dnn, const OneDnnWeights &weights, size_t m, nybl_format x_type,
                            OneDnnUse *use) noexcept;

// The same for weights that are not there: the largest shapes can be asked about.
nybl_status name_onednn(const OneDnn &dnn, nybl_format format, size_t m, size_t n, size_t k,
                        OneDnnUse *use) noexcept;

struct OneDnnProduct {
    const OneDnnWeights *weights;
    const cpu::Product *product; // n, y, bias
};
constexpr size_t kMaxOneDnnProducts = 8;
// Runs at most that many products of a job (without experts), whose activations are prepared once. Outputs
// change on success only.
nybl_status run_onednn(OneDnn &dnn, const cpu::Job &job, const OneDnnProduct *products,
                       size_t count) noexcept;

} // namespace nybl::gpu
