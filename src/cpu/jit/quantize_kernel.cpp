// Generates the activation quantizers.
#include "cpu/jit/quantize_kernel.h"

#include "cpu/jit/vector_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

// Up to eight groups at a time, so that what is one value per group (maximum, scales, sums) fills a vector,
// and one division serves eight groups. A step over all groups of the batch keeps its results on the stack.
// Steps are unrolled over whole batches; of the others they are loops, and steps on whole vectors see
// leftovers in the other lanes, which nobody reads. The maxima of a batch are found while the divisions of
// the batch before are under way. All vectors are ymm: wider ones gain nothing, and split more lines of x.
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
    static constexpr int kBatch = 8, kWhole = 4 * kBatch; // the latter as r11 and r12 count
    // On the stack: two vectors per group, then a value per group.
    static constexpr int kMaxima = 0, kSums = 32 * kBatch, kFields = 2 * kSums,
                         kInverse = kFields + int(kActivationFields) * 4 * kBatch,
                         kMask = kInverse + 4 * kBatch, kStack = kMask + 4 * kBatch;

    static constexpr int kFetchAhead = 4096; // bytes of x; tiles are fetched a batch ahead

    int element_bytes() const { return key().format == NYBL_F32 ? 4 : 2; }
    bool asked(ActivationField field) const { return (~key().variant >> int(field) & 1) != 0; }
    bool needs_sums() const { return (~key().variant & (kAllActivationFields & ~1)) != 0; } // all but d
    static Ymm magnitude_bits() { return Ymm(9); }
    static Ymm dword_order() { return Ymm(10); }
    static Ymm ones_u8() { return Ymm(11); }

    // A group of the batch: a known one, or the one that rbx counts.
    struct Group {
        int index; // -1: rbx

        // Of an array on the stack with `bytes` (4 or 32) per group.
        Xbyak::RegExp slot(const Reg64 &rsp, const Reg64 &rbx, int array, int bytes) const {
            return index >= 0 ? rsp + (array + bytes * index) : rsp + rbx * (bytes / 4) + array;
        }
        int x_offset(int bytes) const { return index >= 0 ? bytes * index : 0; }
    };
    Xbyak::RegExp slot(const Group &group, int array, int bytes) const {
        return group.slot(rsp, rbx, array, bytes);
    }

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
        Xbyak::Label batch, last, careful, quantised;
        next_maxima();
        align(32);
        L(batch);
        scales();
        mov(r11, r12);
        test(r10, r10);
        mov(r12d, 0);
        jz(last, T_NEAR);
        next_maxima();
        L(last);
        // A whole batch without a group that masks change.
        cmp(r11d, kWhole);
        jne(careful, T_NEAR);
        cmp(r14d, (1 << kBatch) - 1);
        jne(careful, T_NEAR);
        unroll([this](const Group &group) { quants(group, false); }, &rsi);
        jmp(quantised, T_NEAR);
        L(careful);
        loop(
            r11, [this](const Group &group) { quants(group, true); }, &rsi);
        L(quantised);
        if (needs_sums())
            sums();
        for_each_group(r11, [this](const Group &group) { store_fields(group); });
        test(r12, r12);
        jnz(batch, T_NEAR);
        close_frame();
    }

    void next_maxima() {
        mov(r12d, kBatch);
        cmp(r10, r12);
        cmovb(r12, r10);
        sub(r10, r12);
        shl(r12, 2);
        for_each_group(
            r12, [this](const Group &group) { maximum(group); }, &r13);
    }

    template <class Step>
    void for_each_group(const Reg64 &end, const Step &step, const Reg64 *x = nullptr) {
        Xbyak::Label part, done;
        cmp(end, kWhole);
        jne(part, T_NEAR);
        unroll(step, x);
        jmp(done, T_NEAR);
        L(part);
        loop(end, step, x);
        L(done);
    }
    // `x`: moves on by a group of activations per step, if there is one.
    template <class Step>
    void unroll(const Step &step, const Reg64 *x) {
        for (int g = 0; g < kBatch; ++g)
            step(Group{g});
        if (x)
            add(*x, kBatch * 32 * element_bytes());
    }
    template <class Step>
    void loop(const Reg64 &end, const Step &step, const Reg64 *x) {
        Xbyak::Label next;
        xor_(ebx, ebx);
        L(next);
        step(Group{-1});
        if (x)
            add(*x, 32 * element_bytes());
        add(rbx, 4);
        cmp(rbx, end);
        jb(next, T_NEAR);
    }

    // f32 from the activations' type.
    void load(const Ymm &to, const Xbyak::Operand &from) {
        if (key().format == NYBL_F16) {
            vcvtph2ps(to, from);
        } else {
            vpmovzxwd(to, from);
            vpslld(to, to, 16);
        }
    }

    // Eight maxima of |x| over every eighth element, as bits: those order as the values do, NaN above Inf.
    void maximum(const Group &group) {
        const int offset = group.x_offset(32 * element_bytes());
        for (int line = 0; line < 32 * element_bytes(); line += 64)
            prefetcht0(ptr[r13 + (offset + kFetchAhead + line)]);
        const bool f32 = element_bytes() == 4;
        for (int i = 0; i < (f32 ? 4 : 2); ++i)
            vpand(Ymm(i), magnitude_bits(), ptr[r13 + (offset + 32 * i)]);
        if (f32) {
            vpmaxud(Ymm(0), Ymm(0), Ymm(1));
            vpmaxud(Ymm(2), Ymm(2), Ymm(3));
            vpmaxud(Ymm(0), Ymm(0), Ymm(2));
        } else {
            vpmaxuw(Ymm(0), Ymm(0), Ymm(1));
            vextracti128(Xmm(1), Ymm(0), 1);
            vpmaxuw(Xmm(0), Xmm(0), Xmm(1));
            load(Ymm(0), Xmm(0));
        }
        vmovdqu(ptr[slot(group, kMaxima, 32)], Ymm(0));
    }

    // The groups' vectors folded to two, a group in each dword: vector 8 from the low halves, 0 from the high
    // ones.
    template <class Op>
    void fold(int vectors_at, const Op &op) {
        const Ymm t(8);
        for (int i = 0; i < 8; i += 2) {
            const Xbyak::Address second = ptr[rsp + (vectors_at + 32 * (i + 1))];
            vmovdqu(Ymm(i), ptr[rsp + (vectors_at + 32 * i)]);
            vpunpckldq(t, Ymm(i), second);
            vpunpckhdq(Ymm(i), Ymm(i), second);
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

    // d = a/127, r = 1/d, and a mask: r and a are finite (a bit per group in r14d). Then d becomes 0 where r
    // is not, NaN where a is not.
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
        vmovmskps(r14d, mask);
        vandps(d, d, mask);
        vaddps(d, d, a);
        vmovups(ptr[rsp + kFields], d);
    }

    // Packing works within 128 bits: which dword holds elements 4i .. 4i+3 afterwards.
    const Xbyak::Label &order_after_packing() {
        uint8_t bytes[64] = {};
        for (int i = 0; i < 8; ++i)
            bytes[4 * i] = uint8_t(i % 2 * 4 + i / 2);
        return constant(bytes);
    }

    // q, and sums of pairs of it. |x*r| is at most 127 (1 + 2^-20), also where d is
    // subnormal: no clamp is needed.
    void quants(const Group &group, bool masked) {
        const Ymm r(4);
        vbroadcastss(r, ptr[slot(group, kInverse, 4)]);
        prefetcht0(ptr[rdx + rax * kBatch]);
        for (int i = 0; i < 4; ++i) {
            const int at = group.x_offset(32 * element_bytes()) + 8 * element_bytes() * i;
            if (element_bytes() == 4) {
                vmulps(Ymm(i), r, ptr[rsi + at]);
            } else {
                load(Ymm(i), ptr[rsi + at]);
                vmulps(Ymm(i), Ymm(i), r);
            }
            vcvtps2dq(Ymm(i), Ymm(i));
        }
        vpackssdw(Ymm(0), Ymm(0), Ymm(1));
        vpackssdw(Ymm(2), Ymm(2), Ymm(3));
        vpacksswb(Ymm(0), Ymm(0), Ymm(2));
        vpermd(Ymm(0), dword_order(), Ymm(0));
        if (masked) {
            vpbroadcastd(Ymm(4), ptr[slot(group, kMask, 4)]);
            vpand(Ymm(0), Ymm(0), Ymm(4));
        }
        vmovdqu(ptr[rdx], Ymm(0));
        if (needs_sums()) {
            vpmaddubsw(Ymm(0), ones_u8(), Ymm(0));
            vmovdqu(ptr[slot(group, kSums, 32)], Ymm(0));
        }
        add(rdx, rax);
    }

    // ds = d * S, and what integer accumulators start from.
    void sums() {
        // (S01, S23) in words.
        fold(kSums, [this](const Ymm &to, const Ymm &from) { vpaddw(to, to, from); });
        const Ymm s(0), t(1), first_half(8);
        start_values(first_half, -32, ActivationField::Half0);
        start_values(s, -32, ActivationField::Half1);
        vpaddw(s, s, first_half);
        if (asked(ActivationField::Ds)) {
            vpmaddwd(t, s, ptr[rip + broadcast_u16(1)]);
            vcvtdq2ps(t, t);
            vmulps(t, t, ptr[rsp + kFields]);
            vmovups(ptr[rsp + (kFields + 32)], t);
        }
        start_values(s, -8, ActivationField::Init0);
        start_values(s, dot_family() == DotFamily::Dot ? -128 : -11, ActivationField::Init1);
    }
    // Field `field` = factor * the sums in words, for pairs of them or for the pairs' sums. Uses vector 1.
    void start_values(const Ymm &sums, int factor, ActivationField field) {
        if (!asked(field))
            return;
        const Ymm t(1);
        const Xbyak::Label &factors = broadcast_u16(uint16_t(factor));
        dot_family() == DotFamily::Dot ? vpmaddwd(t, sums, ptr[rip + factors])
                                       : vpmullw(t, sums, ptr[rip + factors]);
        vmovups(ptr[rsp + (kFields + 32 * int(field))], t);
    }

    void store_fields(const Group &group) {
        const Xbyak::RegExp to[] = {rcx, rcx + r8, rcx + r8 * 2, rcx + r9, rcx + r8 * 4, rcx + r15};
        for (int i = 0; i < int(kActivationFields); ++i)
            if (asked(ActivationField(i))) {
                mov(r14d, ptr[slot(group, kFields + 32 * i, 4)]);
                mov(ptr[to[i]], r14d);
            }
        add(rcx, rax);
    }
};

} // namespace

QuantizeFn quantize_kernel(nybl_format type, nybl_isa isa, uint8_t fields) noexcept {
    return kernel<QuantizeFn>({.kind = KernelKind::Quantize,
                               .format = type,
                               .isa = isa,
                               .variant = uint16_t(kAllActivationFields & ~fields)},
                              make_generator<QuantizeKernel>);
}

} // namespace nybl::cpu::jit
