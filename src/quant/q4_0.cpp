// Q4_0: 32 elements, d * (q - 8), 4-bit codes.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ4_0 {
    static constexpr uint32_t kSize = 32, kBytes = 18, kCodes = 2;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = 0;
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
        for (int16_t &code : group->code)
            code = static_cast<int16_t>(code - 8);
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 8); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        ScaleBatch batch;
        encode_scales(kernels.q4_0, level, in, &batch);
        for (size_t b = 0; b < in.blocks; ++b, dst += kBytes) {
            store(dst, batch.d[b]);
            pack_nibbles<16>(batch.codes + kSize * b, batch.codes + kSize * b + 16, dst + kCodes);
        }
    }
};

} // namespace

const Format kFormatQ4_0 = weight_format<BlockQ4_0>(NYBL_Q4_0, "Q4_0", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
