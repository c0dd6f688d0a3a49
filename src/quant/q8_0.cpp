// Q8_0: 32 elements, d * q, 8-bit codes. A weight format, and the activation block of the formats without a
// minimum.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ8_0 {
    static constexpr uint32_t kSize = 32, kBytes = 34, kCodes = 2;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = 0;
        for (size_t i = 0; i < kSize; ++i) {
            const int8_t code = load<int8_t>(src + kCodes + i);
            group->code[i] = code;
        }
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 127); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        ScaleBatch batch;
        encode_scales(kernels.q8_0, level, in, &batch);
        for (size_t b = 0; b < in.blocks; ++b, dst += kBytes) {
            store(dst, batch.d[b]);
            for (size_t i = 0; i < kSize; ++i)
                dst[kCodes + i] = batch.codes[kSize * b + i] ^ 0x80; // counted from -128
        }
    }
};

} // namespace

const Format kFormatQ8_0 = weight_format<BlockQ8_0>(NYBL_Q8_0, "Q8_0", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
