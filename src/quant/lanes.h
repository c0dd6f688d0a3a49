// Four f32 side by side, for the sums of the searches: a fixed number of lanes and a fixed last step, so that
// bits do not depend on what a compiler makes of a loop. Plain vector types of GCC and Clang, within every
// machine's baseline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nybl::quant {

constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(16)));
using IntLanes = int32_t __attribute__((vector_size(16)));

inline Lanes load_lanes(const float *src) noexcept {
    Lanes v;
    std::memcpy(&v, src, sizeof v);
    return v;
}

inline Lanes splat(float x) noexcept {
    return Lanes{x, x, x, x};
}

inline Lanes clamp(Lanes v, float low, float high) noexcept {
    const Lanes l = splat(low), h = splat(high);
    const Lanes raised = v < l ? l : v;
    return h < raised ? h : raised;
}

// Towards zero; the elements must be within the range of int32.
inline IntLanes to_int(Lanes v) noexcept {
    return __builtin_convertvector(v, IntLanes);
}
inline Lanes truncate(Lanes v) noexcept {
    return __builtin_convertvector(to_int(v), Lanes);
}

inline float sum_lanes(Lanes v) noexcept {
    return (v[0] + v[1]) + (v[2] + v[3]);
}

} // namespace nybl::quant
