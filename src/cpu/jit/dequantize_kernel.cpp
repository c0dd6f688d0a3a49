// Generates the kernels that dequantise packed panels.
#include "cpu/jit/dequantize_kernel.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Xmm;

// code * scale is exact in f32 for every format (at most 11 + 8 + 5 significant bits), so that one fma rounds
// like the multiplication and the addition of the definition.
//
// Register map
//   rdi args   rsi src   rdx dst   r10 blocks left
//   [rsp] scales of a super-block
//   vectors 0 .. 4 scales of K formats   0 codes, 1 temporary, 2 values, 3 s / 2^24, 4 z
//   Q6_K: 3, 4 the scales of a group's halves, 5 d   6 .. 9 where byte 0 .. 3 of a dword goes
class DequantizeKernel final : public WeightGenerator {
  public:
    explicit DequantizeKernel(const KernelKey &key) : WeightGenerator(key, Codes::Signed) {}

  private:
    void emit() override {
        const int groups = int(layout_.block_k / 32);
        open_frame({.vectors = 10, .stack = k_format() ? uint32_t(kKScaleBytes) : 0});
        mov(rsi, ptr[args + offsetof(UnpackArgs, src)]);
        mov(rdx, ptr[args + offsetof(UnpackArgs, dst)]);
        mov(r10, ptr[args + offsetof(UnpackArgs, blocks)]);
        for (int j = 0; j < 4; ++j)
            vmovups(to_top(j), ptr[rip + byte_to_top(j)]);
        Xbyak::Label loop;
        align(32);
        L(loop);
        if (k_format())
            unpack_k_scales(rsi, rsp);
        for (int g = 0; g < groups; ++g)
            for (int half = 0; half < halves(); ++half)
                group(g, half);
        add(rsi, int(layout_.block_bytes));
        add(rdx, kElementBytes * int(layout_.block_k));
        dec(r10);
        jnz(loop, T_NEAR);
        close_frame();
    }

    void group(int g, int half) {
        const Xmm codes = vec(0), temporary = vec(1), s = vec(3), z = vec(4);
        if (k_format()) {
            const Xbyak::RegExp group = rsp + k_scale_step() * g;
            load_k_scales(traits_.sub_scales ? vec(5) : s, z, rsp, group, half);
            for (int part = 0; traits_.sub_scales && part < 2; ++part) {
                load_sub_scales(vec(3 + part), group, part, half);
                vmulps(vec(3 + part), vec(3 + part), vec(5));
            }
        } else {
            load_scales(s, z, rsi, half);
        }
        for (int i = 0; i < (traits_.sub_scales ? 2 : 1); ++i)
            vmulps(vec(3 + i), vec(3 + i), ptr[rip + broadcast_f32(0x1p-24f)]);
        const int quants = int(layout_.quants_offset) + g * int(layout_.group_bytes);
        for (int c = 0; c < kChunks / 2; ++c)
            for (const bool high : {false, true}) {
                unpack_codes(codes, temporary, rsi + quants, half, c, high);
                for (int j = 0; j < 4; ++j)
                    element(j, vec(traits_.sub_scales && high ? 4 : 3),
                            kElementBytes * (32 * g + 4 * c + (high ? 16 : 0) + j) + 32 * half);
            }
    }

    // Byte j of every dword of codes, as the highest one: 2^24 times the code.
    void element(int j, const Xmm &s, int to) {
        const Xmm codes = vec(0), value = vec(2), z = vec(4);
        vpshufb(value, codes, to_top(j));
        vcvtdq2ps(value, value);
        if (layout_.min_offset)
            vfmadd213ps(value, s, z);
        else
            vmulps(value, value, s);
        vmovups(ptr[rdx + to], value);
    }

    Xmm to_top(int j) const { return vec(6 + j); }
    const Xbyak::Label &byte_to_top(int j) {
        constexpr uint8_t kZero = 0x80;
        uint8_t from[16];
        for (int i = 0; i < 16; ++i)
            from[i] = i % 4 == 3 ? uint8_t(i - 3 + j) : kZero;
        return broadcast_16(from);
    }

    static constexpr int kElementBytes = 4 * int(kPanelRows);
};

} // namespace

UnpackFn dequantize_kernel(nybl_format format, nybl_isa isa) noexcept {
    return kernel<UnpackFn>(
        {.kind = KernelKind::Dequantize, .format = format, .isa = isa, .rows = kPanelRows},
        make_generator<DequantizeKernel>);
}

} // namespace nybl::cpu::jit
