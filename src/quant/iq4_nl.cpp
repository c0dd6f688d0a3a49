// IQ4_NL: 32 elements, d * lut[q], 4-bit codes into a table of sixteen uneven values.
#include "quant/block_format.h"
#include "quant/scale_search.h"

#include <array>

namespace nybl::quant {
namespace {

constexpr int8_t kLut[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The nearest entry for v in steps of a half, from -128 up: the midpoints between entries are whole halves.
constexpr std::array<uint8_t, 512> kNearest = [] {
    std::array<uint8_t, 512> table{};
    uint8_t code = 0;
    for (int i = 0; i < 512; ++i) {
        while (code < 15 && i - 256 >= kLut[code] + kLut[code + 1])
            ++code;
        table[static_cast<size_t>(i)] = code;
    }
    return table;
}();

struct LutCodebook {
    static constexpr float kFirst = kLut[0], kLast = kLut[15];
    static IntLanes halves(Lanes v) noexcept { return to_int(clamp(v, kFirst, kLast) * 2.0f + 256.0f); }
    static Lanes nearest(Lanes v) noexcept {
        const IntLanes h = halves(v);
        return Lanes{value(h[0]), value(h[1]), value(h[2]), value(h[3])};
    }
    static uint8_t code(float v) noexcept { return kNearest[static_cast<size_t>(halves(splat(v))[0])]; }

  private:
    static float value(int32_t half) noexcept { return kLut[kNearest[static_cast<size_t>(half)]]; }
};

struct BlockIQ4_NL {
    static constexpr uint32_t kSize = 32, kBytes = 18, kCodes = 2;
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}};

    static void decode(const uint8_t *src, WeightGroup *group) {
        group->scale = load_f16(src);
        group->min = 0;
        unpack_nibbles<16>(src + kCodes, group->code, group->code + 16);
        for (int16_t &code : group->code)
            code = kLut[code];
    }

    static bool encode(nybl_level level, const float *x, const float *importance, uint8_t *dst) {
        uint8_t codes[kSize];
        if (!encode_scale_searched<LutCodebook>(x, importance, level, codes, dst))
            return false;
        pack_nibbles<16>(codes, codes + 16, dst + kCodes);
        return true;
    }
};

} // namespace

const Format kFormatIQ4_NL = weight_format<BlockIQ4_NL>(NYBL_IQ4_NL, "IQ4_NL", 32, false, NYBL_Q8_0);

} // namespace nybl::quant
