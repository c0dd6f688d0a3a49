// Blocks whose scale is an integer times a factor that a row shares: which integers, and which codes for
// them. Eight blocks side by side, one a lane.
#pragma once

#include "quant/scale_search.h"

#include <initializer_list>

namespace nybl::quant {
namespace {

constexpr float kLargestRowStep = 127.0f;

// Of the integers at most `reach` from `wanted` the ones with the least error, that nearest to `wanted`
// first.
template <class Codebook, size_t n>
Lanes choose_steps(const ScaleSearch<Codebook, n> &fit, float factor, Lanes wanted, int reach) noexcept {
    const auto held = [](Lanes steps) { return clamp(steps, -kLargestRowStep, kLargestRowStep); };
    const Lanes middle = round_lanes(held(wanted));
    Lanes best = middle, best_error = fit.error(factor * middle);
    for (int away = 1; away <= reach; ++away)
        for (const int side : {-away, away}) {
            const Lanes steps = held(middle + static_cast<float>(side)), error = fit.error(factor * steps);
            const IntLanes better = error < best_error;
            best = better ? steps : best;
            best_error = better ? error : best_error;
        }
    return best;
}

} // namespace
} // namespace nybl::quant
