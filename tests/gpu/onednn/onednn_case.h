// Products through oneDNN's interface in src/gpu, below devices and contexts. What engines there are to try,
// and how exact they are, each test program says for itself.
#pragma once

#include <nybl/nybl.h>
#include <vector>

#include "gpu/device_case.h"
#include "gpu/onednn.h"

namespace nybl::test {

struct EngineCase {
    const char *name;
    gpu::OneDnnSettings settings;
    double nmse;     // products against f64
    bool small_only; // a slow reference implementation
};
const std::vector<EngineCase> &engine_cases();

// An engine that closes itself, and its count of bytes.
class OpenEngine {
  public:
    explicit OpenEngine(const gpu::OneDnnSettings &settings)
        : status(gpu::open_onednn(memory, counted, settings, &dnn)) {}
    ~OpenEngine() { gpu::close_onednn(dnn); }
    OpenEngine(const OpenEngine &) = delete;
    OpenEngine &operator=(const OpenEngine &) = delete;

    Memory memory{nullptr};
    gpu::DeviceMemory counted{};
    gpu::OneDnn *dnn = nullptr;
    nybl_status status;
};

// Weights in an engine, until the object goes.
class EngineWeights {
  public:
    EngineWeights(OpenEngine &engine, const DeviceWeightsCase &w, cpu::Pool *pool = nullptr)
        : engine_(engine), status(gpu::upload_onednn(*engine.dnn, w.matrix(), pool, &weights_)) {}
    ~EngineWeights() {
        if (weights_)
            gpu::release_onednn(*engine_.dnn, weights_);
    }
    EngineWeights(const EngineWeights &) = delete;
    EngineWeights &operator=(const EngineWeights &) = delete;

    const gpu::OneDnnWeights *get() const { return weights_; }

  private:
    OpenEngine &engine_;
    gpu::OneDnnWeights *weights_ = nullptr;

  public:
    const nybl_status status;
};

// m rows of x (f32) times the weights to f32 outputs.
nybl_status multiply_in(OpenEngine &engine, const DeviceWeightsCase &w, const EngineWeights &weights,
                        size_t m, const std::vector<float> &x, const float *bias, std::vector<float> *y);

} // namespace nybl::test
