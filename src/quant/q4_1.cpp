// Q4_1: 32 elements, d * q + m, 4-bit codes.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ4_1 {
    static constexpr uint32_t kSize = 32, kBytes = 20, kMin = 2, kCodes = 4;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}, {kMin, false, "minimum m"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = load_f16(src + kMin);
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
    }

    static bool fits(const float *x) { return affine_fits(x, 15); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        AffineBatch batch;
        encode_affine(kernels.q4_1, level, in, &batch);
        for (size_t b = 0; b < in.blocks; ++b, dst += kBytes) {
            const uint8_t *codes = batch.codes + kSize * b;
            store(dst, batch.d[b]);
            store(dst + kMin, batch.m[b]);
            pack_nibbles<16>(codes, codes + 16, dst + kCodes);
        }
    }
};

} // namespace

const Format kFormatQ4_1 = weight_format<BlockQ4_1>(NYBL_Q4_1, "Q4_1", 32, true, NYBL_Q8_1);

} // namespace nybl::quant
