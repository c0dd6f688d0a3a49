// The block-level dot product as generated code: the contract of cpu/vec_dot_reference.h on AVX2, AVX-VNNI
// and AVX512-VNNI.
#pragma once

#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::cpu::jit {

struct VecDotArgs {
    const void *w; // weight blocks, any alignment
    const void *a; // as many activation blocks
    uint64_t blocks;
    float *out;
};
using VecDotKernel = void (*)(const VecDotArgs *args);

// Formats with such a kernel; the others run the reference.
constexpr bool has_vec_dot_kernel(nybl_format format) noexcept {
    return format == NYBL_Q4_0 || format == NYBL_Q4_1 || format == NYBL_Q5_0 || format == NYBL_Q5_1 ||
           format == NYBL_Q8_0 || format == NYBL_IQ4_NL || format == NYBL_Q4_K || format == NYBL_Q5_K ||
           format == NYBL_Q6_K;
}

// The kernel of a format on avx2, avx_vnni or avx512_vnni; NULL with a sentence where there is none.
//
// It takes a Q8_1 sum as it is stored: where one is not finite, neither is the result, and the caller turns
// to the reference. The sum of a row with such a block cannot become finite again, so looking once is enough.
VecDotKernel vec_dot_kernel(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu::jit
