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
        for (size_t i = 0; i < kSize; ++i)
            group->code[i] = load<int8_t>(src + kCodes + i);
    }

    static bool encode(nybl_level, const float *x, const float *, uint8_t *dst) {
        int8_t q[kSize];
        if (!store_f16(dst, quantize_int8(x, q)))
            return false;
        std::memcpy(dst + kCodes, q, sizeof q);
        return true;
    }
};

} // namespace

const Format kFormatQ8_0 = weight_format<BlockQ8_0>(NYBL_Q8_0, "Q8_0", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
