// Q8_K: 256 activations, d * q with an f32 scale, and the sums of every 16 codes.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ8_K {
    static constexpr uint32_t kSize = 256, kBytes = 292, kCodes = 4, kSums = 260;
    static constexpr ScaleField kFields[] = {{0, true, "scale d"}};

    static void dequantize(const uint8_t *src, float *dst) {
        const float d = load<float>(src);
        for (size_t i = 0; i < kSize; ++i)
            dst[i] = d * static_cast<float>(load<int8_t>(src + kCodes + i));
    }

    static bool fits(const float *) { return true; } // its scale is f32

    static void encode(const float *x, uint8_t *dst) {
        const float r = -127.0f / extreme(x, kSize);
        std::memset(dst, 0, kBytes);
        if (!f32_is_finite(r)) // all zero, or too small to scale
            return;
        store(dst, 1.0f / r);
        int16_t sums[kSize / 16] = {};
        for (size_t i = 0; i < kSize; ++i) {
            const int8_t q = static_cast<int8_t>(std::min(127, round_half_even(x[i] * r)));
            store(dst + kCodes + i, q);
            sums[i / 16] = static_cast<int16_t>(sums[i / 16] + q);
        }
        std::memcpy(dst + kSums, sums, sizeof sums);
    }
};

} // namespace

const Format kFormatQ8_K = activation_format<BlockQ8_K>(NYBL_Q8_K, "Q8_K");

} // namespace nybl::quant
