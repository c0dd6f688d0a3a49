// Generates the micro-kernels of unquantised activations.
#include "cpu/jit/f32_kernel.h"

#include "cpu/jit/vector_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Xmm;

// Register map
//   rdi args   rsi w, panel 0   r8 panel stride   rdx a   rcx c   r10 elements of K left
//
//   vectors, from 0:  one accumulator per token and vector of rows
//                     weights: one per vector of rows
//                     a broadcast activation
//
// The chain of one output is as long as K; the outputs of the tile are what keeps the multipliers busy.
class F32Kernel final : public VectorGenerator {
  public:
    explicit F32Kernel(const KernelKey &key)
        : VectorGenerator(key), panels_(key.rows / int(kPanelRows)), tokens_(key.tokens) {}

  private:
    const int panels_, tokens_;
    static constexpr int kUnroll = 4;

    int lanes() const { return panels_ * halves(); }
    Xmm acc(int lane, int token) const { return vec(token * lanes() + lane); }
    Xmm weight(int lane) const { return vec(tokens_ * lanes() + lane); }
    Xmm broadcast() const { return vec((tokens_ + 1) * lanes()); }
    Xbyak::Address weights(int lane, int k) const {
        const int offset = 4 * int(kPanelRows) * k + 32 * (lane % halves());
        return lane / halves() == 0 ? ptr[rsi + offset] : ptr[rsi + r8 + offset];
    }
    Xbyak::Address accumulator(int lane, int token) const {
        return ptr[rcx +
                   (4 * int(kPanelRows) * (lane / halves() * tokens_ + token) + 32 * (lane % halves()))];
    }

    void emit() override {
        open_frame({});
        mov(rsi, ptr[args + offsetof(TileArgs, w)]);
        mov(r8, ptr[args + offsetof(TileArgs, panel_stride)]);
        mov(rdx, ptr[args + offsetof(TileArgs, a)]);
        mov(rcx, ptr[args + offsetof(TileArgs, c)]);
        mov(r10, ptr[args + offsetof(TileArgs, blocks)]);
        for (int t = 0; t < tokens_; ++t)
            for (int lane = 0; lane < lanes(); ++lane)
                vmovups(acc(lane, t), accumulator(lane, t));
        Xbyak::Label loop;
        align(32);
        L(loop);
        for (int k = 0; k < kUnroll; ++k)
            element(k);
        add(rsi, 4 * int(kPanelRows) * kUnroll);
        add(rdx, 4 * tokens_ * kUnroll);
        sub(r10, kUnroll);
        jnz(loop, T_NEAR);
        for (int t = 0; t < tokens_; ++t)
            for (int lane = 0; lane < lanes(); ++lane)
                vmovups(accumulator(lane, t), acc(lane, t));
        close_frame();
    }

    void element(int k) {
        for (int lane = 0; lane < lanes(); ++lane)
            vmovups(weight(lane), weights(lane, k));
        for (int t = 0; t < tokens_; ++t) {
            vbroadcastss(broadcast(), ptr[rdx + 4 * (k * tokens_ + t)]);
            for (int lane = 0; lane < lanes(); ++lane)
                vfmadd231ps(acc(lane, t), weight(lane), broadcast());
        }
    }
};

} // namespace

TileFn f32_kernel(nybl_isa isa, size_t panels, size_t tokens) noexcept {
    const KernelKey key{.kind = KernelKind::F32,
                        .format = NYBL_F32,
                        .isa = isa,
                        .rows = uint8_t(panels * kPanelRows),
                        .tokens = uint8_t(tokens)};
    return kernel<TileFn>(key, make_generator<F32Kernel>);
}

} // namespace nybl::cpu::jit
