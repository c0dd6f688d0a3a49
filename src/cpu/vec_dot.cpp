// A plain function per format and instruction set around each generated dot product.
#include "cpu/vec_dot.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/float_environment.h"
#include "base/half.h"
#include "cpu/jit/vec_dot_kernel.h"
#include "cpu/vec_dot_reference.h"

namespace nybl::cpu {
namespace {

struct Served {
    nybl_format format;
    uint32_t block;
};
constexpr std::array<Served, 9> kFormats = {{{NYBL_Q4_0, 32},
                                             {NYBL_Q4_1, 32},
                                             {NYBL_Q5_0, 32},
                                             {NYBL_Q5_1, 32},
                                             {NYBL_Q8_0, 32},
                                             {NYBL_IQ4_NL, 32},
                                             {NYBL_Q4_K, 256},
                                             {NYBL_Q5_K, 256},
                                             {NYBL_Q6_K, 256}}};
constexpr size_t kIsas = 3; // avx2, avx_vnni, avx512_vnni

// nybl_vec_dot_fn has no room for a pointer of its own, so each pair has a function and a place for its
// kernel.
std::atomic<jit::VecDotKernel> g_kernels[kFormats.size() * kIsas];

template <size_t pair>
void vec_dot(uint64_t k, const void *w_row, const void *a_row, float *out) noexcept {
    constexpr Served served = kFormats[pair / kIsas];
    float result = 0;
    {
        const FloatEnvironment environment;
        const jit::VecDotArgs args{w_row, a_row, k / served.block, &result};
        g_kernels[pair].load(std::memory_order_relaxed)(&args);
    }
    if (!f32_is_finite(result)) {
        find_vec_dot_reference(served.format)(k, w_row, a_row, &result);
    }
    *out = result;
}

template <size_t... pairs>
constexpr std::array<nybl_vec_dot_fn, sizeof...(pairs)> all_functions(std::index_sequence<pairs...>) {
    return {vec_dot<pairs>...};
}
constexpr auto kFunctions = all_functions(std::make_index_sequence<kFormats.size() * kIsas>());

} // namespace

nybl_vec_dot_fn find_vec_dot(nybl_format format, nybl_isa isa) noexcept {
    const nybl_vec_dot_fn reference = find_vec_dot_reference(format);
    const nybl_isa served = std::min(isa, NYBL_ISA_AVX512_VNNI); // tiles have nothing to add here
    if (reference == nullptr || served < NYBL_ISA_AVX2) {
        return reference;
    }
    const jit::VecDotKernel kernel = jit::vec_dot_kernel(format, served);
    if (kernel == nullptr) {
        return reference;
    }
    const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                    [format](const Served &each) { return each.format == format; });
    const size_t pair = static_cast<size_t>(found - kFormats.begin()) * kIsas + (served - NYBL_ISA_AVX2);
    g_kernels[pair].store(kernel, std::memory_order_relaxed);
    return kFunctions[pair];
}

} // namespace nybl::cpu
