// What kernels that read packed panels share: codes and scales from the bytes of panel.h, in registers.
#pragma once

#include "cpu/jit/vector_generator.h"
#include "cpu/panel.h"

namespace nybl::cpu::jit {

// What the integer part of a format needs beyond sum(code * q) on an instruction set.
struct CodeTraits {
    int high_bits;   // of each code, that lie apart from its nibble
    bool bytes;      // 8-bit codes: no nibbles
    int offset;      // the code is what is stored - 8 (Q4_0), - 16 (Q5_0) or - 32 (Q6_K)
    bool table;      // the code is a table entry (IQ4_NL)
    bool sub_scales; // each half of a group has an integer scale of its own (Q6_K)
    bool splits;     // a product of codes is too large for 16-bit sums: vpmaddubsw takes magnitudes
    bool widens;     // 16-bit accumulators of vpmaddubsw are full after half a group
};
CodeTraits code_traits(const PanelLayout &layout, nybl_isa isa) noexcept;

// What the kernels of a format read of a group of activations, on any instruction set: bits of
// ActivationField.
uint8_t activation_fields(const PanelLayout &layout) noexcept;

// A byte panel holds, per group of 32 elements: f32 scale[16]; f32 min[16] where the format has one, or
// sub-scales[2][16] of its halves (f32, or the scale twice as i16 where vpmaddwd multiplies by it); then 8
// chunks [16 rows][4] of codes as unsigned bytes, chunk c for elements 4c .. 4c+3. IQ4_NL and Q8_0 codes are
// stored as w + 128. Where that overflows vpmaddubsw (AVX2): |w|, then 8 more chunks of masks that are 255
// where w < 0, then i32 start[16]. With q ^ mask = -q-1 under a mask, sum(|w| * (q ^ mask)) + start = sum(w *
// q), start being the sum of |w| under masks.
constexpr int kChunkBytes = 64, kChunks = 8;
constexpr int kByteCodes = kChunks * kChunkBytes;
constexpr int byte_header_bytes(const PanelLayout &layout) noexcept {
    return layout.min_offset ? 128 : layout.code_bits == 6 ? 192 : 64;
}
// Of byte panels with magnitudes, from the first code.
constexpr int kMaskOffset = kByteCodes, kStartOffset = 2 * kByteCodes;
int byte_group_bytes(const PanelLayout &layout, nybl_isa isa) noexcept;

class WeightGenerator : public VectorGenerator {
  protected:
    // How codes are unpacked: as the unsigned operand of a dot, or as the signed bytes that they stand for.
    enum class Codes : uint8_t { Unsigned, Signed };
    WeightGenerator(const KernelKey &key, Codes codes);
    explicit WeightGenerator(const KernelKey &key)
        : WeightGenerator(key, key.isa == NYBL_ISA_AMX ? Codes::Signed : Codes::Unsigned) {}

    bool k_format() const { return layout_.scales_offset != 0; }
    bool signed_codes() const { return codes_ == Codes::Signed; }
    // Of high bits, once they are moved behind the nibble.
    uint8_t high_mask() const { return uint8_t(((1 << traits_.high_bits) - 1) << 4); }

    // The codes of rows `half` of chunk c (its low or high nibbles) of the packed group at `group`: in
    // `codes`, and for an unsigned table that splits the second operand in `second`. `second` is destroyed
    // where the format has high bits or a table.
    void unpack_codes(const Xbyak::Xmm &codes, const Xbyak::Xmm &second, const Xbyak::RegExp &group, int half,
                      int c, bool high);

    // f32 scales (and minimums) of rows `half` of the 32-element block at `block`.
    void load_scales(const Xbyak::Xmm &s, const Xbyak::Xmm &z, const Xbyak::RegExp &block, int half);

    // The scales of the super-block at `block`, made ready at `out` (kKScaleBytes): f32 d[16], f32 -dmin[16],
    // u8 sc[8 groups][16 rows], u8 mn[8][16]; of Q6_K f32 d[16], i8 sc[16 half groups][16 rows]. Uses vectors
    // 0 .. 4.
    void unpack_k_scales(const Xbyak::RegExp &block, const Xbyak::RegExp &out);
    static constexpr int kKScaleBytes = 128 + 2 * 8 * 16;

    // f32(d*sc) and -f32(dmin*mn) of rows `half` of a group, or f32 d alone. `out` is where unpack_k_scales
    // put the scales, `group` the same advanced by k_scale_step() bytes for every group.
    void load_k_scales(const Xbyak::Xmm &s, const Xbyak::Xmm &z, const Xbyak::RegExp &out,
                       const Xbyak::RegExp &group, int half);
    int k_scale_step() const { return traits_.sub_scales ? 32 : 16; }
    // The scale of elements 16 * part .. 16 * part + 15 of a group: as f32, or twice as a word.
    void load_sub_scales(const Xbyak::Xmm &to, const Xbyak::RegExp &group, int part, int half);
    void load_sub_scale_words(const Xbyak::Xmm &to, const Xbyak::RegExp &group, int part, int half);

    const PanelLayout &layout_;
    const CodeTraits traits_;

  private:
    const Codes codes_;
};

} // namespace nybl::cpu::jit
