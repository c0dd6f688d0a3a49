// Q5_1: 32 elements, d * q + m, 5-bit codes.
#include "quant/affine_search.h"
#include "quant/block_format.h"

namespace nybl::quant {
namespace {

struct BlockQ5_1 {
    static constexpr uint32_t kSize = 32, kBytes = 24, kMin = 2, kHigh = 4, kCodes = 8;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}, {kMin, false, "minimum m"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = load_f16(src + kMin);
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
        unpack_fifth_bits(load<uint32_t>(src + kHigh), group->code);
    }

    static bool encode(nybl_level level, const float *x, const float *importance, uint8_t *dst) {
        uint8_t codes[kSize];
        const bool fits = search_wanted(level, importance)
                              ? encode_affine_searched<31>(x, importance, level, codes, dst, dst + kMin)
                              : encode_affine_plain(x, 31, codes, dst, dst + kMin);
        if (!fits)
            return false;
        store(dst + kHigh, pack_fifth_bits(codes));
        pack_nibbles<16>(codes, codes + 16, dst + kCodes);
        return true;
    }
};

} // namespace

const Format kFormatQ5_1 = weight_format<BlockQ5_1>(NYBL_Q5_1, "Q5_1", 32, true, NYBL_Q8_1);

} // namespace nybl::quant
