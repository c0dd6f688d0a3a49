// vec_dot over blocks of 32: two blocks share a ymm, four share the conversion of their headers.
//
// For each format the bytes of a block: Q4_0, IQ4_NL f16 d, qs[16]; Q4_1 f16 d, f16 m, qs[16]; Q5_1 f16 d,
// f16 m, u32 qh, qs[16]; Q5_0 f16 d, u32 qh, qs[16]; Q8_0 f16 d, q[32]; Q8_1 f16 d, f16 s, q[32].
#include "cpu/jit/vec_dot_generator.h"

#include <algorithm>

namespace nybl::cpu::jit {
namespace {

constexpr int kGroup = 4;      // blocks whose headers are converted together
constexpr uint8_t kBias = 128; // vpdpbusd takes signed values unsigned

// The values of IQ4_NL codes.
constexpr int8_t kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

} // namespace

VecDot32::VecDot32(const KernelKey &key)
    : VecDotGenerator(key), has_min_(key.format == NYBL_Q4_1 || key.format == NYBL_Q5_1),
      table_(key.format == NYBL_IQ4_NL), bytes_(key.format == NYBL_Q8_0),
      offset_(key.format == NYBL_Q4_0   ? 8
              : key.format == NYBL_Q5_0 ? 16
                                        : 0),
      fifth_(key.format == NYBL_Q5_0 || key.format == NYBL_Q5_1),
      w_quants_((has_min_ ? 4 : 2) + (fifth_ ? 4 : 0)), w_bytes_(w_quants_ + (bytes_ ? 32 : 16)),
      a_bytes_(has_min_ ? 36 : 34), a_quants_(has_min_ ? 4 : 2) {}

// r8 weights, r9 activations, r10 blocks left, r11 prefetch cursor; rax, rcx, rdx for headers and addresses
// rsp    f16 headers on their way to f32
// ymm0   acc: lanes 0..3 even blocks, 4..7 odd ones
// xmm1   minimums of blocks 0 and 1 (mod 4) in lanes 1, 3
// ymm2   scales of blocks 0, 1: four lanes each;  ymm3 of blocks 2, 3
// ymm4   low codes      ymm6  their activations
// ymm5   high codes     ymm7  their activations
// ymm8 .. ymm10  temporaries; ymm10 shifts by 0 and 4 (Q4_0, Q4_1 on AVX2)
// ymm11  what codes are stored with beside their value (Q4_0, Q5_0), or the table (IQ4_NL)
// ymm12, ymm13  which scale goes to which lane; beside minimums, xmm13 is those of blocks 2 and 3 (mod 4)
// ymm14  16-bit ones (AVX2), 128 (IQ4_NL and Q8_0 on VNNI);  ymm15  nibble mask
void VecDot32::emit() {
    begin(32);
    vxorps(ymm1, ymm1, ymm1);
    if (!bytes_) {
        vmovdqa(ymm15, ptr[rip + broadcast_u8(0x0F)]);
    }
    if (!vnni() && !bytes_) {
        vmovdqa(ymm14, ptr[rip + broadcast_u16(1)]);
    } else if (table_ || (bytes_ && vnni())) {
        vmovdqa(ymm14, ptr[rip + broadcast_u8(kBias)]);
    }
    if (whole()) {
        uint8_t shifts[64] = {};
        for (int i = 16; i < 32; i += 4) {
            shifts[i] = 4;
        }
        vmovdqa(ymm10, ptr[rip + constant(shifts)]);
    }
    if (offset_) {
        vmovdqa(ymm11, ptr[rip + broadcast_u8(offset_)]);
    } else if (table_) {
        uint8_t table[16];
        for (size_t i = 0; i < 16; ++i) {
            table[i] = static_cast<uint8_t>(kTable[i] + (vnni() ? kBias : 0));
        }
        vmovdqa(ymm11, ptr[rip + broadcast_16(table)]);
    }
    uint8_t lanes[64]; // two index vectors: products lie in every lane, or in every other one beside minimums
    for (uint8_t i = 0; i < 16; ++i) {
        lanes[4 * i] = static_cast<uint8_t>(i / 4 * (has_min_ ? 2 : 1));
        lanes[4 * i + 1] = lanes[4 * i + 2] = lanes[4 * i + 3] = 0;
    }
    lea(rax, ptr[rip + constant(lanes)]);
    vmovdqa(ymm12, ptr[rax]);
    if (has_min_) {
        vxorps(ymm13, ymm13, ymm13);
    } else {
        vmovdqa(ymm13, ptr[rax + 32]);
    }

    Xbyak::Label loop, rest, tails[kGroup], end;
    const int unrolled = bytes_ ? kGroup : 2 * kGroup; // a step of the prefetch's size
    sub(blocks, unrolled);
    jb(rest);
    align(32);
    L(loop);
    prefetch_weights(unrolled * w_bytes_);
    for (int i = 0; i < unrolled / kGroup; ++i) {
        emit_group(kGroup);
    }
    sub(blocks, unrolled);
    jae(loop);
    L(rest);
    if (unrolled > kGroup) {
        add(blocks, unrolled - kGroup); // left after one more group
        jnc(tails[0]);
        emit_group(kGroup);
        sub(blocks, kGroup);
        L(tails[0]);
    }
    add(blocks, kGroup);
    jz(end);
    cmp(blocks, 2);
    jb(tails[1]);
    je(tails[2]);
    emit_group(3);
    jmp(end);
    L(tails[2]);
    emit_group(2);
    jmp(end);
    L(tails[1]);
    emit_group(1);
    L(end);

    reduce_lanes();
    if (has_min_) {
        vaddps(xmm1, xmm1, xmm13);
        vmovhlps(xmm2, xmm1, xmm1);
        vaddps(xmm1, xmm1, xmm2);
        vmovshdup(xmm1, xmm1);
        vaddss(xmm0, xmm0, xmm1);
    }
    return_dot();
}

// The next `count` blocks, the first of them a multiple of four from the start. Lanes of blocks that are not
// there get 0 * 0.
void VecDot32::emit_group(int count) {
    emit_scales(count);
    emit_pair(0, count >= 2, ymm2);
    if (count > 2) {
        emit_pair(1, count == 4, ymm3);
    }
    if (count == kGroup) {
        add(w, kGroup * w_bytes_);
        add(a, kGroup * a_bytes_);
    }
}

void VecDot32::emit_scales(int count) {
    if (has_min_) {
        emit_pair_scales(0, count >= 2, xmm1, ymm2);
        if (count > 2) {
            emit_pair_scales(1, count == 4, xmm13, ymm3);
        }
        return;
    }
    convert_halves(xmm4, w, w_bytes_, count);
    convert_halves(xmm5, a, a_bytes_, count);
    vmulps(xmm4, xmm4, xmm5);
    vpermps(ymm2, ymm12, ymm4);
    if (count > 2) {
        vpermps(ymm3, ymm13, ymm4);
    }
}

// The same for blocks 2 pair and 2 pair + 1 of a format with minimums, which are added on the way.
void VecDot32::emit_pair_scales(int pair, bool both, const Xbyak::Xmm &least, const Xbyak::Ymm &scale) {
    const Xbyak::Xmm factors[] = {xmm4, xmm5}; // d m d m, d s d s
    for (int side = 0; side < 2; ++side) {
        const Xbyak::Reg64 &base = side == 0 ? w : a;
        const int stride = side == 0 ? w_bytes_ : a_bytes_;
        mov(eax, ptr[base + 2 * pair * stride]);
        if (both) {
            mov(ecx, ptr[base + (2 * pair + 1) * stride]);
            shl(rcx, 32);
            or_(rax, rcx);
        }
        const Xbyak::Address slot = ptr[rsp + 8 * (2 * pair + side)];
        mov(slot, rax);
        vcvtph2ps(factors[side], slot);
    }
    vfmadd231ps(least, xmm4, xmm5);
    vmulps(xmm4, xmm4, xmm5);
    vpermps(scale, ymm12, ymm4);
}

// The f16 at the start of each block, as f32. Built in general registers and passed on through the stack,
// since vector operations are the scarcer ones: a load of four bytes ends in the next block's header, a load
// of two replaces its lower half, and a conversion from memory needs no shuffle.
void VecDot32::convert_halves(const Xbyak::Xmm &to, const Xbyak::Reg64 &base, int stride, int count) {
    const auto two = [&](const Xbyak::Reg32 &wide, const Xbyak::Reg16 &half, int first, bool both) {
        if (both) {
            mov(wide, ptr[base + (first + 1) * stride - 2]);
            mov(half, ptr[base + first * stride]);
        } else {
            movzx(wide, word[base + first * stride]);
        }
    };
    two(eax, ax, 0, count >= 2);
    if (count > 2) {
        two(ecx, cx, 2, count == 4);
        shl(rcx, 32);
        or_(rax, rcx);
    }
    const Xbyak::Address slot = ptr[rsp + 8 * (to.getIdx() % 2)];
    mov(slot, rax);
    vcvtph2ps(to, slot);
}

// 16 bytes from each of two blocks; zeros for a second one that is not there.
void VecDot32::load_two(const Xbyak::Ymm &to, const Xbyak::Reg64 &base, int first, int second, bool both) {
    vmovdqu(Xbyak::Xmm(to.getIdx()), ptr[base + first]);
    if (both) {
        vinserti128(to, to, ptr[base + second], 1);
    }
}

// Blocks 2 pair and 2 pair + 1 of the group: acc += scale * dot.
void VecDot32::emit_pair(int pair, bool both, const Xbyak::Ymm &scale) {
    const int w0 = 2 * pair * w_bytes_, w1 = w0 + w_bytes_;
    const int a0 = 2 * pair * a_bytes_ + a_quants_, a1 = a0 + a_bytes_;
    if (whole() && both) {
        dot_whole(w0 + w_quants_, w1 + w_quants_, a0, a1);
        vcvtdq2ps(ymm8, ymm8);
        vfmadd231ps(ymm0, ymm8, scale);
        return;
    }
    load_two(ymm4, w, w0 + w_quants_, w1 + w_quants_, both);
    if (bytes_) {
        load_two(ymm5, w, w0 + w_quants_ + 16, w1 + w_quants_ + 16, both);
    } else {
        vpsrlw(ymm5, ymm4, 4);
        vpand(ymm4, ymm4, ymm15);
        vpand(ymm5, ymm5, ymm15);
    }
    load_two(ymm6, a, a0, a1, both);
    load_two(ymm7, a, a0 + 16, a1 + 16, both);
    if (fifth_) {
        add_fifth_bits(w0, w1, both);
    }
    if (table_) {
        vpshufb(ymm4, ymm11, ymm4);
        vpshufb(ymm5, ymm11, ymm5);
    }
    if (vnni()) {
        if (bytes_) {
            vpxor(ymm4, ymm4, ymm14);
            vpxor(ymm5, ymm5, ymm14);
        }
        dot_unsigned_vnni();
    } else if (bytes_) {
        dot_signed();
    } else if (table_) {
        dot_table();
    } else {
        dot_unsigned();
    }
    vcvtdq2ps(ymm8, ymm8);
    vfmadd231ps(ymm0, ymm8, scale);
}

// ymm8 = dot of unsigned codes by vpmaddubsw, a block's 32 activations in one piece: its 16 bytes of codes
// fill both halves, of which the upper one takes the high nibbles.
void VecDot32::dot_whole(int w0, int w1, int a0, int a1) {
    const Xbyak::Ymm sums[] = {ymm4, ymm5}, offsets[] = {ymm6, ymm7};
    for (int i = 0; i < 2; ++i) {
        const Xbyak::Address q = ptr[a + (i == 0 ? a0 : a1)];
        vbroadcasti128(sums[i], ptr[w + (i == 0 ? w0 : w1)]);
        vpsrlvd(sums[i], sums[i], ymm10);
        vpand(sums[i], sums[i], ymm15);
        vpmaddubsw(sums[i], sums[i], q);
        if (offset_) {
            vpmaddubsw(offsets[i], ymm11, q);
            vpsubw(sums[i], sums[i], offsets[i]);
        }
    }
    vpblendd(ymm8, ymm4, ymm5, 0xF0);
    vperm2i128(ymm4, ymm4, ymm5, 0x21);
    vpaddw(ymm8, ymm8, ymm4);
    vpmaddwd(ymm8, ymm8, ymm14);
}

// Bit j of a block's qh, in front of its nibbles, is bit 4 of its element j: the lower two bytes of qh
// belong to the low codes, the upper two to the high ones.
void VecDot32::add_fifth_bits(int first, int second, bool both) {
    const Xbyak::Ymm codes[] = {ymm4, ymm5};
    const int at = w_quants_ - 4;
    if (evex() && both) {
        for (int half = 0; half < 2; ++half) { // a mask of 16 bits from each block
            mov(eax, ptr[w + second + at - 2 + 2 * half]);
            mov(ax, ptr[w + first + at + 2 * half]);
            kmovd(k1, eax);
            vpaddb(codes[half] | k1, codes[half], ptr[rip + broadcast_u8(16)]);
        }
        return;
    }
    uint8_t order[2][16], bits[16];
    for (size_t i = 0; i < 16; ++i) {
        order[0][i] = static_cast<uint8_t>(at + int(i / 8));
        order[1][i] = static_cast<uint8_t>(at + 2 + int(i / 8));
        bits[i] = static_cast<uint8_t>(1u << (i % 8));
    }
    load_two(ymm8, w, first, second, both);
    for (int half = 0; half < 2; ++half) {
        vpshufb(ymm9, ymm8, ptr[rip + broadcast_16(order[half])]);
        vpand(ymm9, ymm9, ptr[rip + broadcast_16(bits)]);
        vpcmpeqb(ymm9, ymm9, ptr[rip + broadcast_16(bits)]);
        vpand(ymm9, ymm9, ptr[rip + broadcast_u8(16)]);
        vpor(codes[half], codes[half], ymm9);
    }
}

// ymm8 = dot of unsigned codes (less their offset) by vpmaddubsw. Nothing saturates: two products are at
// most 2 * 31 * 128, and the sums of four still fit 16 bits.
void VecDot32::dot_unsigned() {
    vpmaddubsw(ymm8, ymm4, ymm6);
    vpmaddubsw(ymm9, ymm5, ymm7);
    vpaddw(ymm8, ymm8, ymm9);
    if (offset_) {
        vpmaddubsw(ymm6, ymm11, ymm6);
        vpmaddubsw(ymm7, ymm11, ymm7);
        vpsubw(ymm8, ymm8, ymm6);
        vpsubw(ymm8, ymm8, ymm7);
    }
    vpmaddwd(ymm8, ymm8, ymm14);
}

// ymm8 = the same by vpdpbusd, and signed values less their bias.
void VecDot32::dot_unsigned_vnni() {
    vpxor(ymm8, ymm8, ymm8);
    vpdpbusd(ymm8, ymm4, ymm6);
    vpdpbusd(ymm8, ymm5, ymm7);
    if (offset_ || table_ || bytes_) {
        const Xbyak::Ymm &excess = offset_ ? ymm11 : ymm14;
        vpxor(ymm9, ymm9, ymm9);
        vpdpbusd(ymm9, excess, ymm6);
        vpdpbusd(ymm9, excess, ymm7);
        vpsubd(ymm8, ymm8, ymm9);
    }
}

// ymm8 = dot of signed table values. The sign goes to the table value, which is never -128 and so can be
// negated; |q| = 128 is right as an unsigned byte. Two products are at most 2 * 127 * 128, which fits.
void VecDot32::dot_table() {
    vpabsb(ymm8, ymm6);
    vpabsb(ymm9, ymm7);
    vpsignb(ymm4, ymm4, ymm6);
    vpsignb(ymm5, ymm5, ymm7);
    vpmaddubsw(ymm8, ymm8, ymm4);
    vpmaddubsw(ymm9, ymm9, ymm5);
    vpmaddwd(ymm8, ymm8, ymm14);
    vpmaddwd(ymm9, ymm9, ymm14);
    vpaddd(ymm8, ymm8, ymm9);
}

// ymm8 = dot of signed bytes, -128 on either side included, which rules out vpmaddubsw: products of 16-bit
// numbers instead, the odd bytes shifted down, the even ones 256 times too large until they are summed (at
// most 4 * 2^15 * 2^7).
void VecDot32::dot_signed() {
    const Xbyak::Ymm weights[] = {ymm4, ymm5}, q[] = {ymm6, ymm7}, odd[] = {ymm8, ymm9};
    for (int half = 0; half < 2; ++half) {
        vpsraw(odd[half], weights[half], 8);
        vpsraw(ymm10, q[half], 8);
        vpmaddwd(odd[half], odd[half], ymm10);
        vpsllw(weights[half], weights[half], 8);
        vpsllw(q[half], q[half], 8);
        vpsraw(q[half], q[half], 8);
        vpmaddwd(weights[half], weights[half], q[half]);
    }
    vpaddd(ymm4, ymm4, ymm5);
    vpsrad(ymm4, ymm4, 8);
    vpaddd(ymm8, ymm8, ymm9);
    vpaddd(ymm8, ymm8, ymm4);
}

} // namespace nybl::cpu::jit
