// Generates the AMX micro-kernels.
#include "cpu/jit/amx_kernel.h"

#include "cpu/jit/weight_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Tmm;
using Xbyak::Zmm;

constexpr int kSlots = 2;       // groups under way
constexpr int kDotBytes = 1024; // dots of a group, or of half a one: 16 tokens x 16 rows of int32

// Register map
//   rdi args   rsi w   rdx a   rcx c   r10 groups left   r8 row stride of weights (64)   r9 of activations
//   (32) r11 the dots that are being finished, rax the ones on their way: two buffers on the stack in turn
//   tmm0, tmm1 dots   tmm2, tmm3 activations [T][32]   tmm4, tmm5 codes [8][16 rows x 4]: of groups in turn,
//   and half as deep where the halves of a group have scales of their own zmm0 .. zmm15 accumulators, one per
//   token   zmm16 scales   zmm17 minimums   zmm18 .. zmm25, zmm28 .. zmm31 in turn   zmm26, zmm27 scales of
//   the halves
class AmxKernel final : public WeightGenerator {
  public:
    explicit AmxKernel(const KernelKey &key) : WeightGenerator(key), tokens_(key.tokens) {}

  private:
    const int tokens_;

    void emit() override {
        const int host_config = kSlots * slot_bytes();
        open_frame({.stack = uint32_t(host_config + 64)});
        mov(rsi, ptr[args + offsetof(TileArgs, w)]);
        mov(rdx, ptr[args + offsetof(TileArgs, a)]);
        mov(rcx, ptr[args + offsetof(TileArgs, c)]);
        mov(r10, ptr[args + offsetof(TileArgs, blocks)]);
        mov(r8d, kChunkBytes);
        mov(r9d, 32);
        // Hosts with AMX kernels of their own load a configuration once per thread and rely on it.
        sttilecfg(ptr[rsp + host_config]);
        ldtilecfg(ptr[rip + tile_config()]);
        for (int t = 0; t < tokens_; ++t)
            vmovups(Zmm(t), ptr[rcx + 64 * t]);
        // Later groups are multiplied while the dots of an earlier one are finished: they reach the stack by
        // then.
        Xbyak::Label loop, last[kSlots][kSlots], done;
        for (int ahead = 1; ahead < kSlots; ++ahead) {
            start_dots(ahead - 1, ahead - 1);
            dec(r10);
            jz(last[0][ahead], T_NEAR);
        }
        align(32);
        L(loop);
        for (int slot = 0; slot < kSlots; ++slot) {
            start_dots((slot + kSlots - 1) % kSlots, kSlots - 1);
            finish_dots(slot);
            dec(r10);
            jz(last[(slot + 1) % kSlots][kSlots - 1], T_NEAR);
        }
        jmp(loop, T_NEAR);
        // The groups that were started and not finished, from each place where the loop can end.
        for (int slot = 0; slot < kSlots; ++slot)
            for (int count = 1; count < kSlots; ++count) {
                if (slot != 0 && count != kSlots - 1)
                    continue;
                L(last[slot][count]);
                for (int i = 0; i < count; ++i)
                    finish_dots((slot + i) % kSlots);
                jmp(done, T_NEAR);
            }
        L(done);
        for (int t = 0; t < tokens_; ++t)
            vmovups(ptr[rcx + 64 * t], Zmm(t));
        ldtilecfg(ptr[rsp + host_config]);
        close_frame();
    }

    int parts() const { return traits_.sub_scales ? 2 : 1; } // of a group, with dots of their own
    int slot_bytes() const { return parts() * kDotBytes; }
    int group_bytes() const { return byte_group_bytes(layout_, key().isa); }
    int activation_bytes() const { return int(kActivationBytes) * tokens_; }

    // Palette 1: dots and activations have a row per token, codes a row per four elements of K.
    const Xbyak::Label &tile_config() {
        uint8_t config[64] = {1};
        const struct {
            int rows, bytes;
        } tiles[] = {{tokens_, 64}, {tokens_, 32 / parts()}, {kChunks / parts(), kChunkBytes}};
        for (int i = 0; i < kSlots + 4; ++i) {
            const auto &tile = tiles[i < kSlots ? 0 : (i - kSlots) / 2 + 1];
            config[16 + 2 * i] = uint8_t(tile.bytes);
            config[48 + i] = uint8_t(tile.rows);
        }
        return constant(config);
    }

    // Multiplies the group `ahead` groups behind the one that is finished next.
    void start_dots(int slot, int ahead) {
        const Tmm dots(slot), acts(kSlots + slot % 2), codes(kSlots + 2 + slot % 2);
        for (int part = 0; part < parts(); ++part) {
            tilezero(dots);
            tileloadd(acts, ptr[rdx + r9 + (ahead * activation_bytes() + 16 * part)]);
            tileloadd(
                codes,
                ptr[rsi + r8 + (ahead * group_bytes() + byte_header_bytes(layout_) + kByteCodes / 2 * part)]);
            if (traits_.offset || traits_.table || traits_.bytes)
                tdpbssd(dots, acts, codes);
            else
                tdpbsud(dots, acts, codes);
            tilestored(ptr[rsp + r8 + (slot_bytes() * slot + kDotBytes * part)], dots);
        }
    }

    // acc = fma(f32(dot), s*d, acc); acc = fma(z, ds, acc).
    void finish_dots(int slot) {
        const Zmm s(16), z(17);
        vmovups(s, ptr[rsi]);
        if (layout_.min_offset)
            vmovups(z, ptr[rsi + 64]);
        for (int part = 0; traits_.sub_scales && part < 2; ++part)
            vmovups(sub_scale(part), ptr[rsi + 64 * (1 + part)]);
        for (int t = 0; t < tokens_; ++t) {
            const Zmm dot(18 + t % 4), scale(28 + t % 4);
            vcvtdq2ps(dot, ptr[rsp + (slot_bytes() * slot + 64 * t)]);
            if (traits_.sub_scales) { // sc0*dot0 + sc1*dot1, exact
                const Zmm second(22 + t % 4);
                vcvtdq2ps(second, ptr[rsp + (slot_bytes() * slot + kDotBytes + 64 * t)]);
                vmulps(dot, dot, sub_scale(0));
                vfmadd231ps(dot, second, sub_scale(1));
            }
            vmulps(scale, s, ptr_b[rdx + (32 * tokens_ + 4 * t)]);
            vfmadd231ps(Zmm(t), dot, scale);
            if (layout_.min_offset)
                vfmadd231ps(Zmm(t), z, ptr_b[rdx + (36 * tokens_ + 4 * t)]);
        }
        add(rsi, group_bytes());
        add(rdx, activation_bytes());
    }
    static Zmm sub_scale(int part) { return Zmm(26 + part); }
};

} // namespace

TileFn amx_kernel(nybl_format format, size_t tokens) noexcept {
    return kernel<TileFn>({.kind = KernelKind::Prefill,
                           .format = format,
                           .isa = NYBL_ISA_AMX,
                           .rows = kPanelRows,
                           .tokens = uint8_t(tokens)},
                          make_generator<AmxKernel>);
}

} // namespace nybl::cpu::jit
