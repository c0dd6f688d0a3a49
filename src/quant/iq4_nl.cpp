// IQ4_NL: 32 elements, d * lut[q], 4-bit codes into a table of sixteen uneven values.
#include "quant/block_format.h"
#include "quant/iq4_nl_table.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockIQ4_NL {
    static constexpr uint32_t kSize = 32, kBytes = 18, kCodes = 2;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = 0;
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
        for (int16_t &code : group->code)
            code = kIq4NlTable[code];
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 127); }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        ScaleBatch batch;
        encode_scales(kernels.iq4_nl, level, in, &batch);
        for (size_t b = 0; b < in.blocks; ++b, dst += kBytes) {
            store(dst, batch.d[b]);
            pack_nibbles<16>(batch.codes + kSize * b, batch.codes + kSize * b + 16, dst + kCodes);
        }
    }
};

} // namespace

const Format kFormatIQ4_NL = weight_format<BlockIQ4_NL>(NYBL_IQ4_NL, "IQ4_NL", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
