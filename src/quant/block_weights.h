// The weights of a block's squared errors: its importance, brought to a common range, or ones.
#pragma once

#include "base/half.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::quant {

// Divided by a power of two so that the largest is in [1, 2): sums of them times squared elements then fit
// f32 whatever the caller's unit. A small floor keeps every fit determined where single importances are zero;
// a block whose importance is all zero counts as one without.
template <size_t n>
class BlockWeights {
  public:
    explicit BlockWeights(const float *importance) noexcept {
        const float largest = importance ? *std::max_element(importance, importance + n) : 0.0f;
        if (!(largest > 0)) {
            std::fill(w_, w_ + n, 1.0f);
            return;
        }
        const int exponent = std::max(1, static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23));
        const auto power = std::bit_cast<double>(static_cast<uint64_t>(1023 + 127 - exponent) << 52);
        for (size_t i = 0; i < n; ++i)
            w_[i] = std::max(static_cast<float>(importance[i] * power), kFloor);
    }

    const float *data() const noexcept { return w_; }

  private:
    static constexpr float kFloor = 0x1p-24f;
    float w_[n];
};

// How hard the encoders search, by level: candidates on each side of the plain scale, and rounds of
// refinement.
struct Effort {
    int candidates;
    int rounds;
};
constexpr Effort effort(nybl_level level) noexcept {
    switch (level) {
    case NYBL_LEVEL_PLAIN:
    case NYBL_LEVEL_FAST:
        return {3, 1};
    case NYBL_LEVEL_BEST:
        return {20, 4};
    default:
        return {5, 2};
    }
}

// Whether a format whose bytes without importance are defined (docs/formats.md) leaves that definition.
constexpr bool search_wanted(nybl_level level, const float *importance) noexcept {
    return importance != nullptr || level == NYBL_LEVEL_BEST;
}

} // namespace nybl::quant
