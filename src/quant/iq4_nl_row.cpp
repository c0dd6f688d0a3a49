// IQ4_NL with a scale of 8 bits per block and one f32 per row: factor * (scale * table[q]).
#include "quant/block_format.h"
#include "quant/iq4_nl_table.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

constexpr uint32_t kSize = 32, kBytes = 17, kCodes = 1;
constexpr float kLargestProduct = 128 * 127; // of a scale and a code

int8_t step_at(const uint8_t *block) noexcept {
    return load<int8_t>(block);
}

void decode(const uint8_t *block, WeightGroup *group) {
    group->scale = static_cast<float>(step_at(block));
    group->min = 0;
    unpack_nibbles<16>(block + kCodes, group->code, group->code + 16);
    for (int16_t &code : group->code)
        code = kIq4NlTable[code];
}

void dequantize(const uint8_t *src, float *dst, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b, src += kBytes, dst += kSize) {
        WeightGroup group;
        decode(src, &group);
        for (size_t i = 0; i < kSize; ++i)
            dst[i] = group.scale * static_cast<float>(group.code[i]); // exact
    }
}

// A row has one field that may be bad, which counts as its first block's: its largest values must be finite.
size_t find_invalid(const uint8_t *row, size_t blocks, const char **field) {
    if (blocks == 0 || f32_is_finite(load<float>(row + blocks * kBytes) * kLargestProduct))
        return blocks;
    *field = "the largest product of the row's factor";
    return 0;
}

// What IQ4_NL takes, though a factor could be larger: the sums of squares stay within f32.
bool fits(const float *x) {
    return scale_fits(x, kSize, 127);
}

// The factor that fits the integers and codes of a row best, as a fraction.
struct FactorFit {
    double product = 0, square = 0;

    void add(const uint8_t *block, const float *x, const float *importance) noexcept {
        WeightGroup group;
        decode(block, &group);
        for (size_t i = 0; i < kSize; ++i) {
            const double value = static_cast<double>(group.code[i]) * step_at(block),
                         weighted = importance ? value * static_cast<double>(importance[i]) : value;
            product += weighted * static_cast<double>(x[i]);
            square += weighted * value;
        }
    }
    float or_else(float factor) const noexcept {
        const auto fitted = static_cast<float>(product / square);
        return square > 0 && fitted > 0 && f32_is_finite(fitted) ? fitted : factor;
    }
};

// One row. Integers and codes under the factor, and the factor for these, take turns, none of which adds to
// the error. Turns past the default's look further for integers.
void quantize(const BlockKernels &kernels, nybl_level level, const float *x, const float *importance,
              uint8_t *row, size_t blocks) {
    if (blocks == 0)
        return;
    const auto batch_at = [&](size_t b) {
        return BatchIn{x + b * kSize, importance ? importance + b * kSize : nullptr,
                       std::min(kBatch, blocks - b)};
    };
    float largest = 0;
    for (size_t b = 0; b < blocks; b += kBatch) {
        const BatchIn in = batch_at(b);
        float scales[kBatch];
        kernels.iq4_nl_row.search(in, level, scales);
        for (size_t i = 0; i < in.blocks; ++i) {
            store(row + (b + i) * kBytes, scales[i]); // until the block is written
            largest = std::max(largest, magnitude(scales[i]));
        }
    }
    constexpr int kDefaultTurns = 2;
    const int turns = level == NYBL_LEVEL_BEST ? 6 : level == NYBL_LEVEL_DEFAULT ? kDefaultTurns : 1;
    float factor = largest / 127.0f;
    for (int turn = 0; turn < turns; ++turn) {
        const int reach = turn < kDefaultTurns ? 1 : 3;
        const float inverse = reciprocal_or_zero(factor);
        FactorFit fit;
        for (size_t b = 0; b < blocks; b += kBatch) {
            const BatchIn in = batch_at(b);
            uint8_t *out = row + b * kBytes;
            float wanted[kBatch] = {};
            for (size_t i = 0; i < in.blocks; ++i)
                wanted[i] = turn == 0 ? load<float>(out + i * kBytes) * inverse
                                      : static_cast<float>(step_at(out + i * kBytes));
            StepBatch batch;
            kernels.iq4_nl_row.choose(in, factor, wanted, reach, &batch);
            for (size_t i = 0; i < in.blocks; ++i, out += kBytes) {
                const uint8_t *codes = batch.codes + kSize * i;
                store(out, batch.steps[i]);
                pack_nibbles<16>(codes, codes + 16, out + kCodes);
                fit.add(out, in.x + kSize * i, in.importance ? in.importance + kSize * i : nullptr);
            }
        }
        factor = fit.or_else(factor);
    }
    store(row + blocks * kBytes, factor);
}

} // namespace

const Format kFormatIQ4_NL_ROW = {.id = NYBL_IQ4_NL_ROW,
                                  .name = "IQ4_NL_ROW",
                                  .block_size = kSize,
                                  .block_bytes = kBytes,
                                  .group_size = kSize,
                                  .has_min = false,
                                  .is_weight = true,
                                  .vec_dot_type = NYBL_Q8_0,
                                  .dequantize = dequantize,
                                  .find_invalid = find_invalid,
                                  .fits = fits,
                                  .quantize = quantize,
                                  .decode_groups = decode,
                                  .row_factor_bytes = sizeof(float)};

} // namespace nybl::quant
