// The one table of block formats: layout, codec, validator and decoded view of each.
// Facts about the bytes: docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::quant {

constexpr size_t kGroup = 32; // elements that share one activation scale, in every format

// One group of 32 weights as the numeric contract sees it (docs/numerics.md):
// w[i] = scale * code[i] + min. Q6_K folds its two 8-bit sub-group scales into the codes (exact in int16).
struct WeightGroup {
    int16_t code[kGroup];
    float scale;
    float min; // 0 for formats without a minimum; -dmin*mn (rounded to f32) for the K formats
};

constexpr size_t kMaxBlock = 256, kMinGroup = 16; // elements

// The same block with each scale beside the codes that it alone scales, `group_size` of them:
// w[i] = scale * code[i] + min.
struct AffineBlock {
    int8_t code[kMaxBlock];
    float scale[kMaxBlock / kMinGroup], min[kMaxBlock / kMinGroup];
};

struct BlockKernels;

struct Format {
    nybl_format id;
    const char *name;
    uint32_t block_size;  // elements in a block
    uint32_t block_bytes; // bytes in a block
    uint32_t group_size;  // elements that share a weight scale
    bool has_min;
    bool is_weight;           // false for activation blocks (Q8_1, Q8_K)
    nybl_format vec_dot_type; // activation block format of the block-level dot product

    // All pointers may be unaligned; `blocks` counts blocks. None allocates or fails on legal blocks.
    void (*dequantize)(const uint8_t *src, float *dst, size_t blocks);
    // Index of the first invalid block (non-finite scale or minimum), or `blocks` if all are valid;
    // *field names the offending field ("scale d", ...).
    size_t (*find_invalid)(const uint8_t *src, size_t blocks, const char **field);
    // Whether scale and minimum of a block of finite elements fit the format.
    bool (*fits)(const float *src);
    // Encodes finite input that fits; importance may be NULL. The bytes do not depend on the kernels.
    void (*quantize)(const BlockKernels &kernels, nybl_level level, const float *src, const float *importance,
                     uint8_t *dst, size_t blocks);
    // The block_size/32 groups of one block; NULL for activation formats.
    void (*decode_groups)(const uint8_t *block, WeightGroup *groups);
    void (*decode_affine)(const uint8_t *block, AffineBlock *affine) = nullptr; // NULL alike

    // Of an f32 behind the blocks of a row, by which its values are multiplied; 0: none. Decoders of blocks
    // leave it out, and so do kernels until their sums are complete; `quantize` takes whole rows and writes
    // it, `find_invalid` takes whole rows and reads it.
    uint32_t row_factor_bytes = 0;
};

// A row without blocks has no factor either.
constexpr size_t row_size(const Format &format, size_t blocks) noexcept {
    return blocks == 0 ? 0 : blocks * format.block_bytes + format.row_factor_bytes;
}

// NULL for a number that is no block format of this build (F32, F16 and BF16 are no block formats).
const Format *find_format(nybl_format id) noexcept;
// As find_format, with a status and a sentence for unknown numbers (INVALID_ARGUMENT) and for formats that
// the library knows by name but has no codec for (UNSUPPORTED).
nybl_status get_format(nybl_format id, const Format **format) noexcept;

} // namespace nybl::quant
