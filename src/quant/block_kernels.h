// The inner loops of encoders and decoders, compiled once for every machine and once for AVX2: same bytes.
//
// Encoders take up to eight blocks of 32 (or one super-block) of a row at a time: elements and importance
// (NULL: none) in row order, codes out in row order, one byte each, counted from the smallest code; f16
// fields as bits. What they are given fits the format (codec.h checks).
#pragma once

#include "quant/k_scales.h"

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::quant {

constexpr size_t kBatch = 8, kBatchElements = 256;

struct BatchIn {
    const float *x, *importance;
    size_t blocks; // 1 to 8
};

struct ScaleBatch {
    uint16_t d[kBatch];
    uint8_t codes[kBatchElements];
};
struct AffineBatch {
    uint16_t d[kBatch], m[kBatch];
    uint8_t codes[kBatchElements];
};
struct KBatch {
    uint16_t d, dmin;
    KScales scales;
    uint8_t codes[kBatchElements];
};
struct StepBatch {
    int8_t steps[kBatch];
    uint8_t codes[kBatchElements];
};
struct Q6Batch {
    uint16_t d;
    int8_t scales[16];
    uint8_t codes[kBatchElements];
};

struct ScaleKernels {
    void (*search)(const BatchIn &, nybl_level, ScaleBatch *);
    void (*plain)(const BatchIn &, ScaleBatch *); // NULL: the format has no plain encoder
};
struct AffineKernels {
    void (*search)(const BatchIn &, nybl_level, AffineBatch *);
    void (*plain)(const BatchIn &, AffineBatch *);
};

struct RowKernels {
    // The best scales, one a block, not rounded.
    void (*search)(const BatchIn &, nybl_level, float *scales);
    // Scales that are integers (at most 127) times `factor`, near `wanted`, which counts in such steps.
    void (*choose)(const BatchIn &, float factor, const float *wanted, int reach, StepBatch *);
};

using DequantizeFn = void (*)(const uint8_t *src, float *dst, size_t blocks);

struct BlockKernels {
    ScaleKernels q4_0, q5_0, q8_0, iq4_nl;
    AffineKernels q4_1, q5_1;
    RowKernels iq4_nl_row;
    void (*search_q4_k)(const BatchIn &, nybl_level, KBatch *);
    void (*search_q5_k)(const BatchIn &, nybl_level, KBatch *);
    void (*search_q6_k)(const BatchIn &, nybl_level, Q6Batch *);
    // A quicker decoder than the format's own, of whole rows, whose factor is applied. NULL, or NULL from it:
    // there is none.
    DequantizeFn (*find_dequantize)(nybl_format id) noexcept;
};

// Of the machine's instruction set; NYBL_ISA_SCALAR: those for every machine.
const BlockKernels &block_kernels(nybl_isa isa) noexcept;

// NULL where this build has none.
const BlockKernels *avx2_block_kernels() noexcept;

} // namespace nybl::quant
