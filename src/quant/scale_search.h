// Weighted search for the scale of elements that are scale * (a value of a codebook): candidates around the
// scale that maps the extreme element to an end of the codebook, each refitted by least squares and judged by
// its real error.
#pragma once

#include "quant/block_weights.h"
#include "quant/lanes.h"
#include "quant/plain.h"

namespace nybl::quant {

// Codes 0 .. 2*bias-1 standing for -bias .. bias-1.
template <int bias>
struct LinearCodebook {
    static constexpr float kFirst = -bias, kLast = bias - 1;
    static Lanes nearest(Lanes v) noexcept {
        const float half_up = bias + 0.5f; // makes it positive, so that truncation rounds
        return truncate(clamp(v, kFirst, kLast) + half_up) - static_cast<float>(bias);
    }
    static uint8_t code(float v) noexcept {
        return static_cast<uint8_t>(static_cast<int>(nearest(splat(v))[0]) + bias);
    }
};

template <class Codebook, size_t n>
class ScaleSearch {
    static_assert(n % kLanes == 0);

  public:
    ScaleSearch(const float *x, const float *weights) noexcept : x_(x), w_(weights) {}

    float error(float scale) const noexcept {
        const float inverse = reciprocal_or_zero(scale);
        Lanes sum{};
        for (size_t i = 0; i < n; i += kLanes) {
            const Lanes x = load_lanes(x_ + i), e = x - scale * Codebook::nearest(x * inverse);
            sum += load_lanes(w_ + i) * e * e;
        }
        return sum_lanes(sum);
    }

    // The least-squares scale for the codes that `inverse` gives; 0 where they are all zero.
    float refit(float inverse) const noexcept {
        Lanes xc{}, cc{};
        for (size_t i = 0; i < n; i += kLanes) {
            const Lanes x = load_lanes(x_ + i), c = Codebook::nearest(x * inverse),
                        wc = load_lanes(w_ + i) * c;
            xc += wc * x;
            cc += wc * c;
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
        Lanes sum{};
        for (size_t i = 0; i < n; i += kLanes) {
            const Lanes x = load_lanes(x_ + i);
            sum += load_lanes(w_ + i) * x * x;
        }
        return sum_lanes(sum);
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
