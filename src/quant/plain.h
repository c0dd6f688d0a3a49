// The plain encoders of docs/formats.md: one pass over the block, no search. Every rounding is part of the
// format's definition (the code is computed with the f32 scale, the scale is stored rounded), so these
// produce fixed bytes.
#pragma once

#include "quant/block_io.h"
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

// w = d * (q - bias) with 2*bias codes: the extreme element gets code 0. False where d does not fit.
inline bool encode_symmetric_plain(const float *x, int bias, uint8_t *codes, uint8_t *d_out) noexcept {
    const float d = extreme(x, kGroup) / static_cast<float>(-bias);
    const float inverse = reciprocal_or_zero(d);
    if (!store_f16(d_out, d))
        return false;
    for (size_t i = 0; i < kGroup; ++i) {
        const float shifted = x[i] * inverse + (static_cast<float>(bias) + 0.5f);
        codes[i] = static_cast<uint8_t>(std::min(2 * bias - 1, static_cast<int>(shifted)));
    }
    return true;
}

// w = d * q + m with codes 0..top: minimum and maximum are the ends. False where d or m does not fit.
inline bool encode_affine_plain(const float *x, int top, uint8_t *codes, uint8_t *d_out,
                                uint8_t *m_out) noexcept {
    const Range r = range(x, kGroup);
    const float d = (r.max - r.min) / static_cast<float>(top);
    const float inverse = reciprocal_or_zero(d);
    if (!f16_is_finite(f32_to_f16(d)) || !store_f16(m_out, r.min))
        return false;
    store_f16(d_out, d);
    for (size_t i = 0; i < kGroup; ++i) {
        const float scaled = (x[i] - r.min) * inverse + 0.5f;
        codes[i] = static_cast<uint8_t>(std::min(top, static_cast<int>(scaled)));
    }
    return true;
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
