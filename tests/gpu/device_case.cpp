// The set-up of device_case.h.
#include "gpu/device_case.h"

#include <algorithm>
#include <cmath>

#include "dispatch/choose_gpu.h"

namespace nybl::test {

OpenDevice::OpenDevice(const gpu::Variant *variant, uint32_t index)
    : status_(gpu::open_device(memory_, index, variant, &device_)) {}

OpenDevice::~OpenDevice() {
    gpu::close_device(device_);
}

DeviceWeightsCase::DeviceWeightsCase(const AffineBlockFormat &which, size_t rows, size_t columns,
                                     size_t experts, uint32_t seed)
    : format(which), n(rows), k(columns), n_experts(experts),
      blocks(random_blocks(which, rows * experts, columns, seed)) {
    pack();
}

DeviceWeightsCase::DeviceWeightsCase(const AffineBlockFormat &which, size_t columns,
                                     std::vector<uint8_t> given)
    : format(which), n(given.size() / (columns / which.block * which.bytes)), k(columns), n_experts(1),
      blocks(std::move(given)) {
    pack();
}

void DeviceWeightsCase::pack() {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format.id);
    const size_t row_bytes = k / format.block * format.bytes, panel = cpu::panel_bytes(layout, k);
    panels.resize(cpu::panel_count(n) * n_experts * panel);
    uint8_t *out = panels.data();
    for (size_t e = 0; e < n_experts; ++e)
        for (size_t row = 0; row < n; row += cpu::kPanelRows, out += panel)
            cpu::pack_panel(layout, k, std::min(n - row, cpu::kPanelRows), &blocks[(e * n + row) * row_bytes],
                            row_bytes, out);
    exact.resize(n * n_experts * k);
    for (size_t row = 0; row < n * n_experts; ++row)
        for (size_t j = 0; j < k; ++j) {
            const AffineElement element = affine_element(format, &blocks[row * row_bytes], j);
            exact[row * k + j] = element.scale * element.code - element.zero;
        }
}

cpu::Matrix DeviceWeightsCase::matrix() const {
    cpu::Matrix matrix;
    matrix.format = quant::find_format(format.id);
    matrix.layout = cpu::find_panel_layout(format.id);
    matrix.data = panels.data();
    matrix.n = n;
    matrix.k = k;
    matrix.stride = cpu::panel_bytes(*matrix.layout, k);
    matrix.expert_stride = matrix.stride * cpu::panel_count(n);
    return matrix;
}

cpu::Rows dense_rows(void *base, size_t columns) {
    return {static_cast<uint8_t *>(base), NYBL_F32, 1, 4 * columns, 4 * columns};
}

DenseProduct::DenseProduct(const DeviceWeightsCase &w, size_t m, const std::vector<float> &x,
                           const float *bias, std::vector<float> *y) {
    y->assign(m * w.n, NAN);
    product.w = w.matrix();
    product.y = dense_rows(y->data(), w.n);
    product.bias = bias;
    job.m = m;
    job.k = w.k;
    job.x = dense_rows(const_cast<float *>(x.data()), w.k);
}

nybl_status multiply(gpu::Device &device, const DeviceWeightsCase &w, const Uploaded &uploaded, size_t m,
                     const std::vector<float> &x, const float *bias, nybl_compute compute,
                     std::vector<float> *y, std::string *name) {
    const auto choice = dispatch::choose_gpu(
        {w.format.id, NYBL_STORAGE_PACKED, compute, m, w.n, w.k, w.n_experts, NYBL_ISA_SCALAR, 1},
        gpu::traits_of(device), gpu::place_of(device, *uploaded.get(), m, NYBL_F32));
    if (!choice.served)
        return NYBL_UNSUPPORTED;
    if (name)
        *name = choice.name;
    const DenseProduct dense(w, m, x, bias, y);
    const gpu::Product on_device{uploaded.get(), &dense.product, choice.kernel};
    return gpu::run_products(device, dense.job, &on_device, 1);
}

std::vector<double> multiply_exactly(const DeviceWeightsCase &w, size_t m, const std::vector<float> &x,
                                     const float *bias) {
    std::vector<double> y(m * w.n);
    for (size_t i = 0; i < y.size(); ++i) {
        const size_t row = i % w.n, token = i / w.n;
        double sum = bias ? static_cast<double>(bias[row]) : 0.0;
        for (size_t j = 0; j < w.k; ++j)
            sum += w.exact[row * w.k + j] * static_cast<double>(x[token * w.k + j]);
        y[i] = sum;
    }
    return y;
}

std::vector<float> random_activations(size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.5f, 1.0f); // a mean, so that the zero points count
    std::vector<float> values(count);
    for (auto &value : values)
        value = normal(random);
    return values;
}

double nmse(const std::vector<float> &y, const std::vector<double> &exact) {
    double error = 0, energy = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        error += std::pow(y[i] - exact[i], 2);
        energy += std::pow(exact[i], 2);
    }
    return error / energy;
}

} // namespace nybl::test
