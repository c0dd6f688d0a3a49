// What the vec_dot generators share, and the choice between them.
#include "cpu/jit/vec_dot_generator.h"

#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/vec_dot_kernel.h"

namespace nybl::cpu::jit {

namespace {

// One sequential stream leaves memory bandwidth unused: a hardware prefetcher works page by page. So the
// lines of the next four pages (a window, aligned) are asked for in turns, one of each page, as four streams
// would.
constexpr int kPage = 4096, kPages = 4, kWindow = kPages * kPage, kLine = 64, kTurn = kPages * kLine;

} // namespace

void VecDotGenerator::begin(uint32_t stack_bytes) {
    open_frame({.saved = 0, .vectors = 16, .stack = stack_bytes});
    mov(w, ptr[args]);
    mov(a, ptr[args + 8]);
    mov(blocks, ptr[args + 16]);
    start_prefetch();
    vxorps(ymm0, ymm0, ymm0);
}

void VecDotGenerator::return_dot() {
    mov(rax, ptr[args + 24]);
    vmovss(ptr[rax], xmm0);
    close_frame();
}

void VecDotGenerator::start_prefetch() {
    lea(cursor, ptr[w + kWindow]);
    and_(cursor, -kTurn);
}

void VecDotGenerator::prefetch_weights(int step) {
    Xbyak::Label done;
    lea(rax, ptr[w + kWindow + step]);
    cmp(cursor, rax);
    jae(done);
    // Turn t of a window is line t of each of its pages.
    mov(rcx, cursor);
    and_(rcx, -kWindow);
    rorx(edx, cursor.cvt32(), 2); // bytes of a turn to bytes of a line
    and_(edx, (kWindow - kTurn) >> 2);
    static_assert(kTurn >> 2 == kLine);
    for (int page = 0; page < kPages; ++page) {
        prefetcht0(ptr[rcx + rdx + page * kPage]);
    }
    add(cursor, kTurn);
    L(done);
}

void VecDotGenerator::or_masked(const Xbyak::Ymm &to, const Xbyak::Ymm &bits, const Xbyak::Operand &mask) {
    if (evex()) {
        constexpr uint8_t kAOrBAndC = 0xF8; // truth table of a | (b & c)
        vpternlogd(to, bits, mask, kAOrBAndC);
    } else {
        vpand(bits, bits, mask);
        vpor(to, to, bits);
    }
}

void VecDotGenerator::reduce_lanes() {
    vextractf128(xmm2, ymm0, 1);
    vaddps(xmm0, xmm0, xmm2);
    vmovhlps(xmm2, xmm0, xmm0);
    vaddps(xmm0, xmm0, xmm2);
    vmovshdup(xmm2, xmm0);
    vaddss(xmm0, xmm0, xmm2);
}

VecDotKernel vec_dot_kernel(nybl_format format, nybl_isa isa) noexcept {
    const KernelKey key{KernelKind::VecDot, format, isa};
    if (isa >= NYBL_ISA_AVX2 && isa <= NYBL_ISA_AVX512_VNNI) {
        switch (format) {
        case NYBL_Q4_0:
        case NYBL_IQ4_NL:
        case NYBL_Q4_1:
        case NYBL_Q5_0:
        case NYBL_Q5_1:
        case NYBL_Q8_0:
            return kernel<VecDotKernel>(key, make_generator<VecDot32>);
        case NYBL_Q4_K:
        case NYBL_Q5_K:
            return kernel<VecDotKernel>(key, make_generator<VecDot256>);
        case NYBL_Q6_K:
            return kernel<VecDotKernel>(key, make_generator<VecDotQ6K>);
        default:
            break;
        }
    }
    fail(NYBL_UNSUPPORTED, "there is no generated dot product of blocks named %s", kernel_name(key).text);
    return nullptr;
}

} // namespace nybl::cpu::jit
