// The block kernels for AVX2 (and F16C, without which detection does not speak of AVX2): the one object of
// the library that is compiled for more than the baseline. All but the one function below has internal
// linkage (lanes.h says why).
#include "quant/lane_kernels.h"

#if defined(__AVX2__) && defined(__F16C__)

#include "quant/dequantize_avx2.h"

namespace nybl::quant {
namespace {

DequantizeFn find_dequantize(nybl_format id) noexcept {
    switch (id) {
    case NYBL_Q4_0:
        return dequantize_32<DecodeQ4_0>;
    case NYBL_Q4_1:
        return dequantize_32<DecodeQ4_1>;
    case NYBL_Q5_0:
        return dequantize_32<DecodeQ5_0>;
    case NYBL_Q5_1:
        return dequantize_32<DecodeQ5_1>;
    case NYBL_Q8_0:
        return dequantize_32<DecodeQ8_0>;
    case NYBL_IQ4_NL:
        return dequantize_32<DecodeIQ4_NL>;
    case NYBL_IQ4_NL_ROW:
        return dequantize_iq4_nl_row;
    case NYBL_Q4_K:
        return dequantize_k<false>;
    case NYBL_Q5_K:
        return dequantize_k<true>;
    case NYBL_Q6_K:
        return dequantize_q6_k;
    default:
        return nullptr;
    }
}

constexpr BlockKernels kAvx2Kernels = [] {
    BlockKernels kernels = kLaneKernels;
    kernels.find_dequantize = find_dequantize;
    return kernels;
}();

} // namespace

const BlockKernels *avx2_block_kernels() noexcept {
    return &kAvx2Kernels;
}

} // namespace nybl::quant

#else

namespace nybl::quant {

const BlockKernels *avx2_block_kernels() noexcept {
    return nullptr;
}

} // namespace nybl::quant

#endif
