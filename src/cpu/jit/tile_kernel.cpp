// Generates the micro-kernels. The numeric contract fixes, per group and output:
//   acc = fma(f32(dot), s*d, acc); with a minimum then acc = fma(z, ds, acc).
#include "cpu/jit/tile_kernel.h"

#include <algorithm>
#include <vector>

namespace nybl::cpu::jit {
namespace {

using Xbyak::Xmm;

// Register map
//   rdi args        rsi  w, panel 0         r8   panel stride    r9  3 * panel stride
//   rdx a           rcx  c                  r10  blocks left     r11 groups left in the block (K formats)
//   rax scales of the group (K formats): those of a super-block and panel are on the stack
//
//   vectors, from 0:  one integer accumulator per output (two with two chains)
//                     a broadcast dword of activations
//                     codes: one per lane (T > 1) or one in all, and as many or one for second codes
//                     the rest: products on their way, and the scales of the tail
//                     the last one or two: masks, where registers are left
//
// A panel is one zmm or two ymm ("halves"); a lane is one such vector of a panel.
class TileKernel final : public WeightGenerator {
  public:
    explicit TileKernel(const KernelKey &key)
        : WeightGenerator(key),
          form_(key.kind == KernelKind::Prefill ? WeightForm::Bytes : WeightForm::Packed),
          panels_(key.rows / int(kPanelRows)), tokens_(key.tokens) {}

  private:
    const WeightForm form_;
    const int panels_, tokens_;

    // One vector's worth of rows: half a panel (ymm) or a whole one (zmm).
    struct Lane {
        int panel, half;
    };
    // What the current pass over a group computes: these lanes of these tokens.
    std::vector<Lane> lanes_;
    int first_token_ = 0, last_token_ = 0;
    // A product that waits to be added: the later the add, the less it waits for the multiplier.
    struct Pending {
        Xmm acc, product;
    };
    std::vector<Pending> pending_;
    std::vector<bool> fresh_; // accumulators that hold nothing yet
    int free_ = 0, next_free_ = 0;
    int masks_ = 0; // registers at the end that hold masks

    bool scales_on_stack() const { return form_ == WeightForm::Packed && k_format(); }
    int lanes() const { return int(lanes_.size()); }
    int chains() const { return two_chains() ? 2 : 1; }
    // Table values too large for vpmaddubsw: nibbles and residuals in packed panels, |w| and sign masks in
    // byte panels.
    bool two_chains() const { return traits_.splits && traits_.table && form_ == WeightForm::Packed; }
    bool masked() const { return traits_.splits && form_ == WeightForm::Bytes; }
    // Bytes too large for 16-bit sums, straight from a packed panel: |w|, and activations with the sign of w.
    bool turns_signs() const { return traits_.splits && traits_.bytes && form_ == WeightForm::Packed; }
    bool magnitudes() const { return masked() || turns_signs(); }
    int group_bytes() const {
        return form_ == WeightForm::Bytes ? byte_group_bytes(layout_, key().isa) : int(layout_.group_bytes);
    }
    int activation_group() const { return int(kActivationBytes) * tokens_; }

    // Vectors of a pass over `lanes` and `tokens`: accumulators, the broadcast, codes, second codes.
    int accumulators(int lanes, int tokens) const { return chains() * tokens * lanes; }
    static int code_lanes(int lanes, int tokens) { return tokens > 1 ? lanes : 1; }
    // Held over the tokens by a second chain or masks, else passed through while a code is put together.
    int second_codes(int lanes, int tokens) const {
        if (two_chains() || magnitudes())
            return code_lanes(lanes, tokens);
        return form_ == WeightForm::Packed && (traits_.table || traits_.high_bits) ? 1 : 0;
    }
    int fixed_registers(int lanes, int tokens) const {
        return accumulators(lanes, tokens) + 1 + code_lanes(lanes, tokens) + second_codes(lanes, tokens);
    }
    bool fits(int lanes, int tokens, int masks) const {
        const int products = dot_family() == DotFamily::Madd ? 2 : 0, tail = 3;
        return std::max(fixed_registers(lanes, tokens) + products, accumulators(lanes, tokens) + tail) <=
               registers() - masks;
    }

    Xmm acc(int lane, int token, int chain = 0) {
        return vec((chain * pass_tokens() + token - first_token_) * lanes() + lane);
    }
    Xmm broadcast() { return vec(accumulators(lanes(), pass_tokens())); }
    Xmm raw(int lane) { return vec(broadcast().getIdx() + 1 + lane % code_lanes(lanes(), pass_tokens())); }
    Xmm code(int lane) {
        const int first = broadcast().getIdx() + 1 + code_lanes(lanes(), pass_tokens());
        return vec(first + lane % std::max(1, second_codes(lanes(), pass_tokens())));
    }
    int pass_tokens() const { return last_token_ - first_token_; }
    // The registers behind the fixed ones, in turn.
    Xmm temporary() {
        const int count = registers() - masks_ - free_;
        next_free_ = (next_free_ + 1) % count;
        return vec(free_ + next_free_);
    }

    Xbyak::RegExp weights(const Lane &lane, int offset) {
        const Xbyak::RegExp base = lane.panel == 0   ? rsi + offset
                                   : lane.panel == 1 ? rsi + r8 + offset
                                   : lane.panel == 2 ? rsi + r8 * 2 + offset
                                                     : rsi + r9 + offset;
        return base;
    }
    // Byte offset of activation field `index` (d, ds, init0, init1, half0, half1) of a token.
    int field(int index, int token) const { return 32 * tokens_ + 4 * (index * tokens_ + token); }

    void emit() override {
        const int wide_sums = half_sums() ? vector_bytes() * registers() : 0;
        open_frame({.vectors = 16, .stack = uint32_t(scale_stack() + wide_sums)});
        mov(rsi, ptr[args + offsetof(TileArgs, w)]);
        mov(r8, ptr[args + offsetof(TileArgs, panel_stride)]);
        mov(rdx, ptr[args + offsetof(TileArgs, a)]);
        mov(rcx, ptr[args + offsetof(TileArgs, c)]);
        mov(r10, ptr[args + offsetof(TileArgs, blocks)]);
        lea(r9, ptr[r8 + r8 * 2]);
        hold_masks();
        Xbyak::Label loop;
        align(32);
        L(loop);
        if (scales_on_stack())
            k_block();
        else
            block();
        dec(r10);
        jnz(loop, T_NEAR);
        close_frame();
    }

    // A block of one group, its scales in front.
    void block() {
        const bool bytes = form_ == WeightForm::Bytes;
        const int size = bytes ? group_bytes() : int(layout_.block_bytes);
        prefetch_weights(size);
        if (bytes && wide())
            prefetch_activations();
        group(bytes ? byte_header_bytes(layout_) : int(layout_.quants_offset));
        add(rsi, size);
        add(rdx, activation_group());
    }

    // A super-block: its eight scales and minimums to the stack, then its groups.
    void k_block() {
        prefetch_weights(int(layout_.quants_offset));
        for (int p = 0; p < panels_; ++p)
            unpack_k_scales(weights({p, 0}, 0), rsp + kKScaleBytes * p);
        add(rsi, int(layout_.quants_offset));
        mov(rax, rsp);
        mov(r11d, int(layout_.block_k / 32));
        Xbyak::Label loop;
        align(32);
        L(loop);
        prefetch_weights(group_bytes());
        group(0);
        add(rsi, group_bytes());
        add(rdx, activation_group());
        add(rax, k_scale_step());
        dec(r11d);
        jnz(loop, T_NEAR);
    }

    void prefetch_weights(int bytes) {
        if (form_ == WeightForm::Bytes)
            return; // in the cache by construction
        for (int p = 0; p < panels_; ++p)
            for (int line = 0; line < bytes; line += 64)
                prefetcht0(ptr[weights({p, 0}, prefetch_bytes() + line)]);
    }
    // From the second-level cache, two groups ahead: a zmm tile uses a line every 19 cycles.
    void prefetch_activations() {
        for (int line = 0; line < activation_group(); line += 64)
            prefetcht0(ptr[rdx + (2 * activation_group() + line)]);
    }
    // About 8 KiB under way over all streams (measured: a single one gains 8 % over 2 KiB, four lose 3 % at 4
    // KiB each).
    int prefetch_bytes() const { return panels_ == 4 ? 2048 : 4096; }

    // One group of 32 elements; its codes start `codes` bytes behind w. In one pass if the registers hold it.
    // Else AVX2, where unpacking competes with the products for ports, goes half by half, so that an unpacked
    // code meets more tokens; the others keep both halves, so that a broadcast serves both. Tokens are shared
    // out evenly.
    void group(int codes) {
        const Plan plan = plan_passes(masks_);
        for (int half = 0; half < (plan.by_halves ? halves() : 1); ++half)
            for (int i = 0; i < plan.shares; ++i)
                pass(codes, half, plan.by_halves ? half + 1 : halves(), tokens_ * i / plan.shares,
                     tokens_ * (i + 1) / plan.shares);
    }
    struct Plan {
        bool by_halves;
        int shares; // of the tokens
        bool operator==(const Plan &) const = default;
    };
    Plan plan_passes(int masks) const {
        const bool by_halves = dot_family() == DotFamily::Madd && !fits(panels_ * halves(), tokens_, masks);
        const int lanes = panels_ * (by_halves ? 1 : halves());
        int shares = 1;
        while (!fits(lanes, (tokens_ + shares - 1) / shares, masks))
            ++shares;
        return {by_halves, shares};
    }

    // The masks of unpacking take registers of their own where that costs no pass more.
    void hold_masks() {
        masks_ = magnitudes() ? 1 : 0;
        if (magnitudes())
            vmovups(ones(), ptr[rip + broadcast_u16(1)]);
        if (form_ == WeightForm::Bytes || magnitudes())
            return;
        for (const int wanted : {1, 2})
            if ((wanted == 1 || traits_.high_bits) && plan_passes(wanted) == plan_passes(0))
                masks_ = wanted;
        if (masks_ >= 1)
            traits_.bytes ? hold_sign_mask(vec(registers() - 1)) : hold_nibble_mask(vec(registers() - 1));
        if (masks_ >= 2)
            hold_high_mask(vec(registers() - 2), high_mask());
    }

    Xmm ones() { return vec(registers() - 1); } // of magnitudes()

    void pass(int codes, int first_half, int last_half, int first_token, int last_token) {
        lanes_.clear();
        for (int p = 0; p < panels_; ++p)
            for (int h = first_half; h < last_half; ++h)
                lanes_.push_back({p, h});
        first_token_ = first_token;
        last_token_ = last_token;
        start_accumulators(codes);
        if (traits_.sub_scales) {
            for (int c = 0; c < kChunks / 2; ++c)
                chunk(codes, c, false);
            put_half_sums(codes);
            for (int c = 0; c < kChunks / 2; ++c)
                chunk(codes, c, true);
        } else {
            for (int c = 0; c < kChunks / 2; ++c) {
                chunk(codes, c, false);
                chunk(codes, c, true);
                // Four products of 5-bit codes fill 16 bits.
                if (traits_.widens && c == 1)
                    put_half_sums(codes);
            }
        }
        drain(0);
        for (int lane = 0; lane < lanes(); ++lane)
            tail(lane, codes);
    }

    void start_accumulators(int codes) {
        fresh_.assign(size_t(accumulators(lanes(), pass_tokens())), true);
        free_ = fixed_registers(lanes(), pass_tokens());
        for (int lane = 0; lane < lanes(); ++lane)
            for (int t = first_token_; t < last_token_; ++t) {
                if (traits_.sub_scales)
                    start(acc(lane, t), field(4, t));
                else if (traits_.offset || two_chains())
                    start(acc(lane, t), field(2, t));
                if (traits_.offset == 16)
                    add_sums(acc(lane, t), acc(lane, t), acc(lane, t));
                if (starts_at_128())
                    start(acc(lane, t, chains() - 1), field(3, t));
                if (masked())
                    start_masked(lane, t, codes);
                if (dot_family() == DotFamily::Dot && fresh(acc(lane, t)))
                    zero(acc(lane, t));
            }
    }
    void start_masked(int lane, int t, int codes) {
        const Lane &at = lanes_[size_t(lane)];
        vmovups(acc(lane, t), ptr[weights(at, codes + kStartOffset + 32 * at.half)]);
        fresh_[size_t(acc(lane, t).getIdx())] = false;
    }
    // Codes are w + 128, or the residuals of a table's second chain.
    bool starts_at_128() const { return (traits_.table || traits_.bytes) && !magnitudes(); }
    void add_sums(const Xmm &to, const Xmm &a, const Xmm &b) {
        dot_family() == DotFamily::Dot ? vpaddd(to, a, b) : vpaddw(to, a, b);
    }
    void start(const Xmm &accumulator, int offset) {
        vpbroadcastd(accumulator, ptr[rdx + offset]);
        fresh_[size_t(accumulator.getIdx())] = false;
    }
    bool fresh(const Xmm &accumulator) const { return fresh_[size_t(accumulator.getIdx())]; }

    // Elements 4c .. 4c+3, or 16+4c .. 16+4c+3 (high). Packed chunks of nibbles hold both in one byte.
    void chunk(int codes, int c, bool high) {
        if (pass_tokens() > 1)
            for (int lane = 0; lane < lanes(); ++lane)
                load_codes(lane, codes, c, high);
        for (int t = first_token_; t < last_token_; ++t) {
            vpbroadcastd(broadcast(), ptr[rdx + (32 * t + (high ? 16 : 0) + 4 * c)]);
            for (int lane = 0; lane < lanes(); ++lane) {
                if (pass_tokens() == 1)
                    load_codes(lane, codes, c, high);
                multiply(lane, t);
            }
        }
    }

    // The codes of a lane for one step: in raw() where one chain uses them as they are, else nibbles in raw()
    // and what the second chain multiplies in code().
    void load_codes(int lane, int codes, int c, bool high) {
        const Lane &at = lanes_[size_t(lane)];
        if (form_ == WeightForm::Bytes) {
            const int offset = codes + kChunkBytes * (c + (high ? kChunks / 2 : 0)) + 32 * at.half;
            vmovups(raw(lane), ptr[weights(at, offset)]);
            if (masked())
                vmovups(code(lane), ptr[weights(at, offset + kMaskOffset)]);
            return;
        }
        if (turns_signs()) {
            vmovups(code(lane),
                    ptr[weights(at, codes + kChunkBytes * (c + (high ? kChunks / 2 : 0)) + 32 * at.half)]);
            vpabsb(raw(lane), code(lane));
            return;
        }
        unpack_codes(raw(lane), code(lane), weights(at, codes), at.half, c, high);
    }

    void multiply(int lane, int t) {
        if (dot_family() == DotFamily::Dot) {
            vpdpbusd(acc(lane, t), raw(lane), broadcast());
            return;
        }
        if (magnitudes())
            return multiply_magnitudes(lane, t);
        multiply_add(acc(lane, t), raw(lane));
        if (two_chains())
            multiply_add(acc(lane, t, 1), code(lane));
    }

    // |w| times the activations with their signs turned, under the masks or as those of w: one product fills
    // 16 bits.
    void multiply_magnitudes(int lane, int t) {
        const Xmm &accumulator = acc(lane, t);
        const bool first = fresh(accumulator);
        if (!first)
            drain(size_t(registers() - masks_ - free_) - 1);
        const Xmm product = first ? accumulator : temporary();
        masked() ? vpxor(product, broadcast(), code(lane)) : vpsignb(product, broadcast(), code(lane));
        vpmaddubsw(product, raw(lane), product);
        vpmaddwd(product, product, ones());
        if (first)
            fresh_[size_t(accumulator.getIdx())] = false;
        else
            pending_.push_back({accumulator, product});
    }

    void multiply_add(const Xmm &accumulator, const Xmm &codes) {
        if (fresh(accumulator)) {
            vpmaddubsw(accumulator, codes, broadcast());
            fresh_[size_t(accumulator.getIdx())] = false;
            return;
        }
        drain(size_t(registers() - masks_ - free_) - 1);
        const Xmm product = temporary();
        vpmaddubsw(product, codes, broadcast());
        pending_.push_back({accumulator, product});
    }
    // Adds waiting products, oldest first, until `keep` are left.
    void drain(size_t keep) {
        while (pending_.size() > keep) {
            const Pending &oldest = pending_.front();
            if (magnitudes())
                vpaddd(oldest.acc, oldest.acc, oldest.product);
            else
                vpaddw(oldest.acc, oldest.acc, oldest.product);
            pending_.erase(pending_.begin());
        }
    }

    // Puts the sums of half a group on the stack, in 32 bits or times the scale of that half, and starts
    // over. (Registers for them would halve the lanes of a pass, and with that the use of a broadcast.)
    void put_half_sums(int codes) {
        drain(0);
        const bool madd = dot_family() == DotFamily::Madd;
        const Xmm scale = vec(accumulators(lanes(), pass_tokens()));
        for (int lane = 0; lane < lanes(); ++lane) {
            if (traits_.sub_scales)
                sub_scale(scale, lane, codes, 0);
            for (int t = first_token_; t < last_token_; ++t) {
                const Xmm sum = acc(lane, t);
                if (!traits_.sub_scales) {
                    vpmaddwd(sum, sum, ptr[rip + broadcast_u16(1)]);
                } else if (madd) {
                    vpmaddwd(sum, sum, scale);
                } else {
                    vcvtdq2ps(sum, sum);
                    vmulps(sum, sum, scale);
                }
                vmovups(half_sum(sum), sum);
                fresh_[size_t(sum.getIdx())] = true;
                if (traits_.sub_scales)
                    start(sum, field(5, t));
            }
        }
    }
    bool half_sums() const { return traits_.widens || traits_.sub_scales; }
    Xbyak::Address half_sum(const Xmm &sum) {
        return ptr[rsp + (scale_stack() + vector_bytes() * sum.getIdx())];
    }
    int vector_bytes() const { return wide() ? 64 : 32; }
    int scale_stack() const { return scales_on_stack() ? kKScaleBytes * panels_ : 0; }

    // The scale of a half of the group as the sums are multiplied with it: words for vpmaddwd, else f32.
    void sub_scale(const Xmm &to, int lane, int codes, int part) {
        const Lane &at = lanes_[size_t(lane)];
        const Xbyak::RegExp group = rax + kKScaleBytes * at.panel;
        if (form_ == WeightForm::Bytes)
            vmovups(to, ptr[weights(at, codes - 128 + 64 * part + 32 * at.half)]);
        else if (dot_family() == DotFamily::Madd)
            load_sub_scale_words(to, group, part, at.half);
        else
            load_sub_scales(to, group, part, at.half);
    }

    // The dot of an output as f32, in the register that is returned; sub: the scale of the group's second
    // half.
    Xmm dot(int lane, int t, const Xmm &sub) {
        const Xmm sum = acc(lane, t);
        const bool madd = dot_family() == DotFamily::Madd;
        if (traits_.sub_scales && !madd) { // sc0*dot0 + sc1*dot1 < 2^24: exact
            vcvtdq2ps(sum, sum);
            vfmadd213ps(sum, sub, half_sum(sum));
            return sum;
        }
        if (traits_.sub_scales)
            vpmaddwd(sum, sum, sub);
        else if (madd && !magnitudes())
            join_chains(lane, t);
        if (half_sums())
            vpaddd(sum, sum, half_sum(sum));
        vcvtdq2ps(sum, sum);
        return sum;
    }
    // 16-bit sums to 32-bit ones.
    void join_chains(int lane, int t) {
        const Xmm narrow = acc(lane, t);
        vpmaddwd(narrow, narrow, ptr[rip + broadcast_u16(two_chains() ? 16 : 1)]);
        if (two_chains()) {
            vpmaddwd(acc(lane, t, 1), acc(lane, t, 1), ptr[rip + broadcast_u16(1)]);
            vpaddd(narrow, narrow, acc(lane, t, 1));
        }
    }

    // acc = fma(f32(dot), s*d, acc); acc = fma(z, ds, acc).
    void tail(int lane, int codes) {
        const int first = accumulators(lanes(), pass_tokens());
        const Xmm s = vec(first), z = vec(first + 1), d = vec(first + 2);
        tail_scales(lane, codes, s, z);
        if (traits_.sub_scales) // no minimum: its register is free
            sub_scale(z, lane, codes, 1);
        const Lane &at = lanes_[size_t(lane)];
        for (int t = first_token_; t < last_token_; ++t) {
            const Xmm value = dot(lane, t, z);
            const Xbyak::Address c = ptr[rcx + 4 * int(kPanelRows) * (at.panel * tokens_ + t) + 32 * at.half];
            vbroadcastss(d, ptr[rdx + field(0, t)]);
            vmulps(d, d, s);
            vfmadd213ps(value, d, c);
            if (layout_.min_offset) {
                vbroadcastss(d, ptr[rdx + field(1, t)]);
                vfmadd231ps(value, z, d);
            }
            vmovups(c, value);
        }
    }

    void tail_scales(int lane, int codes, const Xmm &s, const Xmm &z) {
        const Lane &at = lanes_[size_t(lane)];
        if (scales_on_stack()) {
            load_k_scales(s, z, rsp + kKScaleBytes * at.panel, rax + kKScaleBytes * at.panel, at.half);
        } else if (form_ == WeightForm::Packed) {
            load_scales(s, z, weights(at, codes - int(layout_.quants_offset)), at.half);
        } else {
            vmovups(s, ptr[weights(at, 32 * at.half)]);
            if (layout_.min_offset)
                vmovups(z, ptr[weights(at, 64 + 32 * at.half)]);
        }
    }
};

} // namespace

TileFn tile_kernel(WeightForm form, nybl_format format, nybl_isa isa, size_t panels, size_t tokens) noexcept {
    const KernelKey key{.kind = form == WeightForm::Bytes ? KernelKind::Prefill : KernelKind::Decode,
                        .format = format,
                        .isa = isa,
                        .rows = uint8_t(panels * kPanelRows),
                        .tokens = uint8_t(tokens)};
    return kernel<TileFn>(key, make_generator<TileKernel>);
}

} // namespace nybl::cpu::jit
