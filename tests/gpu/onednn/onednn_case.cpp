// The set-up of onednn_case.h.
#include "gpu/onednn/onednn_case.h"

#include <cmath>

namespace nybl::test {

nybl_status multiply_in(OpenEngine &engine, const DeviceWeightsCase &w, const EngineWeights &weights,
                        size_t m, const std::vector<float> &x, const float *bias, std::vector<float> *y) {
    y->assign(m * w.n, NAN);
    cpu::Product product;
    product.w = w.matrix();
    product.y = dense_rows(y->data(), w.n);
    product.bias = bias;
    cpu::Job job;
    job.m = m;
    job.k = w.k;
    job.x = dense_rows(const_cast<float *>(x.data()), w.k);
    const gpu::OneDnnProduct one{weights.get(), &product};
    return gpu::run_onednn(*engine.dnn, job, &one, 1);
}

} // namespace nybl::test
