// Generates the kernels that multiply original blocks without gathering them.
#include "cpu/jit/original_kernel.h"

#include "cpu/jit/rows_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Xmm;
using Xbyak::Ymm;

// Products stay in the order of the row until its integer sums are folded: only those are transposed, so that
// a lane is a row. They are exact, so their order is free: with vpmaddubsw the last sum of 16 products of
// 4-bit codes is at most 16 * 15 * 127 = 30480, which fits 16 bits.
//
// Register map
//   rdi args, then c   r8 .. r11, rbx, r12 .. r14 rows   rdx a   rcx next    r15 blocks left
//   rax bytes of two rows   rsi 3 * rax   [rsp] f32 s[8], z[8] of each group of a super-block
//
//   vectors 0 .. 7 rows, sums   8 .. 11 temporaries, activations   12 accumulators   13 16-bit ones
//           14 the mask of low nibbles   15 the table of IQ4_NL
class OriginalKernel final : public RowsGenerator {
  public:
    explicit OriginalKernel(const KernelKey &key) : RowsGenerator(key) {}

  private:
    static constexpr int kGroup = int(kActivationBytes);
    static constexpr int kD = 32, kDs = 36, kInit0 = 40, kInit1 = 44; // fields of a group
    static constexpr int kGroupScales = 64;

    bool madd() const { return dot_family() == DotFamily::Madd; }
    bool table() const { return key().format == NYBL_IQ4_NL; }
    bool sums16() const { return madd() && !table(); }
    Ymm accumulators() const { return Ymm(12); }
    Ymm ones() const { return Ymm(13); }
    Ymm low_nibbles() const { return Ymm(14); }
    // Blocks per step: their bytes nearly fill a cache line.
    int unit_blocks() const { return k_format() ? 1 : 3; }

    void emit() override {
        open_frame({.saved = 5, .vectors = 16, .stack = k_format() ? kGroupScales * 8u : 0u});
        mov(rax, ptr[args + offsetof(OriginalArgs, rows)]);
        load_rows(rax);
        mov(rdx, ptr[args + offsetof(OriginalArgs, a)]);
        mov(rcx, ptr[args + offsetof(OriginalArgs, next)]);
        mov(r15, ptr[args + offsetof(OriginalArgs, blocks)]);
        mov(rax, row(2));
        sub(rax, row(0));
        lea(rsi, ptr[rax + rax * 2]);
        mov(rdi, ptr[args + offsetof(OriginalArgs, c)]);
        vmovups(accumulators(), ptr[rdi]);
        vmovups(ones(), ptr[rip + broadcast_u16(1)]);
        vmovups(low_nibbles(), ptr[rip + broadcast_u8(15)]);
        if (table())
            vmovups(Ymm(15), ptr[rip + broadcast_16(madd() ? kIq4Values : kIq4Plus128)]);
        Xbyak::Label units, last_blocks, last_block, end;
        const int unit = unit_blocks();
        cmp(r15, unit);
        jb(last_blocks);
        align(32);
        L(units);
        run(unit);
        cmp(r15, unit);
        jae(units);
        L(last_blocks);
        if (unit > 1) {
            test(r15, r15);
            jz(end);
            L(last_block);
            run(1);
            test(r15, r15);
            jnz(last_block);
            L(end);
        }
        vmovups(ptr[rdi], accumulators());
        close_frame();
    }

    void run(int blocks) {
        const int bytes = kRows * blocks * block_bytes_, steps = k_format() ? 8 : blocks;
        if (k_format())
            k_scales();
        for (int step = 0; step < steps; ++step) {
            fetch(bytes, step, steps);
            k_format() ? k_group(step) : block(step * block_bytes_, step * kGroup);
        }
        advance_rows(blocks * block_bytes_);
        add(rcx, bytes / kRuns);
        add(rdx, blocks * kGroup * int(layout_.block_k) / 32);
        sub(r15, blocks);
    }

    // The part of step `step` in fetching what the same step of the next call reads: four runs of memory side
    // by side, two rows each, as many as keep the prefetchers of the second-level cache going.
    void fetch(int bytes, int step, int steps) {
        const int lines = (bytes / kRuns + 63) / 64 * kRuns;
        for (int i = lines * step / steps; i < lines * (step + 1) / steps; ++i) {
            const int run = i % kRuns, offset = i / kRuns * 64;
            prefetcht0(run == 0   ? ptr[rcx + offset]
                       : run == 1 ? ptr[rcx + rax + offset]
                       : run == 2 ? ptr[rcx + rax * 2 + offset]
                                  : ptr[rcx + rsi + offset]);
        }
    }
    static constexpr int kRuns = 4;

    // A block of one group: its header is a word or a dword.
    void block(int from, int group) {
        // 16 codes of a row lie in one half of a vector: those of elements 0 .. 15 and 16 .. 31.
        vbroadcasti128(Ymm(10), ptr[rdx + group]);
        vbroadcasti128(Ymm(11), ptr[rdx + (group + 16)]);
        load_piece(4, from + (layout_.min_offset ? 4 : 2));
        for (int i = 0; i < 4; ++i) {
            const Ymm codes(4 + i), high(8);
            vpsrlw(high, codes, 4);
            vpand(high, high, low_nibbles());
            vpand(codes, codes, low_nibbles());
            multiply(Ymm(i), codes, Ymm(10), true);
            multiply(Ymm(i), high, Ymm(11), false);
        }
        fold_pair(0, 1);
        fold_pair(2, 3);
        fold_quad(0, 2);
        header(from);
        tail(Ymm(2), Ymm(3), group);
    }

    // sum += codes * q in 16-bit pairs or 32-bit quads; the first product starts the sum.
    void multiply(const Ymm &sum, const Ymm &codes, const Ymm &q, bool first) {
        if (table())
            vpshufb(codes, Ymm(15), codes);
        if (table() && madd()) {
            // Signed values: |w| times q with the sign of w, two products of which fit 16 bits and no more.
            const Ymm signed_q(9), &product = first ? sum : codes;
            vpsignb(signed_q, q, codes);
            vpabsb(codes, codes);
            vpmaddubsw(product, codes, signed_q);
            vpmaddwd(product, product, ones());
            if (!first)
                vpaddd(sum, sum, codes);
        } else if (!madd()) {
            if (first)
                vpxor(sum, sum, sum);
            vpdpbusd(sum, codes, q);
        } else if (first) {
            vpmaddubsw(sum, codes, q);
        } else {
            vpmaddubsw(codes, codes, q);
            vpaddw(sum, sum, codes);
        }
    }
    void add_sums(const Ymm &to, const Ymm &from) { sums16() ? vpaddw(to, to, from) : vpaddd(to, to, from); }

    // Folding by transposition, in steps: two dwords of a and b, one dword of four, both halves of eight.
    void fold_pair(int a, int b) {
        const Ymm t(9);
        vpunpckldq(t, Ymm(a), Ymm(b));
        vpunpckhdq(Ymm(a), Ymm(a), Ymm(b));
        add_sums(Ymm(a), t);
    }
    void fold_quad(int a, int b) {
        const Ymm t(9);
        vpunpcklqdq(t, Ymm(a), Ymm(b));
        vpunpckhqdq(Ymm(a), Ymm(a), Ymm(b));
        add_sums(Ymm(a), t);
    }
    void fold_halves(int a, int b) {
        const Ymm t(9);
        vperm2i128(t, Ymm(a), Ymm(b), 0x20);
        vperm2i128(Ymm(a), Ymm(a), Ymm(b), 0x31);
        add_sums(Ymm(a), t);
    }

    // f32 scales to vector 2, minimums to vector 3.
    void header(int from) {
        load_piece(4, from);
        vpunpckldq(Ymm(4), Ymm(4), Ymm(5));
        vpunpckldq(Ymm(6), Ymm(6), Ymm(7));
        vpunpcklqdq(Ymm(4), Ymm(4), Ymm(6));
        split_words(Ymm(4));
        vcvtph2ps(Ymm(2), Xmm(4));
        if (layout_.min_offset) {
            vextracti128(Xmm(4), Ymm(4), 1);
            vcvtph2ps(Ymm(3), Xmm(4));
        }
    }

    // acc = fma(f32(dot), s*d, acc); acc = fma(z, ds, acc). The sums are in vector 0; s is destroyed.
    void tail(const Ymm &s, const Xbyak::Operand &z, int group) {
        const Ymm dot(0), t(8);
        if (key().format == NYBL_Q4_0 || (table() && !madd())) {
            vpbroadcastd(t, ptr[rdx + (group + (table() ? kInit1 : kInit0))]);
            add_sums(dot, t);
        }
        if (sums16())
            vpmaddwd(dot, dot, ones());
        vcvtdq2ps(dot, dot);
        vbroadcastss(t, ptr[rdx + (group + kD)]);
        vmulps(s, s, t);
        vfmadd231ps(accumulators(), dot, s);
        if (layout_.min_offset) {
            vbroadcastss(t, ptr[rdx + (group + kDs)]);
            vfmadd231ps(accumulators(), t, z);
        }
    }

    // Group g of a super-block.
    void k_group(int g) {
        vmovdqu(Ymm(10), ptr[rdx + kGroup * g]);
        for (int i = 0; i < kRows; ++i) {
            const Xbyak::Address codes = ptr[row(i) + (16 + 32 * (g / 2))];
            const Ymm nibbles(11);
            if (g % 2 == 0) {
                vpand(nibbles, low_nibbles(), codes);
            } else {
                vmovdqu(nibbles, codes);
                vpsrlw(nibbles, nibbles, 4);
                vpand(nibbles, nibbles, low_nibbles());
            }
            multiply(Ymm(i), nibbles, Ymm(10), true);
            if (i % 2 == 1)
                fold_pair(i - 1, i);
            if (i % 4 == 3)
                fold_quad(i - 3, i - 1);
        }
        fold_halves(0, 4);
        vmovups(Ymm(2), ptr[rsp + kGroupScales * g]);
        tail(Ymm(2), ptr[rsp + (kGroupScales * g + 32)], kGroup * g);
    }

    // f32(d*sc) and -f32(dmin*mn) of the eight groups to the stack. Bytes i, i+4 and i+8 of a row's
    // scales[12] hold the pairs of groups i and i+4 (docs/formats.md): four groups at a time in the bytes of
    // a dword.
    void k_scales() {
        load_piece(0, 0);
        transpose(0, 8);
        const Ymm header(0), low_sc(1), low_mn(2), high(3), high_sc(4), high_mn(5), d(6), dmin(7), t(8);
        split_words(header);
        vcvtph2ps(d, Xmm(0));
        vextracti128(Xmm(0), header, 1);
        vcvtph2ps(dmin, Xmm(0));
        vxorps(dmin, dmin, ptr[rip + broadcast_u32(0x80000000u)]);
        vpand(high_sc, high, low_nibbles());
        vpsrlw(high_mn, high, 4);
        vpand(high_mn, high_mn, low_nibbles());
        for (const bool minimum : {false, true}) {
            const Ymm &low = minimum ? low_mn : low_sc, &upper = minimum ? high_mn : high_sc;
            vpsrlw(t, low, 2);
            vpand(t, t, ptr[rip + broadcast_u8(0x30)]);
            vpor(upper, upper, t);
            vpand(low, low, ptr[rip + broadcast_u8(63)]);
            for (int g = 0; g < 8; ++g) {
                const Ymm &bytes = g < 4 ? low : upper;
                const int shift = 8 * (g % 4);
                if (shift)
                    vpsrld(t, bytes, uint8_t(shift));
                if (shift < 24)
                    vpand(t, shift ? t : bytes, ptr[rip + broadcast_u32(0xFF)]);
                vcvtdq2ps(t, t);
                vmulps(t, t, minimum ? dmin : d);
                vmovups(ptr[rsp + (kGroupScales * g + (minimum ? 32 : 0))], t);
            }
        }
    }
};

} // namespace

OriginalFn original_kernel(nybl_format format, nybl_isa isa) noexcept {
    const KernelKey key{
        .kind = KernelKind::DecodeOriginal, .format = format, .isa = isa, .rows = kOriginalRows};
    return kernel<OriginalFn>(key, make_generator<OriginalKernel>);
}

} // namespace nybl::cpu::jit
