// Turns the description of one block (a struct with layout constants, decode and encode) into a row of the
// format table, so that a format's file holds only what is its own.
//
//   struct Block {
//       static constexpr uint32_t kSize, kBytes;             elements, bytes
//       static constexpr ScaleField kFields[];               what must be finite
//       static void decode(const uint8_t *, WeightGroup *);  weights only
//       static void decode_affine(const uint8_t *, AffineBlock *); only where groups are not of 32
//       static void dequantize(const uint8_t *, float *);    only where scale*code + min is not the right
//       sequence static bool fits(const float *x);           whether f16 holds the plain scale and minimum
//       static void encode(const BlockKernels &, nybl_level, const BatchIn &, uint8_t *);   weights: 256
//       elements or less static void encode(const float *x, uint8_t *); activations
//   };
#pragma once

#include "quant/block_io.h"
#include "quant/block_kernels.h"
#include "quant/format.h"

#include <algorithm>

namespace nybl::quant {

struct ScaleField {
    uint32_t offset;
    bool is_f32; // else f16
    const char *name;
};

template <class Block>
concept WeightBlock = requires(const uint8_t *src, WeightGroup *groups) {
    Block::decode(src, groups);
};

template <class Block>
concept OwnDequantize = requires(const uint8_t *src, float *dst) {
    Block::dequantize(src, dst);
};

template <class Block>
concept OwnAffine = requires(const uint8_t *src, AffineBlock *affine) {
    Block::decode_affine(src, affine);
};

template <class Block>
void decode_affine_block(const uint8_t *src, AffineBlock *affine) {
    if constexpr (OwnAffine<Block>) {
        Block::decode_affine(src, affine);
    } else {
        WeightGroup groups[Block::kSize / kGroup];
        Block::decode(src, groups);
        for (size_t g = 0; g < Block::kSize / kGroup; ++g) {
            for (size_t i = 0; i < kGroup; ++i)
                affine->code[g * kGroup + i] = static_cast<int8_t>(groups[g].code[i]);
            affine->scale[g] = groups[g].scale;
            affine->min[g] = groups[g].min;
        }
    }
}

template <class Block, bool has_min>
void dequantize_blocks(const uint8_t *src, float *dst, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, src += Block::kBytes, dst += Block::kSize) {
        if constexpr (OwnDequantize<Block>) {
            Block::dequantize(src, dst);
        } else {
            WeightGroup groups[Block::kSize / kGroup];
            Block::decode(src, groups);
            for (size_t g = 0; g < Block::kSize / kGroup; ++g) {
                // A minimum of +0 would turn -0 into +0, so formats without one must not add it.
                for (size_t i = 0; i < kGroup; ++i) {
                    const float product = groups[g].scale * static_cast<float>(groups[g].code[i]);
                    dst[g * kGroup + i] = has_min ? product + groups[g].min : product;
                }
            }
        }
    }
}

template <class Block>
size_t find_invalid_block(const uint8_t *src, size_t blocks, const char **field) {
    for (size_t b = 0; b < blocks; ++b, src += Block::kBytes) {
        for (const ScaleField &f : Block::kFields) {
            const bool finite = f.is_f32 ? f32_is_finite(load<float>(src + f.offset))
                                         : f16_is_finite(load<uint16_t>(src + f.offset));
            if (!finite) {
                *field = f.name;
                return b;
            }
        }
    }
    return blocks;
}

template <class Block>
void quantize_blocks(const BlockKernels &kernels, nybl_level level, const float *src, const float *importance,
                     uint8_t *dst, size_t blocks) {
    if constexpr (WeightBlock<Block>) {
        constexpr size_t kAtOnce = kBatchElements / Block::kSize;
        for (size_t b = 0; b < blocks; b += kAtOnce) {
            const BatchIn in{src + b * Block::kSize, importance ? importance + b * Block::kSize : nullptr,
                             std::min(kAtOnce, blocks - b)};
            Block::encode(kernels, level, in, dst + b * Block::kBytes);
        }
    } else {
        for (size_t b = 0; b < blocks; ++b)
            Block::encode(src + b * Block::kSize, dst + b * Block::kBytes);
    }
}

template <WeightBlock Block>
constexpr Format weight_format(nybl_format id, const char *name, uint32_t group_size, bool has_min,
                               nybl_format vec_dot_type) {
    return {id,
            name,
            Block::kSize,
            Block::kBytes,
            group_size,
            has_min,
            true,
            vec_dot_type,
            has_min ? dequantize_blocks<Block, true> : dequantize_blocks<Block, false>,
            find_invalid_block<Block>,
            Block::fits,
            quantize_blocks<Block>,
            Block::decode,
            decode_affine_block<Block>};
}

// An activation block: no weight groups, and paired with itself.
template <class Block>
constexpr Format activation_format(nybl_format id, const char *name) {
    return {id,
            name,
            Block::kSize,
            Block::kBytes,
            Block::kSize,
            false,
            false,
            id,
            dequantize_blocks<Block, false>,
            find_invalid_block<Block>,
            Block::fits,
            quantize_blocks<Block>,
            nullptr,
            nullptr};
}

// The rows of the table, each defined in the file of its format.
extern const Format kFormatQ4_0, kFormatQ4_1, kFormatQ5_0, kFormatQ5_1, kFormatQ8_0, kFormatQ8_1, kFormatQ4_K,
    kFormatQ5_K, kFormatQ6_K, kFormatQ8_K, kFormatIQ4_NL, kFormatIQ4_NL_ROW;

} // namespace nybl::quant
