// The packed weight layout: panels of 16 rows, the same bytes on every instruction set.
//
// A panel holds 16 consecutive rows of W for all of K (rows past N are zero). It is a run of panel blocks,
// one per 32 elements of K or per 256 (K formats), and starts on a 64-byte boundary.
//
//   32-element panel block           256-element panel block (K formats)
//   f16 d[16]                        f16 d[16]
//   f16 m[16]     (Q4_1, Q5_1)       f16 dmin[16]         (Q4_K, Q5_K)
//   group quants                     u8  scales[12][16]   byte i of the row's scales at [i][row]; Q6_K: 16
//                                    8 x group quants
//
//   group quants (one 32-group of 16 rows)
//   u8 high[16][4]     (5 bits)      bit c of high[row][j] is bit 4 of element 4c+j, c = 0..7
//   u8 high[2][16][4]  (6 bits)      bits 2c, 2c+1 of high[h][row][j] are bits 4, 5 of element 16h+4c+j, c =
//   0..3 u8 low[4][16][4]   (4 to 6 bits) chunk c, row, j: low nibble element 4c+j, high nibble element
//   16+4c+j i8 code[8][16][4]  (8 bits)      chunk c, row, j: element 4c+j
//
// IQ4_NL_ROW: i8 d[16] in place of f16, and f32 factor[16], of the rows, behind the last panel block.
//
// So that one dword of a chunk is four consecutive elements of one row: the operand of vpmaddubsw, vpdpbusd
// and tdpbusd against a broadcast dword of activations, and an output stays in its lane.
#pragma once

#include "quant/format.h"

namespace nybl::cpu {

constexpr size_t kPanelRows = 16;
constexpr size_t kPanelAlign = 64;

// Where a format's pieces lie in a panel block. Offsets in bytes; 0 bytes of a piece means absent.
struct PanelLayout {
    nybl_format format;
    uint32_t block_k;       // elements of K per panel block: 32 or 256
    uint32_t block_bytes;   // bytes per panel block
    uint32_t min_offset;    // f16 m[16] or dmin[16]; 0: none
    uint32_t scales_offset; // u8 scales[scale_bytes][16]; 0: none
    uint32_t scale_bytes;   // of a row: 12 or 16
    uint32_t quants_offset; // first group
    uint32_t group_bytes;   // bytes per group: high bits (if any), then nibbles or bytes
    uint32_t high_bytes;    // of a group, beside its nibbles
    uint32_t code_bits;     // 4, 5, 6 or 8
    uint32_t d_bytes = 2;   // of a scale at the block's start: f16, or i8 of a row with a factor
    bool row_factors = false;
};

// NULL where a format has no panel layout.
const PanelLayout *find_panel_layout(nybl_format format) noexcept;

// Bytes of one panel of `k` elements (a multiple of block_k), rounded up to kPanelAlign.
size_t panel_bytes(const PanelLayout &layout, size_t k) noexcept;
// Panels for n rows.
constexpr size_t panel_count(size_t n) noexcept {
    return (n + kPanelRows - 1) / kPanelRows;
}

// Packs rows [0, rows) (rows <= 16) of original blocks into one panel; missing rows become zero bytes.
void pack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src, size_t row_stride,
                uint8_t *panel) noexcept;

// Where a panel and a row of k elements keep their f32 factors, in a format with such.
struct FactorPlaces {
    size_t panel, row;
};
FactorPlaces factor_places(const PanelLayout &layout, size_t k) noexcept;

// The last step of pack_panel: the factors of rows that have one.
void pack_row_factors(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src, size_t row_stride,
                      uint8_t *panel) noexcept;
// The inverse: the original bytes of rows [0, rows).
void unpack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *panel, uint8_t *dst,
                  size_t row_stride) noexcept;

} // namespace nybl::cpu
