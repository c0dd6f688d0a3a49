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
//   vectors 0 .. 4 scales of K formats   0 codes, 1 temporary, 2 values, 3 s, 4 z
//   Q6_K: 3, 4 the scales of a group's halves, 5 d
class DequantizeKernel final : public WeightGenerator {
  public:
    explicit DequantizeKernel(const KernelKey &key) : WeightGenerator(key, Codes::Signed) {}

  private:
    void emit() override {
        const int groups = int(layout_.block_k / 32);
        open_frame({.vectors = 6, .stack = k_format() ? uint32_t(kKScaleBytes) : 0});
        mov(rsi, ptr[args + offsetof(UnpackArgs, src)]);
        mov(rdx, ptr[args + offsetof(UnpackArgs, dst)]);
        mov(r10, ptr[args + offsetof(UnpackArgs, blocks)]);
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
        const int quants = int(layout_.quants_offset) + g * int(layout_.group_bytes);
        for (int c = 0; c < kChunks / 2; ++c)
            for (const bool high : {false, true}) {
                unpack_codes(codes, temporary, rsi + quants, half, c, high);
                for (int j = 0; j < 4; ++j)
                    element(j, vec(traits_.sub_scales && high ? 4 : 3),
                            kElementBytes * (32 * g + 4 * c + (high ? 16 : 0) + j) + 32 * half);
            }
    }

    // Byte j of every dword of codes.
    void element(int j, const Xmm &s, int to) {
        const Xmm codes = vec(0), value = vec(2), z = vec(4);
        if (j < 3)
            vpslld(value, codes, uint8_t(24 - 8 * j));
        vpsrad(value, j < 3 ? value : codes, 24);
        vcvtdq2ps(value, value);
        if (layout_.min_offset)
            vfmadd213ps(value, s, z);
        else
            vmulps(value, value, s);
        vmovups(ptr[rdx + to], value);
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
