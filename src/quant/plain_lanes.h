// What the plain encoders of docs/formats.md need of eight blocks of 32, one a lane: extremes, and the fields
// that follow from them.
#pragma once

#include "quant/affine_search.h"

namespace nybl::quant {
namespace {

constexpr float kLargestF32 = 0x1.fffffep127f;

struct RangeLanes {
    Lanes min, max;
};
inline RangeLanes range(const Lanes *x) noexcept {
    // Two of each, so that a comparison need not wait for the last one.
    Lanes min[2] = {x[0], x[1]}, max[2] = {x[0], x[1]};
    for (size_t e = 2; e < kAffineGroup; e += 2)
        for (size_t i = 0; i < 2; ++i) {
            min[i] = smaller(x[e + i], min[i]);
            max[i] = larger(x[e + i], max[i]);
        }
    RangeLanes r{smaller(min[1], min[0]), larger(max[1], max[0])};
    if (mask_bits((r.min == 0.0f) | (r.max == 0.0f)) != 0) { // of zeros of either sign the first counts
        r = {x[0], x[0]};
        for (size_t e = 1; e < kAffineGroup; ++e) {
            r.min = smaller(x[e], r.min);
            r.max = larger(x[e], r.max);
        }
    }
    return r;
}

// The first element of largest magnitude, with its sign; +0 where all are zero.
inline Lanes extreme(const Lanes *x) noexcept {
    const RangeLanes r = range(x);
    const IntLanes tied = (r.max == -r.min) & (r.max > 0.0f);
    if (mask_bits(tied) == 0) {
        const Lanes best = r.max > -r.min ? r.max : r.min;
        return best == 0.0f ? Lanes{} : best;
    }
    Lanes best{};
    for (size_t e = 0; e < kAffineGroup; ++e)
        best = magnitude(x[e]) > magnitude(best) ? x[e] : best;
    return best;
}

template <int top>
AffineFit plain_affine(RangeLanes r) noexcept {
    return {(r.max - r.min) / static_cast<float>(top), r.min};
}

} // namespace
} // namespace nybl::quant
