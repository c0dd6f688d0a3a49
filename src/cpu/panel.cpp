// Packing original rows into 16-row panels and back: pure byte moves, so that nothing is lost.
#include "cpu/panel.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace nybl::cpu {
namespace {

constexpr uint32_t kNibbleBytes = 256; // nibbles of one group: 16 rows x 16 bytes
constexpr uint32_t kHighBytes = 64;    // fifth bits of one group: 16 rows x 4 bytes

constexpr PanelLayout kLayouts[] = {
    // format, block_k, block_bytes, min, scales, quants, group_bytes, high_bytes
    {NYBL_Q4_0, 32, 32 + 256, 0, 0, 32, kNibbleBytes, 0},
    {NYBL_Q4_1, 32, 64 + 256, 32, 0, 64, kNibbleBytes, 0},
    {NYBL_Q5_1, 32, 64 + 320, 32, 0, 64, kHighBytes + kNibbleBytes, kHighBytes},
    {NYBL_IQ4_NL, 32, 32 + 256, 0, 0, 32, kNibbleBytes, 0},
    {NYBL_Q4_K, 256, 256 + 8 * 256, 32, 64, 256, kNibbleBytes, 0},
    {NYBL_Q5_K, 256, 256 + 8 * 320, 32, 64, 256, kHighBytes + kNibbleBytes, kHighBytes},
};

// One row's group in the order of a panel: 16 bytes of nibbles (low: elements 0..15, high: 16..31) and, for
// 5-bit formats, the bits 4 of element e as bit e of `high`.
struct RowGroup {
    uint8_t low[16];
    uint32_t high;
};

// Where a format keeps a group's nibbles and fifth bits inside an original block.
RowGroup read_group(nybl_format format, const uint8_t *block, size_t group) noexcept {
    RowGroup out{};
    if (format == NYBL_Q4_K || format == NYBL_Q5_K) {
        const uint8_t *qs = block + (format == NYBL_Q4_K ? 16 : 48) + 32 * (group / 2);
        const unsigned shift = group % 2 * 4;
        for (size_t j = 0; j < 16; ++j)
            out.low[j] = uint8_t((qs[j] >> shift & 15) | (qs[j + 16] >> shift & 15) << 4);
        if (format == NYBL_Q5_K)
            for (size_t e = 0; e < 32; ++e)
                out.high |= uint32_t(block[16 + e] >> group & 1) << e;
        return out;
    }
    const size_t header = format == NYBL_Q4_1 || format == NYBL_Q5_1 ? 4 : 2;
    if (format == NYBL_Q5_1)
        std::memcpy(&out.high, block + header, 4);
    std::memcpy(out.low, block + header + (format == NYBL_Q5_1 ? 4 : 0), 16);
    return out;
}

void write_group(nybl_format format, const RowGroup &in, uint8_t *block, size_t group) noexcept {
    if (format == NYBL_Q4_K || format == NYBL_Q5_K) {
        uint8_t *qs = block + (format == NYBL_Q4_K ? 16 : 48) + 32 * (group / 2);
        const unsigned shift = group % 2 * 4;
        const uint8_t keep = uint8_t(0xF0 >> shift);
        for (size_t j = 0; j < 16; ++j) {
            qs[j] = uint8_t((qs[j] & keep) | (in.low[j] & 15) << shift);
            qs[j + 16] = uint8_t((qs[j + 16] & keep) | (in.low[j] >> 4) << shift);
        }
        if (format == NYBL_Q5_K)
            for (size_t e = 0; e < 32; ++e)
                block[16 + e] = uint8_t((block[16 + e] & ~(1u << group)) | (in.high >> e & 1) << group);
        return;
    }
    const size_t header = format == NYBL_Q4_1 || format == NYBL_Q5_1 ? 4 : 2;
    if (format == NYBL_Q5_1)
        std::memcpy(block + header, &in.high, 4);
    std::memcpy(block + header + (format == NYBL_Q5_1 ? 4 : 0), in.low, 16);
}

// Bit e = 4c+j of a row's fifth bits <-> bit c of byte j, as high[row][j] stores it. Both ways are the same
// transposition of a 4 x 8 bit matrix, read along the other axis.
uint32_t high_to_panel(uint32_t high) noexcept {
    uint32_t out = 0;
    for (unsigned e = 0; e < 32; ++e)
        out |= (high >> e & 1) << (e % 4 * 8 + e / 4);
    return out;
}
uint32_t high_from_panel(uint32_t panel) noexcept {
    uint32_t out = 0;
    for (unsigned e = 0; e < 32; ++e)
        out |= (panel >> (e % 4 * 8 + e / 4) & 1) << e;
    return out;
}

} // namespace

const PanelLayout *find_panel_layout(nybl_format format) noexcept {
    const auto *found = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                     [format](const PanelLayout &layout) { return layout.format == format; });
    return found == std::end(kLayouts) ? nullptr : found;
}

size_t panel_bytes(const PanelLayout &layout, size_t k) noexcept {
    const size_t bytes = k / layout.block_k * layout.block_bytes;
    return (bytes + kPanelAlign - 1) / kPanelAlign * kPanelAlign;
}

void pack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *src, size_t row_stride,
                uint8_t *panel) noexcept {
    const size_t source_bytes = quant::find_format(layout.format)->block_bytes;
    std::memset(panel, 0, panel_bytes(layout, k));
    for (size_t b = 0; b < k / layout.block_k; ++b) {
        uint8_t *out = panel + b * layout.block_bytes;
        for (size_t row = 0; row < rows; ++row) {
            const uint8_t *block = src + row * row_stride + b * source_bytes;
            std::memcpy(out + 2 * row, block, 2);
            if (layout.min_offset)
                std::memcpy(out + layout.min_offset + 2 * row, block + 2, 2);
            if (layout.scales_offset)
                for (size_t i = 0; i < 12; ++i)
                    out[layout.scales_offset + 16 * i + row] = block[4 + i];
            for (size_t g = 0; g < layout.block_k / quant::kGroup; ++g) {
                const RowGroup group = read_group(layout.format, block, g);
                uint8_t *quants = out + layout.quants_offset + g * layout.group_bytes;
                if (layout.high_bytes) {
                    const uint32_t high = high_to_panel(group.high);
                    std::memcpy(quants + 4 * row, &high, 4);
                }
                for (size_t c = 0; c < 4; ++c)
                    std::memcpy(quants + layout.high_bytes + 64 * c + 4 * row, group.low + 4 * c, 4);
            }
        }
    }
}

void unpack_panel(const PanelLayout &layout, size_t k, size_t rows, const uint8_t *panel, uint8_t *dst,
                  size_t row_stride) noexcept {
    const size_t block_bytes = quant::find_format(layout.format)->block_bytes;
    for (size_t b = 0; b < k / layout.block_k; ++b) {
        const uint8_t *in = panel + b * layout.block_bytes;
        for (size_t row = 0; row < rows; ++row) {
            uint8_t *block = dst + row * row_stride + b * block_bytes;
            std::memcpy(block, in + 2 * row, 2);
            if (layout.min_offset)
                std::memcpy(block + 2, in + layout.min_offset + 2 * row, 2);
            if (layout.scales_offset)
                for (size_t i = 0; i < 12; ++i)
                    block[4 + i] = in[layout.scales_offset + 16 * i + row];
            for (size_t g = 0; g < layout.block_k / quant::kGroup; ++g) {
                const uint8_t *quants = in + layout.quants_offset + g * layout.group_bytes;
                RowGroup group{};
                if (layout.high_bytes) {
                    std::memcpy(&group.high, quants + 4 * row, 4);
                    group.high = high_from_panel(group.high);
                }
                for (size_t c = 0; c < 4; ++c)
                    std::memcpy(group.low + 4 * c, quants + layout.high_bytes + 64 * c + 4 * row, 4);
                write_group(layout.format, group, block, g);
            }
        }
    }
}

} // namespace nybl::cpu
