// The search of Q4_K and Q5_K: a fit per group, then 6-bit scales and minimums together with their two f16
// factors. The eight groups of a super-block are the eight lanes.
#pragma once

#include "quant/affine_search.h"

namespace nybl::quant {
namespace {

// A super-block on its way to bytes: d * scale and -(dmin * min), scale and min whole numbers up to 63.
struct KChoice {
    float d, dmin;
    Lanes scale, min;
};

template <int top>
class KSearch {
    static constexpr float kTopScale = 63;

  public:
    KSearch(Lanes *x, const Lanes *w) noexcept : groups_(x, w, 0.0f) {}

    KChoice search(Effort effort) const noexcept {
        AffineFit wanted = groups_.search(effort, -groups_.mean());
        wanted.min = -(wanted.min + groups_.mean());
        const float largest_scale = largest_lane(wanted.scale), largest_min = largest_lane(wanted.min);
        KChoice best = improved(wanted, factor(largest_scale / kTopScale), factor(largest_min / kTopScale));
        float best_error = error(best);
        for (int round = 0; round < effort.rounds; ++round) {
            KChoice next = best;
            if (!refit(next))
                break;
            improve(next);
            const float e = error(next);
            if (!(e < best_error))
                break;
            best = next;
            best_error = e;
        }
        return best;
    }

    float error(const KChoice &choice) const noexcept { return sum_lanes(groups_.error(decoded(choice))); }

  private:
    // As an f16, and the smallest one above zero where it would vanish.
    static float factor(float wanted) noexcept {
        const float rounded = round_to_f16(smaller(splat(wanted), splat(65504.0f)))[0];
        return wanted > 0 && rounded == 0 ? 0x1p-24f : rounded;
    }

    AffineFit decoded(const KChoice &choice) const noexcept {
        return {choice.d * choice.scale, -(choice.dmin * choice.min) - groups_.mean()};
    }
    KChoice improved(AffineFit wanted, float d, float dmin) const noexcept {
        KChoice choice{d, dmin, steps(wanted.scale, d), steps(wanted.min, dmin)};
        improve(choice);
        return choice;
    }
    static Lanes steps(Lanes wanted, float factor) noexcept {
        return clamp(round_lanes(wanted * reciprocal_or_zero(splat(factor))), 0.0f, kTopScale);
    }

    // The best of the neighbouring pairs for each group, by the error of what will be decoded.
    void improve(KChoice &choice) const noexcept {
        const Lanes scale = choice.scale, min = choice.min;
        Lanes best = groups_.error(decoded(choice));
        for (int s = -1; s <= 1; ++s)
            for (int m = -1; m <= 1; ++m) {
                if (s == 0 && m == 0)
                    continue;
                const KChoice other{choice.d, choice.dmin,
                                    clamp(scale + static_cast<float>(s), 0.0f, kTopScale),
                                    clamp(min + static_cast<float>(m), 0.0f, kTopScale)};
                const Lanes e = groups_.error(decoded(other));
                const IntLanes better = e < best;
                choice.scale = better ? other.scale : choice.scale;
                choice.min = better ? other.min : choice.min;
                best = better ? e : best;
            }
    }

    // Least squares for both factors with codes, scales and minimums held. False where that gives none.
    bool refit(KChoice &choice) const noexcept {
        const AffineFit fit = decoded(choice);
        const auto sums = groups_.sums(reciprocal_or_zero(fit.scale), fit.min);
        const Lanes mean = groups_.mean(), wx = groups_.sum_wy() + mean * groups_.sum_w(),
                    xq = sums.yq_from_0 + mean * sums.q_from_0;
        const Lanes s = choice.scale, m = choice.min;
        const float aa = sum_lanes(s * s * sums.qq_from_0), ab = -sum_lanes(s * m * sums.q_from_0),
                    bb = sum_lanes(m * m * groups_.sum_w()), ax = sum_lanes(s * xq), bx = -sum_lanes(m * wx);
        const float determinant = aa * bb - ab * ab;
        if (determinant > 1e-5f * aa * bb) {
            choice.d = (ax * bb - bx * ab) / determinant;
            choice.dmin = (aa * bx - ab * ax) / determinant;
        } else if (aa > 0) {
            choice.d = (ax - ab * choice.dmin) / aa;
        }
        choice.d = round_to_f16(splat(choice.d))[0];
        choice.dmin = round_to_f16(splat(choice.dmin))[0];
        return choice.d > 0 && choice.dmin >= 0 && choice.d <= 65504.0f && choice.dmin <= 65504.0f;
    }

    AffineSearch<top> groups_;
};

} // namespace
} // namespace nybl::quant
