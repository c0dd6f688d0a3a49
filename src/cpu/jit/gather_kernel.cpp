// Generates the kernels that turn original blocks of 16 rows into packed panel blocks.
#include "cpu/jit/gather_kernel.h"

#include <algorithm>

#include "cpu/jit/rows_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

// Eight rows at a time, in two passes: rows 0 .. 7 fill the first half of every 64 bytes of codes, rows
// 8 .. 15 the second.
//
// Register map
//   r8 .. r11, rbx, r12 .. r14   rows 0 .. 7 of the pass
//   rsi  dst, codes of the pass (+32)   rdi  dst, headers (+16)   r15  dst, scales of K formats (+8)
//   rdx  blocks left                    rcx  ahead                rax  scratch
//   [rsp] args   [rsp + 8] pass
//
//   vectors 0 .. 7 pieces and dwords   8 .. 13 temporaries   14 the mask of low nibbles
class GatherKernel final : public RowsGenerator {
  public:
    explicit GatherKernel(const KernelKey &key) : RowsGenerator(key) {}

  private:
    // Blocks whose bytes make whole pieces, or nearly fill a cache line.
    int unit_blocks() const {
        switch (key().format) {
        case NYBL_Q4_1:
            return 4; // 80 bytes
        case NYBL_Q5_1:
            return 2; // 48 bytes
        case NYBL_Q4_0:
        case NYBL_IQ4_NL:
        case NYBL_IQ4_NL_ROW:
        case NYBL_Q5_0:
            return 3; // 51, 54 or 66 bytes
        case NYBL_Q8_0:
            return 2; // 68 bytes
        default:
            return 1;
        }
    }

    Ymm low_nibbles() const { return Ymm(14); }

    void emit() override {
        open_frame({.saved = 5, .vectors = 16, .stack = 64});
        mov(ptr[rsp], args);
        mov(qword[rsp + 8], 0);
        if (k_format() || layout_.code_bits == 5 || layout_.code_bits == 6) // the others need none
            vmovups(low_nibbles(), ptr[rip + broadcast_u8(0x0F)]);
        Xbyak::Label pass, units, last_blocks, last_block, next;
        L(pass);
        start_pass();
        const int unit = unit_blocks();
        cmp(rdx, unit);
        jb(last_blocks);
        align(32);
        L(units);
        gather(unit);
        cmp(rdx, unit);
        jae(units);
        L(last_blocks);
        if (unit > 1) {
            test(rdx, rdx);
            jz(next);
            L(last_block);
            gather(1);
            test(rdx, rdx);
            jnz(last_block);
            L(next);
        }
        inc(qword[rsp + 8]);
        cmp(qword[rsp + 8], 2);
        jb(pass);
        close_frame();
    }

    void start_pass() {
        mov(rdi, ptr[rsp]);
        mov(rax, ptr[rsp + 8]);
        mov(rcx, rax);
        shl(rcx, 6);
        add(rcx, ptr[rdi + offsetof(GatherArgs, rows)]);
        load_rows(rcx);
        mov(rsi, ptr[rdi + offsetof(GatherArgs, dst)]);
        mov(rdx, ptr[rdi + offsetof(GatherArgs, blocks)]);
        mov(rcx, ptr[rdi + offsetof(GatherArgs, ahead)]);
        lea(r15, ptr[rsi + rax * 8]);
        lea(rdi, ptr[r15 + rax * 8]);
        shl(rax, 5);
        add(rsi, rax);
    }

    // `blocks` blocks of the eight rows.
    void gather(int blocks) {
        prefetch_rows(rcx, blocks * block_bytes_);
        if (layout_.code_bits == 6)
            super_block_6();
        else if (k_format())
            super_block();
        else if (layout_.min_offset)
            dword_blocks(blocks);
        else
            word_blocks(blocks);
        advance_rows(blocks * block_bytes_);
        for (const Reg64 &dst : {rsi, rdi, r15})
            add(dst, blocks * int(layout_.block_bytes));
        sub(rdx, blocks);
    }

    // Q4_0, IQ4_NL, Q5_0, Q8_0: a word (IQ4_NL_ROW: a byte) in front of a dword of fifth bits (Q5_0) and the
    // codes.
    void word_blocks(int blocks) {
        for (int b = 0; b < blocks; ++b) {
            const int from = b * block_bytes_, to = b * int(layout_.block_bytes);
            for (int piece = 0; piece < int(layout_.group_bytes - layout_.high_bytes) / 256; ++piece) {
                load_piece(0, from + int(layout_.d_bytes) + (layout_.high_bytes ? 4 : 0) + 16 * piece);
                transpose(0, 8);
                for (int c = 0; c < 4; ++c)
                    vmovdqu(chunk(to, 0, 4 * piece + c), Ymm(c));
            }
            if (layout_.high_bytes) {
                load_piece(0, from + 2);
                transpose(0, 8);
                high_bits_of_dword(Ymm(0));
                vmovdqu(ptr[rsi + (to + int(layout_.quants_offset))], Ymm(0));
            }
            layout_.d_bytes == 1 ? scale_bytes(from, to) : scale_words(from, to);
        }
    }
    void scale_bytes(int from, int to) {
        for (int i = 0; i < 8; ++i) {
            movzx(eax, byte[row(i) + from]);
            mov(byte[r15 + (to + i)], al);
        }
    }
    void scale_words(int from, int to) {
        for (int i = 0; i < 8; ++i) {
            movzx(eax, word[row(i) + from]);
            mov(word[rdi + (to + 2 * i)], ax);
        }
    }

    // Q4_1, Q5_1: a row's blocks are a stream of dwords (d and m; high bits; four chunks), read in whole
    // pieces. Where the last piece would reach past the blocks it starts earlier, and repeats some dwords.
    void dword_blocks(int blocks) {
        const int per_block = block_bytes_ / 4, end = blocks * per_block;
        for (int done = 0; done < end; done += 4) {
            const int first = std::min(done, end - 4);
            load_piece(0, 4 * first);
            transpose(0, 8);
            for (int i = done; i < std::min(done + 4, end); ++i)
                store_dword(Ymm(i - first), i % per_block, i / per_block * int(layout_.block_bytes));
        }
    }

    void store_dword(const Ymm &value, int index, int to) {
        const int first_chunk = layout_.high_bytes ? 2 : 1;
        if (index == 0) {
            store_scale_and_min(value, to);
        } else if (index < first_chunk) {
            high_bits_of_dword(value);
            vmovdqu(ptr[rsi + (to + int(layout_.quants_offset))], value);
        } else {
            vmovdqu(chunk(to, 0, index - first_chunk), value);
        }
    }

    // Q4_K, Q5_K.
    void super_block() {
        load_piece(0, 0);
        transpose(0, 8);
        store_scale_and_min(Ymm(0), 0);
        for (int i = 0; i < 3; ++i)
            store_k_scales(Ymm(1 + i), 4 * i);
        int quants = 16;
        if (layout_.high_bytes) {
            k_high_bits();
            quants += 32;
        }
        for (int pair = 0; pair < 4; ++pair)
            k_groups(2 * pair, 2 * pair + 1, quants + 32 * pair);
    }

    // Q6_K: per half of the block four groups, whose nibbles are those of two runs of 32 bytes.
    void super_block_6() {
        scale_words(block_bytes_ - 2, 0);
        load_piece(0, block_bytes_ - 18);
        transpose(0, 8);
        for (int i = 0; i < 4; ++i)
            store_k_scales(Ymm(i), 4 * i);
        for (int half = 0; half < 2; ++half) {
            for (int run = 0; run < 2; ++run)
                k_groups(4 * half + run, 4 * half + run + 2, 64 * half + 32 * run);
            for (int part = 0; part < 2; ++part)
                k_high_pairs(4 * half, part, 128 + 32 * half + 16 * part);
        }
    }

    // Bits 2i, 2i+1 of 16 bytes are the high bits of group `group` + i: a 4 x 4 transposition of pairs of
    // bits.
    void k_high_pairs(int group, int part, int from) {
        load_piece(0, from);
        transpose(0, 8);
        for (const int step : {2, 1}) {
            vmovups(Ymm(10), ptr[rip + broadcast_u8(step == 2 ? 0x0F : 0x33)]);
            for (int i = 0; i < 4; ++i)
                if (!(i & step))
                    swap_bits(Ymm(i), Ymm(i + step), 2 * step, Ymm(10));
        }
        for (int i = 0; i < 4; ++i)
            vmovdqu(ptr[rsi + (int(layout_.quants_offset + (group + i) * layout_.group_bytes) + 64 * part)],
                    Ymm(i));
    }

    // Two groups: the low nibbles of 32 bytes are the first, the high ones the second. A panel wants elements
    // 16 .. 31 of a group above its elements 0 .. 15.
    void k_groups(int low_group, int high_group, int from) {
        load_piece(0, from);
        load_piece(4, from + 16);
        for (int i = 0; i < 4; ++i) {
            const Ymm a(i), b(4 + i), first(8 + i), t(12);
            vpsllw(first, b, 4);
            select(first, a, low_nibbles());
            vpsrlw(t, a, 4);
            select(b, t, low_nibbles());
        }
        transpose(8, 0);
        for (int c = 0; c < 4; ++c)
            vmovdqu(chunk(0, low_group, c), Ymm(8 + c));
        transpose(4, 0);
        for (int c = 0; c < 4; ++c)
            vmovdqu(chunk(0, high_group, c), Ymm(4 + c));
    }

    // to = mask ? from : to, bit by bit. Uses vector 13.
    void select(const Ymm &to, const Ymm &from, const Ymm &mask) {
        if (wide()) {
            constexpr uint8_t kCSelectsB = 0xD8; // truth table of c ? b : a
            vpternlogd(to, from, mask, kCSelectsB);
            return;
        }
        const Ymm t(13);
        vpxor(t, to, from);
        vpand(t, t, mask);
        vpxor(to, to, t);
    }

    // Q5_K: byte l of qh holds bit 4 of element l of all eight groups. Dword c of it, bytes j, has for group
    // i what bit c of byte j of the group's high bits is: an 8 x 8 transposition of bits over eight vectors.
    void k_high_bits() {
        load_piece(0, 16);
        transpose(0, 8);
        load_piece(4, 32);
        transpose(4, 8);
        for (const int step : {4, 2, 1}) {
            const uint8_t mask = step == 4 ? 0x0F : step == 2 ? 0x33 : 0x55;
            vmovups(Ymm(10), ptr[rip + broadcast_u8(mask)]);
            for (int i = 0; i < 8; ++i)
                if (!(i & step))
                    swap_bits(Ymm(i), Ymm(i + step), step, Ymm(10));
        }
        for (int g = 0; g < 8; ++g)
            vmovdqu(ptr[rsi + int(layout_.quants_offset + g * layout_.group_bytes)], Ymm(g));
    }

    // Swaps the bits of `a` `shift` above the mask with those of `b` under it. Uses vector 8.
    void swap_bits(const Ymm &a, const Ymm &b, int shift, const Ymm &mask) {
        const Ymm t(8);
        vpsrlw(t, a, uint8_t(shift));
        vpxor(t, t, b);
        vpand(t, t, mask);
        vpxor(b, b, t);
        vpsllw(t, t, uint8_t(shift));
        vpxor(a, a, t);
    }

    // Q5_1: bit e = 4c + j of a row's dword becomes bit c of byte j. Of the five bits of a position
    // (c2 c1 c0 j1 j0), two swaps bring j1 j0 to the front; a table of nibbles sorts the rest, which lies
    // within a byte. Uses vectors 8 .. 11.
    void high_bits_of_dword(const Ymm &value) {
        swap_within(value, 14, 0x0000CCCC); // position bits 4 and 1: c2 and j1
        swap_within(value, 7, 0x00AA00AA);  // 3 and 0: c1 and j0
        // A byte's bit (c0 c2 c1) is to be bit (c2 c1 c0).
        uint8_t low[16], high[16];
        for (int nibble = 0; nibble < 16; ++nibble) {
            low[nibble] = high[nibble] = 0;
            for (int bit = 0; bit < 4; ++bit)
                if (nibble >> bit & 1) {
                    low[nibble] |= uint8_t(1 << 2 * bit);
                    high[nibble] |= uint8_t(1 << (2 * bit + 1));
                }
        }
        const Ymm t(8), table(9);
        vpsrlw(t, value, 4);
        vpand(t, t, low_nibbles());
        vpand(value, value, low_nibbles());
        vmovups(table, ptr[rip + broadcast_16(low)]);
        vpshufb(value, table, value);
        vmovups(table, ptr[rip + broadcast_16(high)]);
        vpshufb(t, table, t);
        vpor(value, value, t);
    }

    // Swaps bits p + shift and p of every dword, p the bits of `mask`. Uses vector 8.
    void swap_within(const Ymm &value, int shift, uint32_t mask) {
        const Ymm t(8);
        vpsrld(t, value, uint8_t(shift));
        vpxor(t, t, value);
        vpand(t, t, ptr[rip + broadcast_u32(mask)]);
        vpxor(value, value, t);
        vpslld(t, t, uint8_t(shift));
        vpxor(value, value, t);
    }

    Xbyak::Address chunk(int block, int group, int c) {
        return ptr[rsi + (block + int(layout_.quants_offset) + group * int(layout_.group_bytes) +
                          int(layout_.high_bytes) + 64 * c)];
    }

    // Eight dwords of an f16 scale and an f16 minimum.
    void store_scale_and_min(const Ymm &value, int to) {
        split_words(value);
        vmovdqu(ptr[rdi + to], Xmm(value.getIdx()));
        vextracti128(ptr[rdi + (to + int(layout_.min_offset))], value, 1);
    }

    // Bytes i .. i+3 of the rows' scales.
    void store_k_scales(const Ymm &value, int i) {
        constexpr uint8_t kColumns[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
        uint8_t order[64] = {};
        for (int lane = 0; lane < 8; ++lane)
            order[4 * lane] = uint8_t(lane / 2 + lane % 2 * 4);
        const Ymm t(8);
        vmovups(t, ptr[rip + constant(order)]);
        vpshufb(value, value, ptr[rip + broadcast_16(kColumns)]);
        vpermd(value, t, value);
        const Xmm low(value.getIdx()), high(8);
        vextracti128(high, value, 1);
        const int to = int(layout_.scales_offset) + 16 * i;
        vmovlps(ptr[r15 + to], low);
        vmovhps(ptr[r15 + (to + 16)], low);
        vmovlps(ptr[r15 + (to + 32)], high);
        vmovhps(ptr[r15 + (to + 48)], high);
    }
};

} // namespace

GatherFn gather_kernel(nybl_format format, nybl_isa isa) noexcept {
    return kernel<GatherFn>({.kind = KernelKind::Gather, .format = format, .isa = isa, .rows = kPanelRows},
                            make_generator<GatherKernel>);
}

} // namespace nybl::cpu::jit
