// Generates the kernels that turn packed panels into byte panels.
#include "cpu/jit/unpack_kernel.h"

namespace nybl::cpu::jit {
namespace {

// Register map
//   rdi args   rsi src   rdx dst   r10 blocks left
//   [rsp] scales of a super-block
//   vectors 0 .. 4 scales; 0, 1 and 2, 3 codes in turn, 4 .. 6 for signs;
//   the last three masks
class UnpackKernel final : public WeightGenerator {
  public:
    explicit UnpackKernel(const KernelKey &key)
        : WeightGenerator(key, unpacked_codes(*find_panel_layout(key.format), key.isa)) {}

  private:
    void emit() override {
        open_frame({.stack = k_format() ? uint32_t(kKScaleBytes) : 0});
        mov(rsi, ptr[args + offsetof(UnpackArgs, src)]);
        mov(rdx, ptr[args + offsetof(UnpackArgs, dst)]);
        mov(r10, ptr[args + offsetof(UnpackArgs, blocks)]);
        hold_nibble_mask(vec(registers() - 1));
        hold_high_mask(vec(registers() - 2), high_mask());
        hold_sign_mask(vec(registers() - 3));
        const int groups = int(layout_.block_k / 32), out = byte_group_bytes(layout_, key().isa);
        Xbyak::Label loop;
        align(32);
        L(loop);
        if (k_format())
            unpack_k_scales(rsi, rsp);
        for (int g = 0; g < groups; ++g) {
            for (int half = 0; half < halves(); ++half)
                scales(g, half, g * out);
            codes(int(layout_.quants_offset) + g * int(layout_.group_bytes),
                  g * out + byte_header_bytes(layout_));
        }
        add(rsi, int(layout_.block_bytes));
        add(rdx, groups * out);
        dec(r10);
        jnz(loop, T_NEAR);
        close_frame();
    }

    void scales(int g, int half, int to) {
        const Xbyak::Xmm s = vec(0), z = vec(1);
        if (k_format())
            load_k_scales(s, z, rsp, rsp + k_scale_step() * g, half);
        else
            load_scales(s, z, rsi, half);
        vmovups(ptr[rdx + (to + 32 * half)], s);
        if (layout_.min_offset)
            vmovups(ptr[rdx + (to + 64 + 32 * half)], z);
        for (int part = 0; traits_.sub_scales && part < 2; ++part) {
            const Xbyak::RegExp group = rsp + k_scale_step() * g;
            dot_family() == DotFamily::Madd ? load_sub_scale_words(z, group, part, half)
                                            : load_sub_scales(z, group, part, half);
            vmovups(ptr[rdx + (to + 64 * (1 + part) + 32 * half)], z);
        }
    }

    static Codes unpacked_codes(const PanelLayout &layout, nybl_isa isa) {
        const bool is_signed = isa == NYBL_ISA_AMX || code_traits(layout, isa).splits;
        return is_signed ? Codes::Signed : Codes::Unsigned;
    }

    void codes(int from, int to) {
        if (traits_.splits)
            for (int half = 0; half < halves(); ++half)
                zero(start(half));
        int turn = 0;
        for (int c = 0; c < kChunks / 2; ++c)
            for (const bool high : {false, true})
                for (int half = 0; half < halves(); ++half, turn ^= 2) {
                    const Xbyak::Xmm first = vec(turn), second = vec(turn + 1);
                    const int offset = to + kChunkBytes * (c + (high ? kChunks / 2 : 0)) + 32 * half;
                    unpack_codes(first, second, rsi + from, half, c, high);
                    if (traits_.splits)
                        split(first, second, half, offset);
                    vmovups(ptr[rdx + offset], first);
                }
        if (traits_.splits)
            for (int half = 0; half < halves(); ++half)
                vmovups(ptr[rdx + (to + kStartOffset + 32 * half)], start(half));
    }

    // Signed codes to magnitudes, with their masks stored and the magnitudes under masks added to start.
    void split(const Xbyak::Xmm &code, const Xbyak::Xmm &mask, int half, int offset) {
        const Xbyak::Xmm nothing = vec(4);
        zero(nothing);
        vpcmpgtb(mask, nothing, code);
        vpabsb(code, code);
        vmovups(ptr[rdx + (offset + kMaskOffset)], mask);
        vpand(mask, mask, code);
        vpmaddubsw(mask, mask, ptr[rip + broadcast_u8(1)]);
        vpmaddwd(mask, mask, ptr[rip + broadcast_u16(1)]);
        vpaddd(start(half), start(half), mask);
    }
    Xbyak::Xmm start(int half) const { return vec(5 + half); }
};

} // namespace

UnpackFn unpack_kernel(nybl_format format, nybl_isa isa) noexcept {
    return kernel<UnpackFn>({.kind = KernelKind::Unpack, .format = format, .isa = isa, .rows = kPanelRows},
                            make_generator<UnpackKernel>);
}

} // namespace nybl::cpu::jit
