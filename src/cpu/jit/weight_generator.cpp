// Codes and scales of packed panels, in registers.
#include "cpu/jit/weight_generator.h"

namespace nybl::cpu::jit {
namespace {

using Xbyak::Xmm;

// IQ4_NL values as r + 11 of value = 16 * nibble - 128 + r.
constexpr uint8_t kResidual[16] = {12, 19, 24, 26, 26, 24, 21, 17, 12, 8, 4, 1, 0, 0, 4, 12};

} // namespace

CodeTraits code_traits(const PanelLayout &layout, nybl_isa isa) noexcept {
    const bool table = layout.format == NYBL_IQ4_NL || layout.format == NYBL_IQ4_NL_ROW,
               bytes = layout.code_bits == 8;
    const bool madd = dot_family(isa) == DotFamily::Madd;
    const int offset = layout.format == NYBL_Q4_0   ? 8
                       : layout.format == NYBL_Q5_0 ? 16
                       : layout.format == NYBL_Q6_K ? 32
                                                    : 0;
    return {.high_bits = bytes ? 0 : int(layout.code_bits) - 4,
            .bytes = bytes,
            .offset = offset,
            .table = table,
            .sub_scales = layout.code_bits == 6,
            .splits = madd && (table || bytes),
            // Sums modulo 2^16 are right where the last one fits, as it does of signed codes: at most 16
            // products of 16 * 127, or 8 of 32 * 127.
            .widens = madd && layout.high_bytes != 0 && offset == 0};
}

uint8_t activation_fields(const PanelLayout &layout) noexcept {
    const CodeTraits traits = code_traits(layout, NYBL_ISA_AVX2);
    const auto bit = [](ActivationField field) { return 1u << unsigned(field); };
    unsigned fields = bit(ActivationField::D);
    if (layout.min_offset)
        fields |= bit(ActivationField::Ds);
    if (traits.sub_scales)
        fields |= bit(ActivationField::Half0) | bit(ActivationField::Half1);
    else if (traits.offset || traits.table)
        fields |= bit(ActivationField::Init0);
    if (traits.table || traits.bytes)
        fields |= bit(ActivationField::Init1);
    return uint8_t(fields);
}

int byte_group_bytes(const PanelLayout &layout, nybl_isa isa) noexcept {
    const CodeTraits traits = code_traits(layout, isa);
    return byte_header_bytes(layout) + (traits.splits ? kStartOffset + 64 : kByteCodes);
}

WeightGenerator::WeightGenerator(const KernelKey &key, Codes codes)
    : VectorGenerator(key), layout_(*find_panel_layout(key.format)), traits_(code_traits(layout_, key.isa)),
      codes_(codes) {}

void WeightGenerator::unpack_codes(const Xmm &codes, const Xmm &second, const Xbyak::RegExp &group, int half,
                                   int c, bool high) {
    if (traits_.bytes) {
        const Xbyak::RegExp from = group + (kChunkBytes * (c + (high ? kChunks / 2 : 0)) + 32 * half);
        signed_codes() ? vmovups(codes, ptr[from]) : load_plus_128(codes, from);
        return;
    }
    unpack_nibbles(codes, group + (int(layout_.high_bytes) + kChunkBytes * c + 32 * half), high);
    if (traits_.high_bits) {
        const bool fifth = traits_.high_bits == 1; // bit c of a byte, for the high nibbles c + 4; else 2c
        shift_to_bit4(second, group + ((high && !fifth ? 64 : 0) + 32 * half),
                      fifth ? c + (high ? 4 : 0) : 2 * c);
        or_high_bits(codes, second, high_mask());
    }
    if (signed_codes() && traits_.offset)
        vpsubb(codes, codes, ptr[rip + broadcast_u8(uint8_t(traits_.offset))]);
    if (traits_.table) {
        vmovups(second, ptr[rip + broadcast_16(signed_codes()   ? kIq4Values
                                               : traits_.splits ? kResidual
                                                                : kIq4Plus128)]);
        const Xmm &to = traits_.splits && !signed_codes() ? second : codes;
        vpshufb(to, second, codes);
    }
}

void WeightGenerator::load_scales(const Xmm &s, const Xmm &z, const Xbyak::RegExp &block, int half) {
    if (layout_.d_bytes == 1) {
        vpmovsxbd(s, ptr[block + 8 * half]);
        vcvtdq2ps(s, s);
        return;
    }
    vcvtph2ps(s, ptr[block + 16 * half]);
    if (layout_.min_offset)
        vcvtph2ps(z, ptr[block + (int(layout_.min_offset) + 16 * half)]);
}

void WeightGenerator::unpack_k_scales(const Xbyak::RegExp &block, const Xbyak::RegExp &out) {
    if (traits_.sub_scales) {
        for (int half = 0; half < halves(); ++half) {
            load_scales(vec(0), vec(1), block, half);
            vmovups(ptr[out + 32 * half], vec(0));
        }
        for (int at = 0, step = wide() ? 64 : 32; at < 256; at += step) {
            vmovups(vec(at / step % 4), ptr[block + (int(layout_.scales_offset) + at)]);
            vmovups(ptr[out + (64 + at)], vec(at / step % 4));
        }
        return;
    }
    for (int half = 0; half < halves(); ++half) {
        const Xmm d = vec(0), dmin = vec(1);
        load_scales(d, dmin, block, half);
        bit_xor(dmin, dmin, ptr[rip + broadcast_u32(0x80000000u)]);
        vmovups(ptr[out + 32 * half], d);
        vmovups(ptr[out + (64 + 32 * half)], dmin);
    }
    // Bytes i, i+4 and i+8 of a row's scales[12] hold the pairs of groups i and i+4 (docs/formats.md): 64
    // bytes hold four groups of 16 rows.
    const Xmm joined = vec(2), low = vec(3), shared = vec(4);
    for (int at = 0; at < 64; at += wide() ? 64 : 32)
        for (const bool minimum : {false, true}) {
            const Xbyak::RegExp from = block + (int(layout_.scales_offset) + at);
            const Xbyak::RegExp to = out + (128 + (minimum ? 128 : 0) + at);
            vmovups(joined, ptr[from + (minimum ? 64 : 0)]);
            bit_and(low, joined, ptr[rip + broadcast_u8(0x3F)]);
            vmovups(ptr[to], low); // groups 0 .. 3
            vpsrlw(joined, joined, 2);
            bit_and(joined, joined, ptr[rip + broadcast_u8(0x30)]);
            vmovups(shared, ptr[from + 128]);
            if (minimum)
                vpsrlw(shared, shared, 4);
            bit_and(shared, shared, ptr[rip + broadcast_u8(0x0F)]);
            bit_or(joined, joined, shared);
            vmovups(ptr[to + 64], joined); // groups 4 .. 7
        }
}

void WeightGenerator::load_k_scales(const Xmm &s, const Xmm &z, const Xbyak::RegExp &out,
                                    const Xbyak::RegExp &group, int half) {
    if (traits_.sub_scales) {
        vmovups(s, ptr[out + 32 * half]);
        return;
    }
    vpmovzxbd(s, ptr[group + (128 + 8 * half)]);
    vpmovzxbd(z, ptr[group + (256 + 8 * half)]);
    vcvtdq2ps(s, s);
    vcvtdq2ps(z, z);
    vmulps(s, s, ptr[out + 32 * half]);
    vmulps(z, z, ptr[out + (64 + 32 * half)]);
}

void WeightGenerator::load_sub_scales(const Xmm &to, const Xbyak::RegExp &group, int part, int half) {
    vpmovsxbd(to, ptr[group + (64 + 16 * part + 8 * half)]);
    vcvtdq2ps(to, to);
}

// Bytes of ymm only: the dot instructions of zmm need no words.
void WeightGenerator::load_sub_scale_words(const Xmm &to, const Xbyak::RegExp &group, int part, int half) {
    uint8_t upper[64]; // byte r of eight to the upper bytes of both words of dword r
    for (int i = 0; i < 64; ++i)
        upper[i] = uint8_t(i % 2 == 0 ? 0x80 : i / 4 % 8);
    vpbroadcastq(to, ptr[group + (64 + 16 * part + 8 * half)]);
    vpshufb(to, to, ptr[rip + constant(upper)]);
    vpsraw(to, to, 8);
}

} // namespace nybl::cpu::jit
