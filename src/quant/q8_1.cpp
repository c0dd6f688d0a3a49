// Q8_1: 32 activations, d * q, with d * sum(q) beside them for the formats that have a minimum.
#include "quant/block_format.h"
#include "quant/plain.h"

namespace nybl::quant {
namespace {

struct BlockQ8_1 {
    static constexpr uint32_t kSize = 32, kBytes = 36, kSum = 2, kCodes = 4;
    // The sum may overflow f16 for legal activations; whoever uses it recomputes it then.
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void dequantize(const uint8_t *src, float *dst) {
        const float d = load_f16(src);
        for (size_t i = 0; i < kSize; ++i)
            dst[i] = d * static_cast<float>(load<int8_t>(src + kCodes + i));
    }

    static bool fits(const float *x) { return scale_fits(x, kSize, 127); }

    static void encode(const float *x, uint8_t *dst) {
        int8_t q[kSize];
        const float d = quantize_int8(x, q);
        store(dst, f32_to_f16(d));
        int sum = 0;
        for (int8_t code : q)
            sum += code;
        store(dst + kSum, f32_to_f16(d * static_cast<float>(sum)));
        std::memcpy(dst + kCodes, q, sizeof q);
    }
};

} // namespace

const Format kFormatQ8_1 = activation_format<BlockQ8_1>(NYBL_Q8_1, "Q8_1");

} // namespace nybl::quant
