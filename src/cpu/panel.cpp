// Packing original rows into 16-row panels and back: pure byte moves, so that nothing is lost.
#include "cpu/panel.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace nybl::cpu {
namespace {

constexpr uint32_t kNibbles = 256; // nibbles of one group: 16 rows x 16 bytes
constexpr uint32_t kBits = 64;     // one bit more of each of its codes: 16 rows x 4 bytes

constexpr PanelLayout kLayouts[] = {
    // format, block_k, block_bytes, min, scales, scale_bytes, quants, group_bytes, high_bytes, code_bits,
    // d_bytes, row_factors
    {NYBL_Q4_0, 32, 32 + 256, 0, 0, 0, 32, kNibbles, 0, 4},
    {NYBL_Q4_1, 32, 64 + 256, 32, 0, 0, 64, kNibbles, 0, 4},
    {NYBL_Q5_0, 32, 32 + 320, 0, 0, 0, 32, kBits + kNibbles, kBits, 5},
    {NYBL_Q5_1, 32, 64 + 320, 32, 0, 0, 64, kBits + kNibbles, kBits, 5},
    {NYBL_Q8_0, 32, 32 + 512, 0, 0, 0, 32, 2 * kNibbles, 0, 8},
    {NYBL_IQ4_NL, 32, 32 + 256, 0, 0, 0, 32, kNibbles, 0, 4},
    {NYBL_IQ4_NL_ROW, 32, 16 + 256, 0, 0, 0, 16, kNibbles, 0, 4, 1, true},
    {NYBL_Q4_K, 256, 256 + 8 * 256, 32, 64, 12, 256, kNibbles, 0, 4},
    {NYBL_Q5_K, 256, 256 + 8 * 320, 32, 64, 12, 256, kBits + kNibbles, kBits, 5},
    {NYBL_Q6_K, 256, 288 + 8 * 384, 0, 32, 16, 288, 2 * kBits + kNibbles, 2 * kBits, 6},
};

// Where some bits of a code lie: from bit `shift` of a byte on.
struct Place {
    size_t byte;
    unsigned shift;
};
// The places of a code's lowest bits (a nibble, or all eight) and of those above the nibble.
struct CodePlaces {
    Place low, high;
};

// Element e of group g in an original block (docs/formats.md).
CodePlaces original_places(nybl_format format, size_t g, size_t e) noexcept {
    const auto nibble_shift = unsigned(e / 16 * 4);
    switch (format) {
    case NYBL_Q8_0:
        return {{2 + e, 0}, {}};
    case NYBL_Q4_1:
        return {{4 + e % 16, nibble_shift}, {}};
    case NYBL_Q5_0:
        return {{6 + e % 16, nibble_shift}, {2 + e / 8, unsigned(e % 8)}};
    case NYBL_Q5_1:
        return {{8 + e % 16, nibble_shift}, {4 + e / 8, unsigned(e % 8)}};
    case NYBL_Q4_K:
        return {{16 + 32 * (g / 2) + e, unsigned(g % 2 * 4)}, {}};
    case NYBL_Q5_K:
        return {{48 + 32 * (g / 2) + e, unsigned(g % 2 * 4)}, {16 + e, unsigned(g)}};
    case NYBL_Q6_K:
        return {{64 * (g / 4) + 32 * (g % 2) + e, unsigned(g % 4 / 2 * 4)},
                {128 + 32 * (g / 4) + e, unsigned(g % 4 * 2)}};
    case NYBL_IQ4_NL_ROW:
        return {{1 + e % 16, nibble_shift}, {}};
    default: // Q4_0, IQ4_NL
        return {{2 + e % 16, nibble_shift}, {}};
    }
}

// Element e of a row in the quants of a panel's group.
CodePlaces panel_places(const PanelLayout &layout, size_t row, size_t e) noexcept {
    const size_t at = 4 * row + e % 4;
    if (layout.code_bits == 8)
        return {{64 * (e / 4) + at, 0}, {}};
    const Place low{layout.high_bytes + 64 * (e % 16 / 4) + at, unsigned(e / 16 * 4)};
    return layout.code_bits == 5 ? CodePlaces{low, {at, unsigned(e / 4)}}
                                 : CodePlaces{low, {64 * (e / 16) + at, unsigned(e % 16 / 4 * 2)}};
}

unsigned low_bits(const PanelLayout &layout) noexcept {
    return layout.code_bits == 8 ? 8 : 4;
}

// Adds `bits` bits of a code to a place that holds zeros.
void move_bits(const uint8_t *src, Place from, uint8_t *dst, Place to, unsigned bits) noexcept {
    const unsigned value = src[from.byte] >> from.shift & ((1u << bits) - 1);
    dst[to.byte] = uint8_t(dst[to.byte] | value << to.shift);
}

// Where an original block keeps its scale and its scales (its minimum lies behind the scale).
struct HeaderPlaces {
    size_t d, scales;
};
HeaderPlaces header_places(nybl_format format) noexcept {
    return format == NYBL_Q6_K ? HeaderPlaces{208, 192} : HeaderPlaces{0, 4};
}

} // namespace

const PanelLayout *find_panel_layout(nybl_format format) noexcept {
    const auto *found = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                     [format](const PanelLayout &layout) { return layout.format == format; });
    return found == std::end(kLayouts) ? nullptr : found;
}

FactorPlaces factor_places(const PanelLayout &layout, size_t k) noexcept {
    const size_t blocks = k / layout.block_k;
    return {blocks * layout.block_bytes, blocks * quant::find_format(layout.format)->block_bytes};
}

size_t panel_bytes(const PanelLayout &layout, size_t k) noexcept {
    const size_t factors = layout.row_factors && k != 0 ? kPanelRows * sizeof(float) : 0;
    const size_t bytes = k / layout.block_k * layout.block_bytes + factors;
    return (bytes + kPanelAlign - 1) / kPanelAlign * kPanelAlign;
}

void pack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src, size_t row_stride,
                uint8_t *panel) noexcept {
    const size_t source_bytes = quant::find_format(layout.format)->block_bytes;
    const HeaderPlaces header = header_places(layout.format);
    std::memset(panel, 0, panel_bytes(layout, k));
    for (size_t b = 0; b < k / layout.block_k; ++b) {
        uint8_t *out = panel + b * layout.block_bytes;
        for (size_t row = 0; row < rows; ++row) {
            const uint8_t *block = src + row * row_stride + b * source_bytes;
            std::memcpy(out + layout.d_bytes * row, block + header.d, layout.d_bytes);
            if (layout.min_offset)
                std::memcpy(out + layout.min_offset + 2 * row, block + header.d + 2, 2);
            for (size_t i = 0; i < layout.scale_bytes; ++i)
                out[layout.scales_offset + 16 * i + row] = block[header.scales + i];
            for (size_t g = 0; g < layout.block_k / quant::kGroup; ++g)
                for (size_t e = 0; e < quant::kGroup; ++e) {
                    const CodePlaces from = original_places(layout.format, g, e);
                    const CodePlaces to = panel_places(layout, row, e);
                    uint8_t *quants = out + layout.quants_offset + g * layout.group_bytes;
                    move_bits(block, from.low, quants, to.low, low_bits(layout));
                    move_bits(block, from.high, quants, to.high, layout.code_bits - low_bits(layout));
                }
        }
    }
    pack_row_factors(layout, k, rows, src, row_stride, panel);
}

void pack_row_factors(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src, size_t row_stride,
                      uint8_t *panel) noexcept {
    if (!layout.row_factors || k == 0)
        return;
    const FactorPlaces at = factor_places(layout, k);
    for (size_t row = 0; row < rows; ++row)
        std::memcpy(panel + at.panel + sizeof(float) * row, src + row * row_stride + at.row, sizeof(float));
}

void unpack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *panel, uint8_t *dst,
                  size_t row_stride) noexcept {
    const size_t block_bytes = quant::find_format(layout.format)->block_bytes;
    const HeaderPlaces header = header_places(layout.format);
    for (size_t b = 0; b < k / layout.block_k; ++b) {
        const uint8_t *in = panel + b * layout.block_bytes;
        for (size_t row = 0; row < rows; ++row) {
            uint8_t *block = dst + row * row_stride + b * block_bytes;
            std::memset(block, 0, block_bytes);
            std::memcpy(block + header.d, in + layout.d_bytes * row, layout.d_bytes);
            if (layout.min_offset)
                std::memcpy(block + header.d + 2, in + layout.min_offset + 2 * row, 2);
            for (size_t i = 0; i < layout.scale_bytes; ++i)
                block[header.scales + i] = in[layout.scales_offset + 16 * i + row];
            for (size_t g = 0; g < layout.block_k / quant::kGroup; ++g)
                for (size_t e = 0; e < quant::kGroup; ++e) {
                    const CodePlaces from = panel_places(layout, row, e);
                    const CodePlaces to = original_places(layout.format, g, e);
                    const uint8_t *quants = in + layout.quants_offset + g * layout.group_bytes;
                    move_bits(quants, from.low, block, to.low, low_bits(layout));
                    move_bits(quants, from.high, block, to.high, layout.code_bits - low_bits(layout));
                }
        }
    }
    if (!layout.row_factors || k == 0)
        return;
    const FactorPlaces at = factor_places(layout, k);
    for (size_t row = 0; row < rows; ++row)
        std::memcpy(dst + row * row_stride + at.row, panel + at.panel + sizeof(float) * row, sizeof(float));
}

} // namespace nybl::cpu
