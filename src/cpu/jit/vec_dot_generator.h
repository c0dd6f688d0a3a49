// The vec_dot generators, for blocks of 32, of 256 and for Q6_K's; vec_dot_kernel.h is what callers use.
#pragma once

#include "cpu/jit/generator.h"

namespace nybl::cpu::jit {

// What they share: the dot of bytes on each instruction set, fifth bits, the loop's registers.
class VecDotGenerator : public Generator {
  protected:
    explicit VecDotGenerator(const KernelKey &key) : Generator(key) {}

    bool vnni() const { return key().isa >= NYBL_ISA_AVX_VNNI; }
    bool evex() const { return key().isa >= NYBL_ISA_AVX512_VNNI; }

    // What every function begins and ends with: arguments in their registers, the prefetch on its way and
    // ymm0 zero; then the value of xmm0 to the caller.
    void begin(uint32_t stack_bytes);
    void return_dot();
    // The loop over super-blocks of Q8_K activations, `body` once for each.
    template <class Body>
    void each_super_block(int w_bytes, Body body) {
        constexpr int kActivationBytes = 292;
        Xbyak::Label loop, end;
        test(blocks, blocks);
        jz(end);
        align(32);
        L(loop);
        prefetch_weights(w_bytes);
        body();
        add(w, w_bytes);
        add(a, kActivationBytes);
        dec(blocks);
        jnz(loop);
        L(end);
    }
    // Keeps `cursor` a window of some pages ahead of the weights; call the second once per loop step of
    // `step` bytes, at most 256. Uses rax, rcx, rdx. It runs past the row into the next ones, which is what a
    // product reads next; a prefetch never faults.
    void start_prefetch();
    void prefetch_weights(int step);
    // to |= bits & mask; `bits` is destroyed.
    void or_masked(const Xbyak::Ymm &to, const Xbyak::Ymm &bits, const Xbyak::Operand &mask);
    // xmm0 = the tree over the lanes of ymm0; uses xmm2.
    void reduce_lanes();

    const Xbyak::Reg64 w = r8, a = r9, blocks = r10, cursor = r11;
};

// Q4_0, Q5_0, Q8_0, IQ4_NL with Q8_0; Q4_1, Q5_1 with Q8_1.
class VecDot32 : public VecDotGenerator {
  public:
    explicit VecDot32(const KernelKey &key);

  protected:
    void emit() override;

  private:
    void emit_group(int count);
    void emit_scales(int count);
    void convert_halves(const Xbyak::Xmm &to, const Xbyak::Reg64 &base, int stride, int count);
    void emit_pair_scales(int pair, bool both, const Xbyak::Xmm &least, const Xbyak::Ymm &scale);
    void load_two(const Xbyak::Ymm &to, const Xbyak::Reg64 &base, int first, int second, bool both);
    void add_fifth_bits(int first, int second, bool both);
    void emit_pair(int pair, bool both, const Xbyak::Ymm &scale);
    bool whole() const { return !vnni() && !fifth_ && !table_ && !bytes_; }
    void dot_whole(int w0, int w1, int a0, int a1);
    void dot_unsigned();
    void dot_unsigned_vnni();
    void dot_table();
    void dot_signed();

    const bool has_min_;
    const bool table_;     // IQ4_NL
    const bool bytes_;     // Q8_0
    const uint8_t offset_; // of what is stored over the code: 8 (Q4_0), 16 (Q5_0)
    const bool fifth_;     // Q5_0, Q5_1
    const int w_quants_, w_bytes_, a_bytes_, a_quants_;
};

// Q4_K, Q5_K with Q8_K.
class VecDot256 : public VecDotGenerator {
  public:
    explicit VecDot256(const KernelKey &key);

  protected:
    void emit() override;

  private:
    void unpack_scales();
    void add_minimums();
    void add_sub_blocks(int c);
    void add_fifth_bit(const Xbyak::Ymm &to, int sub_block);

    const bool fifth_; // Q5_K
    const int w_bytes_, w_quants_;
};

// Q6_K with Q8_K.
class VecDotQ6K : public VecDotGenerator {
  public:
    explicit VecDotQ6K(const KernelKey &key) : VecDotGenerator(key) {}

  protected:
    void emit() override;

  private:
    void load_scales();
    void add_half(int half);
    void add_sub_block(const Xbyak::Ymm &codes, int sub_block);
    void finish_block();
};

} // namespace nybl::cpu::jit
