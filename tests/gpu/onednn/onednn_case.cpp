// The set-up of onednn_case.h.
#include "gpu/onednn/onednn_case.h"

namespace nybl::test {

nybl_status multiply_in(OpenEngine &engine, const DeviceWeightsCase &w, const EngineWeights &weights,
                        size_t m, const std::vector<float> &x, const float *bias, std::vector<float> *y) {
    const DenseProduct dense(w, m, x, bias, y);
    const gpu::OneDnnProduct one{weights.get(), &dense.product};
    return gpu::run_onednn(*engine.dnn, dense.job, &one, 1);
}

} // namespace nybl::test
