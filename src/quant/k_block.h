// What Q4_K and Q5_K share: a super-block of eight groups, each with a 6-bit scale and minimum under two f16
// factors.
//   0 f16 d   2 f16 dmin   4 scales[12]   16 [32 bytes of fifth bits]   then 128 bytes of nibbles
#pragma once

#include "quant/block_format.h"
#include "quant/k_scales.h"
#include "quant/plain.h"

namespace nybl::quant {

template <bool fifth_bit>
struct KBlock {
    static constexpr uint32_t kSize = 256, kDMin = 2, kScales = 4, kHigh = 16;
    static constexpr uint32_t kCodes = fifth_bit ? 48 : 16, kBytes = kCodes + 128;
    static constexpr int kTop = fifth_bit ? 31 : 15; // the largest code
    static constexpr ScaleField kFields[] = {{0, false, "scale d"}, {kDMin, false, "minimum dmin"}};

    static void decode(const uint8_t *src, WeightGroup *groups) {
        const float d = load_f16(src), dmin = load_f16(src + kDMin);
        const KScales scales = unpack_k_scales(src + kScales);
        for (size_t i = 0; i < 8; ++i) {
            groups[i].scale = d * static_cast<float>(scales.scale[i]);
            groups[i].min = -(dmin * static_cast<float>(scales.min[i]));
        }
        for (size_t c = 0; c < 4; ++c)
            unpack_nibbles<32>(src + kCodes + 32 * c, groups[2 * c].code, groups[2 * c + 1].code);
        if constexpr (fifth_bit)
            for (size_t i = 0; i < 8; ++i)
                for (size_t l = 0; l < 32; ++l)
                    groups[i].code[l] =
                        static_cast<int16_t>(groups[i].code[l] | ((src[kHigh + l] >> i) & 1) << 4);
    }

    static void pack_codes(const uint8_t *codes, uint8_t *dst) {
        for (size_t c = 0; c < 4; ++c)
            pack_nibbles<32>(codes + 64 * c, codes + 64 * c + 32, dst + kCodes + 32 * c);
        if constexpr (fifth_bit) {
            for (size_t l = 0; l < 32; ++l) {
                unsigned bits = 0;
                for (size_t i = 0; i < 8; ++i)
                    bits |= static_cast<unsigned>(codes[32 * i + l] >> 4) << i;
                dst[kHigh + l] = static_cast<uint8_t>(bits);
            }
        }
    }

    // By the plain factors: a group as wide as 63 * kTop steps of d, as low as 63 steps of dmin.
    static bool fits(const float *x) {
        float largest_width = 0, largest_min = 0;
        for (size_t i = 0; i < kSize; i += kGroup) {
            const Range r = range(x + i, kGroup);
            const float low = std::min(r.min, 0.0f);
            largest_width = std::max(largest_width, r.max - low);
            largest_min = std::max(largest_min, -low);
        }
        return f16_is_finite(f32_to_f16(largest_width / static_cast<float>(63 * kTop))) &&
               f16_is_finite(f32_to_f16(largest_min / 63.0f));
    }

    static void encode(const BlockKernels &kernels, nybl_level level, const BatchIn &in, uint8_t *dst) {
        KBatch batch;
        (fifth_bit ? kernels.search_q5_k : kernels.search_q4_k)(in, level, &batch);
        store(dst, batch.d);
        store(dst + kDMin, batch.dmin);
        pack_k_scales(batch.scales, dst + kScales);
        pack_codes(batch.codes, dst);
    }
};

} // namespace nybl::quant
