// vec_dot over super-blocks of 256: one per step, its eight scales applied to 16-bit sums.
//
// Q4_K: f16 d, f16 dmin, scales[12], qs[128]; Q5_K: f16 d, f16 dmin, scales[12], qh[32], qs[128];
// Q8_K: f32 d, q[256], i16 bsums[16].
#include "cpu/jit/vec_dot_generator.h"

namespace nybl::cpu::jit {
namespace {

constexpr int kScales = 4, kHigh = 16;
constexpr int kQuants = 4, kSums = 260;
constexpr int kUnpacked = 32, kFactors = 48; // on the stack

} // namespace

VecDot256::VecDot256(const KernelKey &key)
    : VecDotGenerator(key), fifth_(key.format == NYBL_Q5_K), w_bytes_(fifth_ ? 176 : 144),
      w_quants_(fifth_ ? 48 : 16) {}

// r8 weights, r9 activations, r10 super-blocks left, r11 prefetch cursor; rax, rcx, rdx for scales and
// addresses rsp    eight dwords: the scale of sub-block i twice, as 16-bit words ymm0   acc, a lane per four
// elements of each sub-block ymm1   d_w * d_a      ymm2  dmin * d_a ymm3   sums of the even sub-blocks, ymm4
// of the odd ones ymm5   low codes      ymm6  high codes ymm7, ymm8  scales, fifth bits ymm9   qh (Q5_K)
// ymm10 scales and minimums of the super-block ymm13  order of the minimums, ymm14 of the scales;  ymm15
// nibble mask
void VecDot256::emit() {
    begin(64);
    vmovdqa(ymm15, ptr[rip + broadcast_u8(0x0F)]);
    uint8_t order[64]; // in each half, bytes sc0..3 mn0..3 to pairs of words
    for (int i = 0; i < 64; ++i) {
        order[i] = static_cast<uint8_t>(i % 2 == 0 ? i % 16 / 4 + i / 32 * 4 : 0x80);
    }
    lea(rax, ptr[rip + constant(order)]);
    vmovdqa(ymm14, ptr[rax]);
    vmovdqa(ymm13, ptr[rax + 32]);

    each_super_block(w_bytes_, [&] {
        unpack_scales();
        vcvtph2ps(xmm1, ptr[w]); // d, dmin, and two that are not used
        vbroadcastss(xmm2, ptr[a]);
        vmulps(xmm1, xmm1, xmm2);
        vmovlps(ptr[rsp + kFactors], xmm1);
        vbroadcastss(ymm1, ptr[rsp + kFactors]);
        vbroadcastss(ymm2, ptr[rsp + kFactors + 4]);
        if (vnni()) {
            vpxor(ymm3, ymm3, ymm3);
            vpxor(ymm4, ymm4, ymm4);
        }
        if (fifth_) {
            vmovdqu(ymm9, ptr[w + kHigh]);
        }
        for (int c = 0; c < 4; ++c) {
            add_sub_blocks(c);
        }
        vpaddd(ymm3, ymm3, ymm4);
        vcvtdq2ps(ymm3, ymm3);
        vfmadd231ps(ymm0, ymm3, ymm1);
        add_minimums();
    });

    reduce_lanes();
    return_dot();
}

// Twelve bytes to eight 6-bit scales and minimums: sc0..3 mn0..3 in rax, sc4..7 mn4..7 in rcx, then to the
// halves of ymm10 and, as words, to the stack. The way leads through the stack because a broadcast from there
// costs no shuffle, and shuffles are what there are too many of.
void VecDot256::unpack_scales() {
    const auto bytes = [&](uint8_t value) { return ptr[rip + broadcast_u8(value)]; };
    mov(rax, ptr[w + kScales]);
    mov(ecx, ptr[w + kScales + 8]);
    rorx(rdx, rcx, 64 - 28); // high nibbles to the upper half
    or_(rcx, rdx);
    and_(rcx, bytes(0x0F));
    rorx(rdx, rax, 2);
    and_(rdx, bytes(0x30)); // top two bits of each byte, below the nibble's
    or_(rcx, rdx);
    and_(rax, bytes(0x3F));
    mov(ptr[rsp + kUnpacked], rax);
    mov(ptr[rsp + kUnpacked + 8], rcx);
    vpbroadcastq(ymm10, ptr[rsp + kUnpacked]);
    vpbroadcastq(ymm7, ptr[rsp + kUnpacked + 8]);
    vpblendd(ymm10, ymm10, ymm7, 0xF0);
    vpshufb(ymm7, ymm10, ymm14);
    vmovdqa(ptr[rsp], ymm7);
}

// acc -= dmin * d_a * mn * (sum of 32 activations), a lane per sub-block.
void VecDot256::add_minimums() {
    vpshufb(ymm10, ymm10, ymm13);
    vpmaddwd(ymm10, ymm10, ptr[a + kSums]);
    vcvtdq2ps(ymm10, ymm10);
    vfnmadd231ps(ymm0, ymm10, ymm2);
}

// Sub-blocks 2c and 2c+1: the low and the high nibbles of 32 bytes. Sums of two products are at most
// 2 * 31 * 128, and with a 6-bit scale a super-block stays below 2^24: exact in f32 as well.
void VecDot256::add_sub_blocks(int c) {
    vmovdqu(ymm5, ptr[w + w_quants_ + 32 * c]);
    vpsrlw(ymm6, ymm5, 4);
    vpand(ymm5, ymm5, ymm15);
    vpand(ymm6, ymm6, ymm15);
    const Xbyak::Ymm codes[] = {ymm5, ymm6}, sums[] = {ymm3, ymm4}, temporaries[] = {ymm7, ymm8};
    for (int half = 0; half < 2; ++half) {
        const int sub_block = 2 * c + half;
        if (fifth_) {
            add_fifth_bit(codes[half], sub_block);
        }
        vpmaddubsw(codes[half], codes[half], ptr[a + kQuants + 32 * sub_block]);
        if (evex()) {
            vpdpwssd(sums[half], codes[half], ptr_b[rsp + 4 * sub_block]);
            continue;
        }
        vpbroadcastd(temporaries[half], ptr[rsp + 4 * sub_block]);
        if (vnni()) {
            vpdpwssd(sums[half], codes[half], temporaries[half]);
        } else if (c == 0) {
            vpmaddwd(sums[half], codes[half], temporaries[half]);
        } else {
            vpmaddwd(codes[half], codes[half], temporaries[half]);
            vpaddd(sums[half], sums[half], codes[half]);
        }
    }
}

// Bit i of qh[l] is bit 4 of element l of sub-block i.
void VecDot256::add_fifth_bit(const Xbyak::Ymm &to, int sub_block) {
    if (sub_block < 4) {
        vpsllw(ymm7, ymm9, static_cast<uint8_t>(4 - sub_block));
    } else {
        vpsrlw(ymm7, ymm9, static_cast<uint8_t>(sub_block - 4));
    }
    or_masked(to, ymm7, ptr[rip + broadcast_u8(16)]);
}

} // namespace nybl::cpu::jit
