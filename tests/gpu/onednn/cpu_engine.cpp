// oneDNN's CPU engine: f32 activations by its own kernels, and its reference for f16 parameters.
#include "gpu/onednn/onednn_case.h"

namespace nybl::test {

const std::vector<EngineCase> &engine_cases() {
    static const std::vector<EngineCase> cases = {
        {"f32 parameters", {.cpu_engine = true, .params = NYBL_F32}, 1e-11, false},
        {"f16 parameters", {.cpu_engine = true, .params = NYBL_F16}, 1e-6, true},
    };
    return cases;
}

} // namespace nybl::test
