// Q6_K: super-blocks of 256, sixteen groups of 16 with 8-bit scales, d * scale * (q - 32), 6-bit codes.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

constexpr size_t kSubGroup = 16;

struct BlockQ6_K {
    static constexpr uint32_t kSize = 256, kBytes = 210, kHigh = 128, kScales = 192, kScale = 208;
    static constexpr ScaleField kFields[] = {{kScale, false, "scale d"}};

    // q - 32 of all elements. Each half of 128 is four runs of 32: low and high nibbles of two runs of 32
    // bytes, and two bits each of one run of high bits.
    static void unpack_codes(const uint8_t *src, int16_t *codes) {
        for (size_t half = 0; half < 2; ++half)
            for (size_t run = 0; run < 4; ++run)
                for (size_t l = 0; l < 32; ++l) {
                    const int low = src[64 * half + 32 * (run & 1) + l] >> (run < 2 ? 0 : 4) & 15;
                    const int high = src[kHigh + 32 * half + l] >> (2 * run) & 3;
                    codes[128 * half + 32 * run + l] = static_cast<int16_t>((low | high << 4) - 32);
                }
    }

    static void pack_codes(const uint8_t *codes, uint8_t *dst) {
        std::memset(dst, 0, kScales);
        for (size_t half = 0; half < 2; ++half)
            for (size_t run = 0; run < 4; ++run)
                for (size_t l = 0; l < 32; ++l) {
                    const int code = codes[128 * half + 32 * run + l];
                    uint8_t &low = dst[64 * half + 32 * (run & 1) + l], &high = dst[kHigh + 32 * half + l];
                    low = static_cast<uint8_t>(low | (code & 15) << (run < 2 ? 0 : 4));
                    high = static_cast<uint8_t>(high | (code >> 4) << (2 * run));
                }
    }

    static void decode(const uint8_t *src, WeightGroup *groups) {
        int16_t codes[kSize];
        unpack_codes(src, codes);
        for (size_t e = 0; e < kSize; ++e)
            groups[e / kGroup].code[e % kGroup] =
                static_cast<int16_t>(load<int8_t>(src + kScales + e / kSubGroup) * codes[e]);
        for (size_t g = 0; g < kSize / kGroup; ++g) {
            groups[g].scale = load_f16(src + kScale);
            groups[g].min = 0;
        }
    }

    static void decode_affine(const uint8_t *src, AffineBlock *affine) {
        int16_t codes[kSize];
        unpack_codes(src, codes);
        for (size_t e = 0; e < kSize; ++e)
            affine->code[e] = static_cast<int8_t>(codes[e]);
        const float d = load_f16(src + kScale);
        for (size_t g = 0; g < kSize / kSubGroup; ++g) {
            affine->scale[g] = d * static_cast<float>(load<int8_t>(src + kScales + g));
            affine->min[g] = 0;
        }
    }

    // (d*scale)*code, not d*(scale*code): the same value, but the sign of a zero differs.
    static void dequantize(const uint8_t *src, float *dst) {
        AffineBlock affine;
        decode_affine(src, &affine);
        for (size_t e = 0; e < kSize; ++e)
            dst[e] = affine.scale[e / kSubGroup] * static_cast<float>(affine.code[e]);
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 128 * 32); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        Q6Batch batch;
        kernels.search_q6_k(in, level, &batch);
        pack_codes(batch.codes, dst);
        std::memcpy(dst + kScales, batch.scales, sizeof batch.scales);
        store(dst + kScale, batch.d);
    }
};

} // namespace

const Format kFormatQ6_K = weight_format<BlockQ6_K>(NYBL_Q6_K, "Q6_K", 16, false, NYBL_Q8_K);

} // namespace nybl::quant
