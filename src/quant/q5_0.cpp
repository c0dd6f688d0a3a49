// Q5_0: 32 elements, d * (q - 16), 5-bit codes.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ5_0 {
    static constexpr uint32_t kSize = 32, kBytes = 22, kHigh = 2, kCodes = 6;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = 0;
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
        unpack_fifth_bits(load<uint32_t>(src + kHigh), group->code);
        for (int16_t &code : group->code)
            code = static_cast<int16_t>(code - 16);
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 16); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        ScaleBatch batch;
        encode_scales(kernels.q5_0, level, in, &batch);
        for (size_t b = 0; b < in.blocks; ++b, dst += kBytes) {
            const uint8_t *codes = batch.codes + kSize * b;
            store(dst, batch.d[b]);
            store(dst + kHigh, pack_fifth_bits(codes));
            pack_nibbles<16>(codes, codes + 16, dst + kCodes);
        }
    }
};

} // namespace

const Format kFormatQ5_0 = weight_format<BlockQ5_0>(NYBL_Q5_0, "Q5_0", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
