// Generates the activation quantizers.
#include "cpu/jit/quantize_kernel.h"

#include "cpu/jit/vector_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

// Up to eight groups at a time, so that what is one value per group (maximum, scales, sums) fills a vector,
// and one division serves eight groups. A step over all groups of the batch keeps its results on the stack;
// where the batch is not full, steps on whole vectors see leftovers in the other lanes, which nobody reads.
// The maxima of a batch are found while the divisions of the batch before are under way.
//
// Register map
//   rdi args   rsi x   rdx q   rcx fields   r8 bytes between fields   r9 3 * r8   r10 groups left
//   rax bytes between groups of the tile    r11 4 * groups of the batch     r12 the same of the next one
//   rbx 4 * group within the batch          r13 x of the next batch         r14 scratch   r15 5 * r8
//
//   vectors 0 .. 7   a step's values
//           8        temporary
//           9 ..     constants
class QuantizeKernel final : public VectorGenerator {
  public:
    explicit QuantizeKernel(const KernelKey &key) : VectorGenerator(key) {}

  private:
    static constexpr int kBatch = 8;
    // On the stack: two vectors per group, then a value per group.
    static constexpr int kMaxima = 0, kSums = 32 * kBatch, kFields = 2 * kSums,
                         kInverse = kFields + int(kActivationFields) * 4 * kBatch,
                         kMask = kInverse + 4 * kBatch, kStack = kMask + 4 * kBatch;

    static constexpr int kFetchAhead = 2048; // bytes of x; tiles are fetched a batch ahead

    int vectors() const { return wide() ? 2 : 4; } // of 32 values
    int element_bytes() const { return key().format == NYBL_F32 ? 4 : 2; }
    Ymm full(int index) const { return wide() ? Ymm(Xbyak::Zmm(index)) : Ymm(index); }
    Xmm magnitude_bits() const { return vec(9); }
    Ymm dword_order() const { return full(10); }
    Ymm ones_u8() const { return Ymm(11); }

    void emit() override {
        open_frame({.saved = 5, .vectors = 12, .stack = kStack});
        mov(rsi, ptr[args + offsetof(QuantizeArgs, x)]);
        mov(rdx, ptr[args + offsetof(QuantizeArgs, q)]);
        mov(rcx, ptr[args + offsetof(QuantizeArgs, fields)]);
        mov(r8, ptr[args + offsetof(QuantizeArgs, tile_rows)]);
        mov(r10, ptr[args + offsetof(QuantizeArgs, groups)]);
        shl(r8, 2);
        lea(r9, ptr[r8 + r8 * 2]);
        lea(r15, ptr[r8 + r8 * 4]);
        lea(rax, ptr[r8 * 8]);
        lea(rax, ptr[rax + r9 * 2]);
        vmovups(magnitude_bits(),
                ptr[rip + (element_bytes() == 4 ? broadcast_u32(0x7FFFFFFF) : broadcast_u16(0x7FFF))]);
        vmovups(dword_order(), ptr[rip + order_after_packing()]);
        vmovups(ones_u8(), ptr[rip + broadcast_u8(1)]);
        mov(r13, rsi);
        Xbyak::Label batch, last;
        next_maxima();
        L(batch);
        scales();
        mov(r11, r12);
        test(r10, r10);
        mov(r12d, 0);
        jz(last);
        next_maxima();
        L(last);
        for_each_group(r11, [this] { quants(); });
        sums();
        for_each_group(r11, [this] { store_fields(); });
        test(r12, r12);
        jnz(batch);
        close_frame();
    }

    void next_maxima() {
        mov(r12d, kBatch);
        cmp(r10, r12);
        cmovb(r12, r10);
        sub(r10, r12);
        shl(r12, 2);
        for_each_group(r12, [this] { maximum(); });
    }

    template <class Step>
    void for_each_group(const Reg64 &end, const Step &step) {
        Xbyak::Label loop;
        xor_(ebx, ebx);
        align(32);
        L(loop);
        step();
        add(rbx, 4);
        cmp(rbx, end);
        jb(loop);
    }

    // f32 from the activations' type.
    void load(const Xmm &to, const Xbyak::Operand &from) {
        if (key().format == NYBL_F32) {
            vmovups(to, from);
        } else if (key().format == NYBL_F16) {
            vcvtph2ps(to, from);
        } else {
            vpmovzxwd(to, from);
            vpslld(to, to, 16);
        }
    }

    // Eight maxima of |x| over every eighth element, as bits: those order as the values do, NaN above Inf.
    void maximum() {
        for (int line = 0; line < 32 * element_bytes(); line += 64)
            prefetcht0(ptr[r13 + (kFetchAhead + line)]);
        if (element_bytes() == 4) {
            for (int i = 0; i < vectors(); ++i) {
                bit_and(vec(i), magnitude_bits(), ptr[r13 + 128 / vectors() * i]);
                if (i > 0)
                    vpmaxud(vec(0), vec(0), vec(i));
            }
            if (wide()) {
                vextracti32x8(Ymm(1), Xbyak::Zmm(0), 1);
                vpmaxud(Ymm(0), Ymm(0), Ymm(1));
            }
        } else {
            const Ymm magnitude(magnitude_bits().getIdx());
            vpand(Ymm(0), magnitude, ptr[r13]);
            vpand(Ymm(1), magnitude, ptr[r13 + 32]);
            vpmaxuw(Ymm(0), Ymm(0), Ymm(1));
            vextracti128(Xmm(1), Ymm(0), 1);
            vpmaxuw(Xmm(0), Xmm(0), Xmm(1));
            load(Ymm(0), Xmm(0));
        }
        vmovdqu(ptr[rsp + rbx * 8 + kMaxima], Ymm(0));
        add(r13, 32 * element_bytes());
    }

    // The groups' vectors folded to two, a group in each dword: vector 8 from the low halves, 0 from the high
    // ones.
    template <class Op>
    void fold(int vectors_at, const Op &op) {
        for (int i = 0; i < kBatch; ++i)
            vmovdqu(Ymm(i), ptr[rsp + (vectors_at + 32 * i)]);
        const Ymm t(8);
        for (int i = 0; i < 8; i += 2) {
            vpunpckldq(t, Ymm(i), Ymm(i + 1));
            vpunpckhdq(Ymm(i), Ymm(i), Ymm(i + 1));
            op(Ymm(i), t);
        }
        for (int i = 0; i < 8; i += 4) {
            vpunpcklqdq(t, Ymm(i), Ymm(i + 2));
            vpunpckhqdq(Ymm(i), Ymm(i), Ymm(i + 2));
            op(Ymm(i), t);
        }
        vperm2i128(t, Ymm(0), Ymm(4), 0x20);
        vperm2i128(Ymm(0), Ymm(0), Ymm(4), 0x31);
    }

    // d = a/127, r = 1/d, and a mask: r and a are finite. Then d becomes 0 where r is not, NaN where a is
    // not.
    void scales() {
        fold(kMaxima, [this](const Ymm &to, const Ymm &from) { vpmaxud(to, to, from); });
        const Ymm a(0), d(1), r(2), mask(3);
        vpmaxud(a, a, Ymm(8));
        vdivps(d, a, ptr[rip + broadcast_f32(127)]);
        vmovups(r, ptr[rip + broadcast_f32(1)]);
        vdivps(r, r, d);
        vmovups(ptr[rsp + kInverse], r);
        vsubps(a, a, a);
        vsubps(r, r, r);
        vcmpordps(mask, r, a);
        vmovups(ptr[rsp + kMask], mask);
        vandps(d, d, mask);
        vaddps(d, d, a);
        vmovups(ptr[rsp + kFields], d);
    }

    // Packing works within 128 bits: which dword holds elements 4i .. 4i+3 afterwards.
    const Xbyak::Label &order_after_packing() {
        uint8_t bytes[64] = {};
        for (int i = 0; i < 8; ++i)
            bytes[4 * i] = uint8_t(wide() ? i % 4 * 4 + i / 4 : i % 2 * 4 + i / 2);
        return constant(bytes);
    }

    // q, and sums of pairs of it. |x*r| is at most 127 (1 + 2^-20), also where d is
    // subnormal: no clamp is needed.
    void quants() {
        vbroadcastss(vec(4), ptr[rsp + rbx + kInverse]);
        prefetcht0(ptr[rdx + rax * kBatch]);
        for (int i = 0; i < vectors(); ++i) {
            load(vec(i), ptr[rsi + 32 / vectors() * element_bytes() * i]);
            vmulps(vec(i), vec(i), vec(4));
            vcvtps2dq(vec(i), vec(i));
        }
        vpackssdw(vec(0), vec(0), vec(1));
        if (!wide())
            vpackssdw(vec(2), vec(2), vec(3));
        vpacksswb(vec(0), vec(0), vec(wide() ? 0 : 2));
        vpermd(full(0), dword_order(), full(0));
        vpbroadcastd(Ymm(4), ptr[rsp + rbx + kMask]);
        vpand(Ymm(0), Ymm(0), Ymm(4));
        vmovdqu(ptr[rdx], Ymm(0));
        vpmaddubsw(Ymm(0), ones_u8(), Ymm(0));
        vmovdqu(ptr[rsp + rbx * 8 + kSums], Ymm(0));
        add(rsi, 32 * element_bytes());
        add(rdx, rax);
    }

    // ds = d * S, and what integer accumulators start from.
    void sums() {
        // (S01, S23) in words.
        fold(kSums, [this](const Ymm &to, const Ymm &from) { vpaddw(to, to, from); });
        const Ymm s(0), t(1), first_half(8);
        start_values(first_half, -32, 4);
        start_values(s, -32, 5);
        vpaddw(s, s, first_half);
        vpmaddwd(t, s, ptr[rip + broadcast_u16(1)]);
        vcvtdq2ps(t, t);
        vmulps(t, t, ptr[rsp + kFields]);
        vmovups(ptr[rsp + (kFields + 32)], t);
        start_values(s, -8, 2);
        start_values(s, dot_family() == DotFamily::Dot ? -128 : -11, 3);
    }
    // Field `field` = factor * the sums in words, for pairs of them or for the pairs' sums. Uses vector 1.
    void start_values(const Ymm &sums, int factor, int field) {
        const Ymm t(1);
        const Xbyak::Label &factors = broadcast_u16(uint16_t(factor));
        dot_family() == DotFamily::Dot ? vpmaddwd(t, sums, ptr[rip + factors])
                                       : vpmullw(t, sums, ptr[rip + factors]);
        vmovups(ptr[rsp + (kFields + 32 * field)], t);
    }

    void store_fields() {
        const Xbyak::RegExp to[] = {rcx, rcx + r8, rcx + r8 * 2, rcx + r9, rcx + r8 * 4, rcx + r15};
        for (int i = 0; i < int(kActivationFields); ++i) {
            mov(r14d, ptr[rsp + rbx + (kFields + 32 * i)]);
            mov(ptr[to[i]], r14d);
        }
        add(rcx, rax);
    }
};

} // namespace

QuantizeFn quantize_kernel(nybl_format type, nybl_isa isa) noexcept {
    return kernel<QuantizeFn>({.kind = KernelKind::Quantize, .format = type, .isa = isa},
                              make_generator<QuantizeKernel>);
}

} // namespace nybl::cpu::jit
