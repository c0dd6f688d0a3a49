// The set-up of device_case.h.
#include "gpu/device_case.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace nybl::test {

void skip_under_sanitizers() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("OpenCL drivers are not run under a sanitizer");
#endif
}

OpenDevice::OpenDevice(const gpu::Variant *variant, uint32_t index)
    : status_(gpu::open_device(memory_, index, variant, &device_)) {}

OpenDevice::~OpenDevice() {
    gpu::close_device(device_);
}

DeviceWeightsCase::DeviceWeightsCase(const AffineBlockFormat &which, size_t rows, size_t columns,
                                     size_t experts, uint32_t seed)
    : format(which), n(rows), k(columns), n_experts(experts),
      blocks(random_blocks(which, rows * experts, columns, seed)), exact(rows * experts * columns) {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format.id);
    const size_t row_bytes = k / format.block * format.bytes, panel = cpu::panel_bytes(layout, k);
    panels.resize(cpu::panel_count(n) * n_experts * panel);
    uint8_t *out = panels.data();
    for (size_t e = 0; e < n_experts; ++e)
        for (size_t row = 0; row < n; row += cpu::kPanelRows, out += panel)
            cpu::pack_panel(layout, k, std::min(n - row, cpu::kPanelRows), &blocks[(e * n + row) * row_bytes],
                            row_bytes, out);
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
