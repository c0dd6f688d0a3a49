// vec_dot of Q6_K: a super-block per step, the scale of each 16 elements applied to 16-bit sums.
//
// Q6_K: ql[128], qh[64], i8 scales[16], f16 d; Q8_K: f32 d, q[256], i16 bsums[16].
#include "cpu/jit/vec_dot_generator.h"

namespace nybl::cpu::jit {
namespace {

constexpr int kBytes = 210, kHigh = 128, kScales = 192, kScale = 208;
constexpr int kQuants = 4, kSums = 260;

} // namespace

// r8 weights, r9 activations, r10 super-blocks left, r11 prefetch cursor; rax, rcx, rdx for addresses
// ymm0   acc, a lane per four elements of each sub-block
// ymm3   sums of the even sub-blocks, ymm4 of the odd ones
// ymm5, ymm6  codes      ymm7, ymm8  scales, high bits      ymm9  qh of a half
// ymm10  scales as 16-bit words: of the first 16 elements of sub-blocks 0 .. 7, then of the others
// ymm13  bits 4 and 5    ymm14  order of the scales    ymm15  nibble mask
void VecDotQ6K::emit() {
    begin(0);
    vmovdqa(ymm15, ptr[rip + broadcast_u8(0x0F)]);
    vmovdqa(ymm13, ptr[rip + broadcast_u8(0x30)]);
    uint8_t order[16];
    for (int i = 0; i < 16; ++i) {
        order[i] = static_cast<uint8_t>(i % 8 * 2 + i / 8);
    }
    vmovdqa(ymm14, ptr[rip + broadcast_16(order)]);

    each_super_block(kBytes, [&] {
        load_scales();
        vpxor(ymm3, ymm3, ymm3);
        vpxor(ymm4, ymm4, ymm4);
        add_half(0);
        add_half(1);
        finish_block();
    });

    reduce_lanes();
    return_dot();
}

void VecDotQ6K::load_scales() {
    vmovdqu(xmm10, ptr[w + kScales]);
    vpshufb(xmm10, xmm10, xmm14);
    vpmovsxbw(ymm10, xmm10);
}

// Sub-blocks 4 half .. 4 half + 3: the low nibbles of 64 bytes, then their high ones, and two bits each of 32
// more.
void VecDotQ6K::add_half(int half) {
    vmovdqu(ymm9, ptr[w + kHigh + 32 * half]);
    for (int run = 0; run < 4; ++run) {
        const Xbyak::Ymm codes(5 + run % 2), high(7);
        vmovdqu(codes, ptr[w + 64 * half + 32 * (run % 2)]);
        if (run >= 2) {
            vpsrlw(codes, codes, 4);
        }
        vpand(codes, codes, ymm15);
        if (run == 2) {
            vmovdqa(high, ymm9);
        } else if (run < 2) {
            vpsllw(high, ymm9, static_cast<uint8_t>(4 - 2 * run));
        } else {
            vpsrlw(high, ymm9, 2);
        }
        or_masked(codes, high, ymm13);
        add_sub_block(codes, 4 * half + run);
    }
}

// Sums of two products are at most 2 * 63 * 128; with the scales, a lane of a super-block stays below 2^26.
void VecDotQ6K::add_sub_block(const Xbyak::Ymm &codes, int sub_block) {
    uint8_t twice[16];
    for (int i = 0; i < 16; ++i) {
        twice[i] = static_cast<uint8_t>(2 * sub_block + i % 2);
    }
    const Xbyak::Ymm sum(3 + sub_block % 2), scale(8);
    vpmaddubsw(codes, codes, ptr[a + kQuants + 32 * sub_block]);
    vpshufb(scale, ymm10, ptr[rip + broadcast_16(twice)]);
    if (vnni()) {
        vpdpwssd(sum, codes, scale);
    } else {
        vpmaddwd(codes, codes, scale);
        vpaddd(sum, sum, codes);
    }
}

// Takes off what the codes are stored with: 32 times scale times sum of 16 activations, a lane per sub-block.
void VecDotQ6K::finish_block() {
    vpmovsxbw(ymm7, ptr[w + kScales]);
    vpmaddwd(ymm7, ymm7, ptr[a + kSums]);
    vpslld(ymm7, ymm7, 5);
    vpaddd(ymm3, ymm3, ymm4);
    vpsubd(ymm3, ymm3, ymm7);
    vcvtdq2ps(ymm3, ymm3);
    movzx(eax, word[w + kScale]); // the block ends behind it
    vmovd(xmm1, eax);
    vcvtph2ps(xmm1, xmm1);
    vmulss(xmm1, xmm1, ptr[a]);
    vbroadcastss(ymm1, xmm1);
    vfmadd231ps(ymm0, ymm3, ymm1);
}

} // namespace nybl::cpu::jit
