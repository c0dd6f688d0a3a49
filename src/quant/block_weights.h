// The weights of squared errors: importance brought to a common range, or ones. And how hard encoders search.
#pragma once

#include "quant/lanes.h"

#include <nybl/nybl.h>

namespace nybl::quant {
namespace {

// Divides by a power of two, given as the exponent field of a number that size, in two steps: the power
// itself may be beyond f32.
[[gnu::always_inline]] inline Lanes divide_by_power(Lanes v, BitLanes exponent) noexcept {
    const IntLanes power = 127 - reinterpret_cast<IntLanes>(exponent < 1u ? BitLanes{} + 1u : exponent);
    const IntLanes first = power >> 1, second = power - first;
    return v * from_bits(reinterpret_cast<BitLanes>(first + 127) << 23) *
           from_bits(reinterpret_cast<BitLanes>(second + 127) << 23);
}

// Weights of n elements in each of eight lanes, in place of the importance there (`given`: there is some).
// Each lane, or `together` all, is divided by a power of two so that its largest is in [1, 2): sums of them
// times squared elements then fit f32 whatever the caller's unit. A small floor keeps every fit determined
// where single importances are zero; where all are zero, they count as not given.
template <size_t n>
void finish_weights(bool given, bool together, Lanes *w) noexcept {
    constexpr float kFloor = 0x1p-24f;
    Lanes largest{};
    for (size_t e = 0; given && e < n; ++e)
        largest = larger(largest, w[e]);
    if (together)
        largest = splat(largest_lane(largest));
    const BitLanes exponent = bits_of(largest) >> 23;
    for (size_t e = 0; e < n; ++e)
        w[e] = !given           ? splat(1.0f)
               : largest > 0.0f ? larger(divide_by_power(w[e], exponent), splat(kFloor))
                                : splat(1.0f);
}

} // namespace
} // namespace nybl::quant
