// Weighted search for the scale of elements that are scale * (a value of a codebook): candidates around the
// scale that maps the extreme element to an end of the codebook, each refitted by least squares and judged by
// its real error.
//
// Sums run in four lanes with a fixed final order, so that compilers may use vectors without changing a bit.
#pragma once

#include "quant/block_weights.h"
#include "quant/plain.h"

namespace nybl::quant {

// Codes 0 .. 2*bias-1 standing for -bias .. bias-1.
template <int bias>
struct LinearCodebook {
    static constexpr float kFirst = -bias, kLast = bias - 1;
    static float nearest(float v) noexcept {
        const float shifted =
            std::min(std::max(v, kFirst), kLast) + (bias + 0.5f); // positive, so truncation rounds
        return static_cast<float>(static_cast<int>(shifted) - bias);
    }
    static uint8_t code(float v) noexcept {
        return static_cast<uint8_t>(static_cast<int>(nearest(v)) + bias);
    }
};

inline float sum_lanes(const float *lane) noexcept {
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

template <class Codebook, size_t n>
class ScaleSearch {
    static_assert(n % 4 == 0);

  public:
    ScaleSearch(const float *x, const float *weights) noexcept : x_(x), w_(weights) {}

    float error(float scale) const noexcept {
        const float inverse = reciprocal_or_zero(scale);
        float lane[4] = {};
        for (size_t i = 0; i < n; i += 4)
            for (size_t l = 0; l < 4; ++l) {
                const float e = x_[i + l] - scale * Codebook::nearest(x_[i + l] * inverse);
                lane[l] += w_[i + l] * e * e;
            }
        return sum_lanes(lane);
    }

    // The least-squares scale for the codes that `inverse` gives; 0 where they are all zero.
    float refit(float inverse) const noexcept {
        float xc[4] = {}, cc[4] = {};
        for (size_t i = 0; i < n; i += 4)
            for (size_t l = 0; l < 4; ++l) {
                const float c = Codebook::nearest(x_[i + l] * inverse), wc = w_[i + l] * c;
                xc[l] += wc * x_[i + l];
                cc[l] += wc * c;
            }
        const float norm = sum_lanes(cc);
        return norm > 0 ? sum_lanes(xc) / norm : 0;
    }

    // The best scale found, as `store` rounds it (identity, or to f16), starting from `best`.
    template <class Store>
    float search(float best, Effort effort, Store store) const noexcept {
        const float top = extreme(x_, n);
        best = store(best);
        float best_error = error(best);
        // Below this a difference is rounding: the earlier candidate, nearer to the plain scale, stays.
        const float noise = 1e-10f * energy();
        const auto consider = [&](float inverse) {
            if (!f32_is_finite(inverse))
                return;
            const float scale = store(refit(inverse));
            const float e = f32_is_finite(scale) ? error(scale) : best_error;
            if (e < best_error - noise) {
                best_error = e;
                best = scale;
            }
        };
        for (int step = 0; step <= effort.candidates; ++step) {
            const float stretch = 0.15f * static_cast<float>(step) / static_cast<float>(effort.candidates);
            for (const float end : {Codebook::kFirst, Codebook::kLast}) {
                consider(end * (1.0f + stretch) / top);
                consider(end * (1.0f - stretch) / top);
            }
        }
        for (int round = 0; round < effort.rounds; ++round)
            consider(reciprocal_or_zero(best));
        return best;
    }

  private:
    float energy() const noexcept {
        float lane[4] = {};
        for (size_t i = 0; i < n; i += 4)
            for (size_t l = 0; l < 4; ++l)
                lane[l] += w_[i + l] * x_[i + l] * x_[i + l];
        return sum_lanes(lane);
    }

    const float *x_, *w_;
};

// One f16 scale for a block of 32: the search, starting from the plain encoder's scale. False where that does
// not fit.
template <class Codebook>
bool encode_scale_searched(const float *x, const float *importance, nybl_level level, uint8_t *codes,
                           uint8_t *d_out) {
    const float start = extreme(x, kGroup) / Codebook::kFirst;
    if (!store_f16(d_out, start))
        return false;
    const BlockWeights<kGroup> weights(importance);
    const ScaleSearch<Codebook, kGroup> fit(x, weights.data());
    const float d = fit.search(start, effort(level), round_to_f16);
    store_f16(d_out, d);
    const float inverse = reciprocal_or_zero(d);
    for (size_t i = 0; i < kGroup; ++i)
        codes[i] = Codebook::code(x[i] * inverse);
    return true;
}

} // namespace nybl::quant
