// What kernels that read original blocks share: eight weight rows in registers.
//
// A piece is 16 bytes of each of the rows: row i in the low half of vector i, row i + 4 in its high half. A
// 4 x 4 transposition of dwords makes of it four vectors, one for each dword, with a row in each lane.
// Vectors are ymm on every instruction set: in-lane shuffles of ymm run on two ports of the machines that
// have zmm, those of zmm on one.
#pragma once

#include "cpu/jit/vector_generator.h"
#include "cpu/panel.h"
#include "quant/format.h"

namespace nybl::cpu::jit {

constexpr int kRows = 8; // at a time

class RowsGenerator : public VectorGenerator {
  protected:
    explicit RowsGenerator(const KernelKey &key)
        : VectorGenerator(key), layout_(*find_panel_layout(key.format)),
          block_bytes_(int(quant::find_format(key.format)->block_bytes)) {}

    bool k_format() const { return layout_.scales_offset != 0; }

    // Saved registers among them: the frame names five, and r15 is free.
    Xbyak::Reg64 row(int i) const {
        const Xbyak::Reg64 rows[kRows] = {r8, r9, r10, r11, rbx, r12, r13, r14};
        return rows[i];
    }
    void load_rows(const Xbyak::Reg64 &pointers) {
        for (int i = 0; i < kRows; ++i)
            mov(row(i), ptr[pointers + 8 * i]);
    }
    void advance_rows(int bytes) {
        for (int i = 0; i < kRows; ++i)
            add(row(i), bytes);
    }
    // The lines of the next `bytes` bytes of every row, `ahead` further on.
    void prefetch_rows(const Xbyak::Reg64 &ahead, int bytes) {
        for (int i = 0; i < kRows; ++i)
            for (int line = 0; line < bytes; line += 64)
                prefetcht0(ptr[row(i) + ahead + line]);
    }

    // 16 bytes at `from` of the rows to vectors first .. first + 3.
    void load_piece(int first, int from) {
        for (int i = 0; i < 4; ++i) {
            vmovdqu(Xbyak::Xmm(first + i), ptr[row(i) + from]);
            vinserti128(Xbyak::Ymm(first + i), Xbyak::Ymm(first + i), ptr[row(i + 4) + from], 1);
        }
    }

    // Dword i of the rows to vector first + i, by way of four vectors from `temporary` on.
    void transpose(int first, int temporary) {
        using Xbyak::Ymm;
        const Ymm t0(temporary), t1(temporary + 1), t2(temporary + 2), t3(temporary + 3);
        vpunpckldq(t0, Ymm(first), Ymm(first + 1));
        vpunpckldq(t1, Ymm(first + 2), Ymm(first + 3));
        vpunpckhdq(t2, Ymm(first), Ymm(first + 1));
        vpunpckhdq(t3, Ymm(first + 2), Ymm(first + 3));
        vpunpcklqdq(Ymm(first), t0, t1);
        vpunpckhqdq(Ymm(first + 1), t0, t1);
        vpunpcklqdq(Ymm(first + 2), t2, t3);
        vpunpckhqdq(Ymm(first + 3), t2, t3);
    }

    // Eight dwords of two f16 each to the first ones in the low half, the second ones in the high half.
    void split_words(const Xbyak::Ymm &value) {
        constexpr uint8_t kWords[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
        vpshufb(value, value, ptr[rip + broadcast_16(kWords)]);
        vpermq(value, value, 0xD8);
    }

    const PanelLayout &layout_;
    const int block_bytes_; // of an original block
};

} // namespace nybl::cpu::jit
