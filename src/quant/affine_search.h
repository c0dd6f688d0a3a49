// Weighted search for scale and minimum of 32 elements that are scale * code + min, codes 0 .. top: starts
// around the plain scale, from each of which rounding to codes and refitting by least squares take turns.
// Eight groups side by side, one a lane.
#pragma once

#include "quant/effort.h"
#include "quant/lanes.h"

namespace nybl::quant {
namespace {

constexpr size_t kAffineGroup = 32;

struct AffineFit {
    Lanes scale, min;
};

// Elements and minimums count from the weighted mean of the elements, and codes in sums from the code that is
// nearest to it, so that neither a large common offset nor a single heavy weight cancels digits.
template <int top>
class AffineSearch {
  public:
    // Takes the elements at x and leaves them counted from their mean. `highest_low`: the search starts from
    // the smallest element, or from this where it is smaller: 0 for the K formats.
    AffineSearch(Lanes *x, const Lanes *w, float highest_low) noexcept : y_(x), w_(w) {
        Lanes low = splat(highest_low), high = x[0], sum{};
        for (size_t e = 0; e < kAffineGroup; ++e) {
            low = smaller(low, x[e]);
            high = larger(high, x[e]);
            sum_w_ += w[e];
        }
        for (size_t e = 0; e < kAffineGroup; ++e)
            sum += w[e] * (x[e] - low);
        mean_ = low + sum / sum_w_;
        low_ = low - mean_;
        width_ = high - low;
        for (size_t e = 0; e < kAffineGroup; ++e) {
            x[e] -= mean_;
            sum_wy_ += w[e] * x[e];
            noise_ += w[e] * x[e] * x[e];
        }
        // The second part is for groups of equal elements, which have no energy about their mean.
        noise_ = kNoise * (noise_ + kNoise * low_ * low_ * sum_w_);
    }

    Lanes mean() const noexcept { return mean_; }
    Lanes sum_w() const noexcept { return sum_w_; }
    Lanes sum_wy() const noexcept { return sum_wy_; }

    static Lanes nearest(Lanes v) noexcept { return clamp(round_lanes(v), 0.0f, static_cast<float>(top)); }

    Lanes error(AffineFit a) const noexcept {
        const Lanes inverse = reciprocal_or_zero(a.scale), shift = a.min * inverse;
        Lanes sum[2] = {};
        for (size_t e = 0; e < kAffineGroup; ++e) {
            const Lanes rest = y_[e] - (a.scale * nearest(y_[e] * inverse - shift) + a.min);
            sum[e % 2] += w_[e] * rest * rest;
        }
        return sum[0] + sum[1];
    }

    // Weighted sums over a group for the codes of a fit.
    struct Sums {
        Lanes middle;    // the code that the sums count from
        Lanes q, qq, yq; // of code - middle
        Lanes q_from_0, qq_from_0, yq_from_0;
    };
    Sums sums(Lanes inverse, Lanes min) const noexcept {
        const Lanes shift = min * inverse, middle = nearest(-shift), offset = -shift - middle;
        const Lanes first = -middle, last = static_cast<float>(top) - middle;
        Lanes q_sum[2] = {}, qq[2] = {}, yq[2] = {};
        for (size_t e = 0; e < kAffineGroup; ++e) {
            const Lanes q = smaller(larger(round_lanes(y_[e] * inverse + offset), first), last),
                        wq = w_[e] * q;
            q_sum[e % 2] += wq;
            qq[e % 2] += wq * q;
            yq[e % 2] += wq * y_[e];
        }
        Sums s{middle, q_sum[0] + q_sum[1], qq[0] + qq[1], yq[0] + yq[1], {}, {}, {}};
        s.q_from_0 = s.q + middle * sum_w_;
        s.qq_from_0 = s.qq + middle * (2.0f * s.q + middle * sum_w_);
        s.yq_from_0 = s.yq + middle * sum_wy_;
        return s;
    }

    // The best fit found, not rounded, with a minimum of at most `limit`.
    AffineFit search(Effort effort, Lanes limit) const noexcept {
        const Lanes per_width = reciprocal_or_zero(width_);
        // An outlier at the top leaves the others fewer than two codes: the best minimum is then in their
        // midst.
        const Lanes starts[] = {low_, low_ + width_ * (0.5f / static_cast<float>(top))};
        Best best;
        descend(best, effort.turns, static_cast<float>(top) * per_width, low_, limit);
        for (int step = 0; step < effort.candidates; ++step) {
            const float share = static_cast<float>(step) / static_cast<float>(effort.candidates - 1);
            const float stretch = kStretch * (2.0f * share - 1.0f);
            for (const Lanes start : starts)
                descend(best, effort.turns, (static_cast<float>(top) + stretch) * per_width, start, limit);
        }
        descend(best, effort.rounds, reciprocal_or_zero(best.fit.scale), best.fit.min, limit);
        return best.fit;
    }

    // The best pair of f16 values near a fit: rounding the minimum can cost more than a step of the codes, so
    // its neighbours compete, each with a scale of its own; and `other`, which is a pair of f16 values.
    // Minimums are absolute in `other` and the result.
    AffineFit to_f16(AffineFit a, AffineFit other) const noexcept {
        const Lanes middle = round_to_f16(clamp(a.min + mean_, -65504.0f, 65504.0f)), step = f16_step(middle);
        const Lanes minimums[] = {middle, round_to_f16(middle - step), round_to_f16(middle + step)};
        AffineFit best = other;
        Lanes best_error = error({other.scale, other.min - mean_});
        for (const Lanes min : minimums) {
            const Lanes held = min - mean_;
            Lanes scale = a.scale;
            for (int round = 0; round < 2; ++round) {
                scale = scale_for(sums(reciprocal_or_zero(scale), held), held);
                const Lanes stored = round_to_f16(scale), e = error({stored, held});
                const IntLanes better =
                    (e < best_error) & (stored <= 65504.0f) & (magnitude(min) <= 65504.0f);
                best.scale = better ? stored : best.scale;
                best.min = better ? min : best.min;
                best_error = better ? e : best_error;
            }
        }
        return best;
    }

  private:
    // The starts span this many codes on each side of the plain scale.
    static constexpr float kStretch = 1.2f;

    struct Best {
        AffineFit fit{};
        Lanes explained{}; // of the energy of the elements: what the error lacks of it
    };

    void descend(Best &best, int turns, Lanes inverse, Lanes min, Lanes limit) const noexcept {
        for (int turn = 0; turn < turns; ++turn) {
            const AffineFit fit = consider(best, inverse, min, limit);
            inverse = reciprocal_or_zero(fit.scale);
            min = fit.min;
        }
    }

    // The least-squares scale for a given minimum.
    static Lanes scale_for(const Sums &s, Lanes min) noexcept {
        return larger(ratio_or_zero(s.yq_from_0 - min * s.q_from_0, s.qq_from_0), Lanes{});
    }

    // Least squares for the codes that (inverse, min) give; where that has no answer or one above the limit,
    // for the scale alone.
    AffineFit consider(Best &best, Lanes inverse, Lanes min, Lanes limit) const noexcept {
        const Sums s = sums(inverse, min);
        const Lanes determinant = sum_w_ * s.qq - s.q * s.q;
        const IntLanes determined = determinant > 1e-5f * sum_w_ * s.qq;
        const Lanes per_determinant = 1.0f / (determined ? determinant : splat(1.0f));
        const Lanes scale = (sum_w_ * s.yq - sum_wy_ * s.q) * per_determinant,
                    at_middle = (s.qq * sum_wy_ - s.q * s.yq) * per_determinant,
                    fitted = at_middle - scale * s.middle;
        const IntLanes free = determined & (fitted <= limit) & (scale > 0.0f);
        const Lanes held = smaller(determined ? fitted : min, limit), held_scale = scale_for(s, held);
        const AffineFit fit{free ? scale : held_scale, free ? fitted : held};
        const Lanes level = fit.min + fit.scale * s.middle,
                    explained = level * (2.0f * (sum_wy_ - fit.scale * s.q) - level * sum_w_) +
                                fit.scale * (2.0f * s.yq - fit.scale * s.qq);
        const IntLanes better = (explained > best.explained + noise_) | (best.fit.scale == 0.0f);
        best.fit.scale = better ? fit.scale : best.fit.scale;
        best.fit.min = better ? fit.min : best.fit.min;
        best.explained = better ? explained : best.explained;
        return fit;
    }

    const Lanes *y_, *w_;
    Lanes mean_, low_, width_, sum_w_{}, sum_wy_{}, noise_{};
};

} // namespace
} // namespace nybl::quant
