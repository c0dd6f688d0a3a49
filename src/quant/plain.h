// What the formats' encoders share outside the inner loops: whether a block fits, which kernel a level wants,
// and the int8 quants of activation blocks.
#pragma once

#include "quant/block_io.h"
#include "quant/block_kernels.h"
#include "quant/format.h"

#include <algorithm>

namespace nybl::quant {

// 1/x, or 0 where that is not finite: blocks of zeros and of values too small to scale get zero codes.
inline float reciprocal_or_zero(float x) noexcept {
    const float r = 1.0f / x;
    return f32_is_finite(r) ? r : 0.0f;
}

inline float magnitude(float x) noexcept {
    return x < 0 ? -x : x;
}

// The first element of largest magnitude, with its sign.
inline float extreme(const float *x, size_t n) noexcept {
    float best = 0;
    for (size_t i = 0; i < n; ++i)
        if (magnitude(x[i]) > magnitude(best))
            best = x[i];
    return best;
}

struct Range {
    float min, max;
};
inline Range range(const float *x, size_t n) noexcept {
    Range r{x[0], x[0]};
    for (size_t i = 1; i < n; ++i) {
        r.min = std::min(r.min, x[i]);
        r.max = std::max(r.max, x[i]);
    }
    return r;
}

// Whether f16 holds the scale that gives the extreme element of n the code `last`.
inline bool scale_fits(const float *x, size_t n, int last) noexcept {
    return f16_is_finite(f32_to_f16(extreme(x, n) / static_cast<float>(last)));
}
// Whether f16 holds the plain scale and minimum of a block of 32 with codes 0..top.
inline bool affine_fits(const float *x, int top) noexcept {
    const Range r = range(x, kGroup);
    return f16_is_finite(f32_to_f16((r.max - r.min) / static_cast<float>(top))) &&
           f16_is_finite(f32_to_f16(r.min));
}

// Whether a format whose bytes without importance are defined (docs/formats.md) leaves that definition.
constexpr bool search_wanted(nybl_level level, const float *importance) noexcept {
    return importance != nullptr || level == NYBL_LEVEL_DEFAULT || level == NYBL_LEVEL_BEST;
}

// Batches by search, or where the level wants the plain encoder (formats without one have none) by that.
inline void encode_scales(const ScaleKernels &kernels, nybl_level level, const BatchIn &in,
                          ScaleBatch *batch) noexcept {
    if (!kernels.plain || search_wanted(level, in.importance))
        kernels.search(in, level, batch);
    else
        kernels.plain(in, batch);
}
inline void encode_affine(const AffineKernels &kernels, nybl_level level, const BatchIn &in,
                          AffineBatch *batch) noexcept {
    if (search_wanted(level, in.importance))
        kernels.search(in, level, batch);
    else
        kernels.plain(in, batch);
}

// Half away from zero, without libm: |x| must be far below 2^31.
inline int round_half_away(float x) noexcept {
    const int whole = static_cast<int>(x);
    const float rest = x - static_cast<float>(whole); // exact
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

inline int round_half_even(float x) noexcept {
    const int whole = static_cast<int>(x);
    const float rest = magnitude(x - static_cast<float>(whole)); // exact
    const int away = rest > 0.5f || (rest == 0.5f && (whole & 1)) ? 1 : 0;
    return x < 0 ? whole - away : whole + away;
}

// The int8 quants that Q8_0 and Q8_1 share: d = max|x|/127 in f32, returned; q rounds half away from zero.
inline float quantize_int8(const float *x, int8_t *q) noexcept {
    const float d = magnitude(extreme(x, kGroup)) / 127.0f;
    const float inverse = reciprocal_or_zero(d);
    for (size_t i = 0; i < kGroup; ++i)
        q[i] = static_cast<int8_t>(round_half_away(x[i] * inverse));
    return d;
}

} // namespace nybl::quant
