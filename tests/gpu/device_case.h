// Products on an OpenCL device, set up below the C API: packed weights, random activations, the f64 result.
#pragma once

#include <memory>
#include <nybl/nybl.h>
#include <string>
#include <vector>

#include "base/memory.h"
#include "cpu/matmul.h"
#include "cpu/panel.h"
#include "gpu/formula.h"
#include "gpu/gpu.h"

namespace nybl::test {

// An opened device that closes itself.
class OpenDevice {
  public:
    explicit OpenDevice(const gpu::Variant *variant, uint32_t index = 0);
    ~OpenDevice();
    OpenDevice(const OpenDevice &) = delete;
    OpenDevice &operator=(const OpenDevice &) = delete;

    nybl_status status() const { return status_; }
    gpu::Device &operator*() const { return *device_; }

  private:
    Memory memory_{nullptr};
    gpu::Device *device_ = nullptr;
    nybl_status status_;
};

// Weights in both forms, packed for the device and as exact f64 values.
struct DeviceWeightsCase {
    DeviceWeightsCase(const AffineBlockFormat &format, size_t n, size_t k, size_t n_experts, uint32_t seed);
    // One matrix of these blocks, with as many rows as they make.
    DeviceWeightsCase(const AffineBlockFormat &format, size_t k, std::vector<uint8_t> blocks);
    cpu::Matrix matrix() const;

    AffineBlockFormat format;
    size_t n, k, n_experts;
    std::vector<uint8_t> blocks, panels; // experts one after the other
    std::vector<double> exact;           // [n_experts, n, k]

  private:
    void pack();
};

// The weights on a device, until the object goes.
class Uploaded {
  public:
    Uploaded(gpu::Device &device, const DeviceWeightsCase &w)
        : device_(device),
          status_(gpu::upload_weights(device, w.matrix(), w.n_experts, w.panels.size(), nullptr, &weights_)) {
    }
    ~Uploaded() { gpu::release_weights(device_, weights_); }
    Uploaded(const Uploaded &) = delete;
    Uploaded &operator=(const Uploaded &) = delete;

    nybl_status status() const { return status_; }
    const gpu::DeviceWeights *get() const { return weights_; }

  private:
    gpu::Device &device_;
    gpu::DeviceWeights *weights_ = nullptr;
    nybl_status status_;
};

// m rows of x (f32) times the weights, ready to run; *y gets its size, and NaN everywhere.
struct DenseProduct {
    DenseProduct(const DeviceWeightsCase &w, size_t m, const std::vector<float> &x, const float *bias,
                 std::vector<float> *y);

    cpu::Product product;
    cpu::Job job;
};

// m rows of x through the kernel that dispatch chooses, f32 in and out; bias may be NULL. *name is the
// kernel's.
nybl_status multiply(gpu::Device &device, const DeviceWeightsCase &w, const Uploaded &uploaded, size_t m,
                     const std::vector<float> &x, const float *bias, nybl_compute compute,
                     std::vector<float> *y, std::string *name = nullptr);
// The same in f64.
std::vector<double> multiply_exactly(const DeviceWeightsCase &w, size_t m, const std::vector<float> &x,
                                     const float *bias);

cpu::Rows dense_rows(void *base, size_t columns); // f32
std::vector<float> random_activations(size_t count, uint32_t seed);

// sum (y - exact)^2 / sum exact^2
double nmse(const std::vector<float> &y, const std::vector<double> &exact);

} // namespace nybl::test
