// Vectors of the width of the instruction set (ymm or zmm), and the few steps that are written differently
// for each, so that a kernel is one text for all.
#pragma once

#include "cpu/activation.h"
#include "cpu/jit/generator.h"

namespace nybl::cpu::jit {

// IQ4_NL values as signed bytes, and + 128.
inline constexpr uint8_t kIq4Values[16] = {129, 152, 173, 191, 207, 221, 234, 246,
                                           1,   13,  25,  38,  53,  69,  89,  113};
inline constexpr uint8_t kIq4Plus128[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                            129, 141, 153, 166, 181, 197, 217, 241};

class VectorGenerator : public Generator {
  protected:
    using Generator::Generator;

    bool wide() const { return key().isa >= NYBL_ISA_AVX512_VNNI; }
    int halves() const { return wide() ? 1 : 2; } // vectors in 16 dwords
    int registers() const { return wide() ? 32 : 16; }
    DotFamily dot_family() const { return cpu::dot_family(key().isa); }

    Xbyak::Xmm vec(int index) const {
        return Xbyak::Xmm(wide() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM, index);
    }
    void bit_and(const Xbyak::Xmm &to, const Xbyak::Xmm &a, const Xbyak::Operand &b) {
        wide() ? vpandd(to, a, b) : vpand(to, a, b);
    }
    void bit_or(const Xbyak::Xmm &to, const Xbyak::Xmm &a, const Xbyak::Operand &b) {
        wide() ? vpord(to, a, b) : vpor(to, a, b);
    }
    void bit_xor(const Xbyak::Xmm &to, const Xbyak::Xmm &a, const Xbyak::Operand &b) {
        wide() ? vpxord(to, a, b) : vpxor(to, a, b);
    }
    void zero(const Xbyak::Xmm &to) { wide() ? vpxord(to, to, to) : vpxor(to, to, to); }

    // Keeps a mask in a register for as long as it is used; otherwise each use reads it from memory.
    void hold_nibble_mask(const Xbyak::Xmm &in) { hold(nibble_mask_, in, broadcast_u8(kNibble)); }
    void hold_high_mask(const Xbyak::Xmm &in, uint8_t mask) { hold(high_mask_, in, broadcast_u8(mask)); }
    void hold_sign_mask(const Xbyak::Xmm &in) { hold(sign_mask_, in, broadcast_u8(kSign)); }

    // The low or the high nibbles of the bytes at an address.
    void unpack_nibbles(const Xbyak::Xmm &to, const Xbyak::RegExp &from, bool high) {
        if (high) {
            shift_right_4(to, from);
            and_mask(to, nibble_mask_, broadcast_u8(kNibble));
        } else if (nibble_mask_ >= 0) {
            bit_and(to, vec(nibble_mask_), ptr[from]);
        } else {
            vmovups(to, ptr[rip + broadcast_u8(kNibble)]);
            bit_and(to, to, ptr[from]);
        }
    }

    // Signed bytes at an address as unsigned ones: + 128.
    void load_plus_128(const Xbyak::Xmm &to, const Xbyak::RegExp &from) {
        if (sign_mask_ >= 0) {
            bit_xor(to, vec(sign_mask_), ptr[from]);
        } else {
            vmovups(to, ptr[from]);
            bit_xor(to, to, ptr[rip + broadcast_u8(kSign)]);
        }
    }

    // Bit `bit` of the bytes at an address moved to bit 4, its neighbours still around it.
    void shift_to_bit4(const Xbyak::Xmm &to, const Xbyak::RegExp &from, int bit) {
        if (!wide() || bit == 4)
            vmovups(to, ptr[from]);
        if (bit == 4)
            return;
        if (wide())
            bit < 4 ? vpsllw(to, ptr[from], uint8_t(4 - bit)) : vpsrlw(to, ptr[from], uint8_t(bit - 4));
        else
            bit < 4 ? vpsllw(to, to, uint8_t(4 - bit)) : vpsrlw(to, to, uint8_t(bit - 4));
    }

    // to |= bits & mask, the mask that hold_high_mask may have put into a register; `bits` is destroyed.
    void or_high_bits(const Xbyak::Xmm &to, const Xbyak::Xmm &bits, uint8_t mask_byte) {
        const Xbyak::Label &mask = broadcast_u8(mask_byte);
        if (!wide()) {
            and_mask(bits, high_mask_, mask);
            vpor(to, to, bits);
            return;
        }
        constexpr uint8_t kAOrBAndC = 0xF8; // truth table of a | (b & c)
        if (high_mask_ >= 0)
            vpternlogd(to, bits, vec(high_mask_), kAOrBAndC);
        else
            vpternlogd(to, bits, ptr[rip + mask], kAOrBAndC);
    }

  private:
    static constexpr uint8_t kNibble = 0x0F, kSign = 0x80;
    int nibble_mask_ = -1, high_mask_ = -1, sign_mask_ = -1; // registers, or -1

    void hold(int &mask, const Xbyak::Xmm &in, const Xbyak::Label &value) {
        mask = in.getIdx();
        vmovups(in, ptr[rip + value]);
    }
    void and_mask(const Xbyak::Xmm &to, int mask, const Xbyak::Label &value) {
        if (mask >= 0)
            bit_and(to, to, vec(mask));
        else
            bit_and(to, to, ptr[rip + value]);
    }
    void shift_right_4(const Xbyak::Xmm &to, const Xbyak::RegExp &from) {
        if (wide()) {
            vpsrlw(to, ptr[from], 4);
        } else {
            vmovups(to, ptr[from]);
            vpsrlw(to, to, 4);
        }
    }
};

} // namespace nybl::cpu::jit
