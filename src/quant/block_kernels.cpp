// The block kernels for every machine, and the choice among all.
#include "quant/lane_kernels.h"

namespace nybl::quant {

const BlockKernels &block_kernels(nybl_isa isa) noexcept {
    const BlockKernels *avx2 = isa >= NYBL_ISA_AVX2 ? avx2_block_kernels() : nullptr;
    return avx2 ? *avx2 : kLaneKernels;
}

} // namespace nybl::quant
