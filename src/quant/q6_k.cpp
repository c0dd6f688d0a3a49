// Q6_K: super-blocks of 256, sixteen groups of 16 with 8-bit scales, d * scale * (q - 32), 6-bit codes.
#include "quant/block_format.h"
#include "quant/scale_search.h"

namespace nybl::quant {
namespace {

constexpr size_t kSubGroups = 16, kSubGroup = 16;
using Codebook = LinearCodebook<32>;

struct BlockQ6_K {
    static constexpr uint32_t kSize = 256, kBytes = 210, kHigh = 128, kScales = 192, kScale = 208;
    static constexpr ScaleField kFields[] = {{kScale, false, "scale d"}};

    // q - 32 of all elements. Each half of 128 is four runs of 32: low and high nibbles of two runs of 32
    // bytes, and two bits each of one run of high bits.
    static void unpack_codes(const uint8_t *src, int16_t *codes) {
        for (size_t half = 0; half < 2; ++half)
            for (size_t run = 0; run < 4; ++run)
                for (size_t l = 0; l < 32; ++l) {
                    const int low = src[64 * half + 32 * (run & 1) + l] >> (run < 2 ? 0 : 4) & 15;
                    const int high = src[kHigh + 32 * half + l] >> (2 * run) & 3;
                    codes[128 * half + 32 * run + l] = static_cast<int16_t>((low | high << 4) - 32);
                }
    }

    static void pack_codes(const uint8_t *codes, uint8_t *dst) {
        std::memset(dst, 0, kScales);
        for (size_t half = 0; half < 2; ++half)
            for (size_t run = 0; run < 4; ++run)
                for (size_t l = 0; l < 32; ++l) {
                    const int code = codes[128 * half + 32 * run + l];
                    uint8_t &low = dst[64 * half + 32 * (run & 1) + l], &high = dst[kHigh + 32 * half + l];
                    low = static_cast<uint8_t>(low | (code & 15) << (run < 2 ? 0 : 4));
                    high = static_cast<uint8_t>(high | (code >> 4) << (2 * run));
                }
    }

    static void decode(const uint8_t *src, WeightGroup *groups) {
        int16_t codes[kSize];
        unpack_codes(src, codes);
        for (size_t e = 0; e < kSize; ++e)
            groups[e / kGroup].code[e % kGroup] =
                static_cast<int16_t>(load<int8_t>(src + kScales + e / kSubGroup) * codes[e]);
        for (size_t g = 0; g < kSize / kGroup; ++g) {
            groups[g].scale = load_f16(src + kScale);
            groups[g].min = 0;
        }
    }

    // (d*scale)*code, not d*(scale*code): the same value, but the sign of a zero differs.
    static void dequantize(const uint8_t *src, float *dst) {
        int16_t codes[kSize];
        unpack_codes(src, codes);
        const float d = load_f16(src + kScale);
        for (size_t e = 0; e < kSize; ++e) {
            const float scale = d * static_cast<float>(load<int8_t>(src + kScales + e / kSubGroup));
            dst[e] = scale * static_cast<float>(codes[e]);
        }
    }

    static bool encode(nybl_level level, const float *x, const float *importance, uint8_t *dst);
};

using SubGroupSearch = ScaleSearch<Codebook, kSubGroup>;

// The factor that the quantised scales leave open: least squares over the block with scales and codes held.
float refit_factor(const float *x, const float *w, const int8_t *scales, float d) noexcept {
    double xc = 0, cc = 0;
    for (size_t e = 0; e < BlockQ6_K::kSize; ++e) {
        const float scale = static_cast<float>(scales[e / kSubGroup]);
        const double c = scale * (Codebook::code(x[e] * reciprocal_or_zero(d * scale)) - 32);
        xc += w[e] * c * x[e];
        cc += w[e] * c * c;
    }
    return cc > 0 ? round_to_f16(static_cast<float>(xc / cc)) : d;
}

// A factor, its scales, and the error of what they decode to.
struct Choice {
    float d;
    int8_t scales[kSubGroups];
    double error;
};

// For a factor the best of the 8-bit scales nearest to the wanted ones and their neighbours.
Choice choose_scales(const float *x, const float *w, const float *wanted, float d) noexcept {
    Choice choice{d, {}, 0};
    for (size_t g = 0; g < kSubGroups; ++g) {
        const SubGroupSearch fit(x + kSubGroup * g, w + kSubGroup * g);
        const float ratio = std::min(std::max(wanted[g] * reciprocal_or_zero(d), -128.0f), 127.0f);
        const int middle = round_half_even(ratio);
        choice.scales[g] = static_cast<int8_t>(middle);
        float best = fit.error(d * static_cast<float>(middle));
        for (const int s : {std::max(-128, middle - 1), std::min(127, middle + 1)}) {
            const float e = fit.error(d * static_cast<float>(s));
            if (e < best) {
                best = e;
                choice.scales[g] = static_cast<int8_t>(s);
            }
        }
        choice.error += best;
    }
    return choice;
}

// Several factors near the largest wanted scale / 128 compete, then the best is refined.
Choice choose_factor(const float *x, const float *w, const float *wanted, Effort effort) noexcept {
    const float largest = extreme(wanted, kSubGroups);
    Choice best{};
    for (int less = 0; less < effort.candidates; ++less) {
        const float wanted_d = largest / static_cast<float>(less - 128);
        float d = round_to_f16(std::min(std::max(wanted_d, -kLargestF16), kLargestF16));
        if (d == 0) // too small for a factor of its own: the smallest one there is
            d = kSmallestF16;
        const Choice other = choose_scales(x, w, wanted, d);
        if (less == 0 || other.error < best.error)
            best = other;
    }
    for (int round = 0; round < effort.rounds; ++round) {
        const float d = refit_factor(x, w, best.scales, best.d);
        if (d == 0 || !f32_is_finite(d))
            break;
        const Choice other = choose_scales(x, w, wanted, d);
        if (!(other.error < best.error))
            break;
        best = other;
    }
    return best;
}

bool BlockQ6_K::encode(nybl_level level, const float *x, const float *importance, uint8_t *dst) {
    std::memset(dst, 0, kBytes);
    if (!f16_is_finite(f32_to_f16(extreme(x, kSize) / (128.0f * 32.0f))))
        return false;
    const BlockWeights<kSize> weights(importance);
    const float *w = weights.data();
    float wanted[kSubGroups];
    for (size_t g = 0; g < kSubGroups; ++g) {
        const SubGroupSearch fit(x + kSubGroup * g, w + kSubGroup * g);
        wanted[g] = fit.search(extreme(x + kSubGroup * g, kSubGroup) / Codebook::kFirst, effort(level),
                               [](float scale) { return scale; });
    }
    const Choice best = choose_factor(x, w, wanted, effort(level));
    uint8_t codes[kSize];
    for (size_t e = 0; e < kSize; ++e)
        codes[e] = Codebook::code(
            x[e] * reciprocal_or_zero(best.d * static_cast<float>(best.scales[e / kSubGroup])));
    pack_codes(codes, dst);
    std::memcpy(dst + kScales, best.scales, sizeof best.scales);
    store_f16(dst + kScale, best.d);
    return true;
}

} // namespace

const Format kFormatQ6_K = weight_format<BlockQ6_K>(NYBL_Q6_K, "Q6_K", 16, false, NYBL_Q8_K);

} // namespace nybl::quant
