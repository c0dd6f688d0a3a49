// The search of Q6_K: a scale per sub-group of 16, then 8-bit scales together with their f16 factor. Lane l
// holds sub-groups l and l + 8.
#pragma once

#include "quant/scale_search.h"

namespace nybl::quant {
namespace {

struct Q6Choice {
    float d;
    Lanes scale[2]; // whole numbers, -128 to 127
};

struct Q6Scored {
    Q6Choice choice;
    float error; // of what it decodes to
};

class Q6Search {
    static constexpr size_t kSubGroup = 16;
    using SubGroups = ScaleSearch<LinearCodebook<32>, kSubGroup>;

  public:
    // x and w: 16 elements of sub-groups 0 to 7, then 16 of sub-groups 8 to 15.
    Q6Search(const Lanes *x, const Lanes *w) noexcept
        : x_(x), w_(w), groups_{{x, w}, {x + kSubGroup, w + kSubGroup}} {}

    Q6Scored search(Effort effort) const noexcept {
        Lanes wanted[2];
        for (size_t h = 0; h < 2; ++h)
            wanted[h] = groups_[h].search(effort);
        const float largest = extreme(wanted);
        Q6Scored best{};
        // Several factors under which the largest scale takes one of the last codes compete.
        for (int less = 0; less < kFactors; ++less) {
            const Lanes wanted_d = splat(largest / static_cast<float>(less - 128));
            float d = round_to_f16(clamp(wanted_d, -65504.0f, 65504.0f))[0];
            if (d == 0) // too small for a factor of its own: the smallest one there is
                d = 0x1p-24f;
            const Q6Scored other = choose_scales(wanted, d);
            if (less == 0 || other.error < best.error)
                best = other;
        }
        for (int round = 0; round < effort.rounds; ++round) {
            const float d = refit(best.choice);
            if (d == 0 || !(d <= 65504.0f && d >= -65504.0f))
                break;
            const Q6Scored other = choose_scales(wanted, d);
            if (!(other.error < best.error))
                break;
            best = other;
        }
        return best;
    }

  private:
    static constexpr int kFactors = 3;

    static float extreme(const Lanes (&v)[2]) noexcept {
        float best = 0;
        for (size_t h = 0; h < 2; ++h)
            for (size_t l = 0; l < kLanes; ++l)
                if (v[h][l] * v[h][l] > best * best)
                    best = v[h][l];
        return best;
    }

    // For a factor the best of the 8-bit scales nearest to the wanted ones and their neighbours.
    Q6Scored choose_scales(const Lanes (&wanted)[2], float d) const noexcept {
        Q6Scored scored{{d, {}}, 0};
        Lanes total{};
        for (size_t h = 0; h < 2; ++h) {
            const Lanes middle =
                clamp(round_lanes(wanted[h] * reciprocal_or_zero(splat(d))), -128.0f, 127.0f);
            Lanes best = groups_[h].error(d * middle);
            scored.choice.scale[h] = middle;
            for (int step = -1; step <= 1; step += 2) {
                const Lanes scale = clamp(middle + static_cast<float>(step), -128.0f, 127.0f),
                            e = groups_[h].error(d * scale);
                const IntLanes better = e < best;
                scored.choice.scale[h] = better ? scale : scored.choice.scale[h];
                best = better ? e : best;
            }
            total += best;
        }
        scored.error = sum_lanes(total);
        return scored;
    }

    // The factor that the scales leave open: least squares over the block with scales and codes held.
    float refit(const Q6Choice &choice) const noexcept {
        Lanes xc{}, cc{};
        for (size_t h = 0; h < 2; ++h) {
            const Lanes inverse = reciprocal_or_zero(choice.d * choice.scale[h]);
            for (size_t e = h * kSubGroup; e < (h + 1) * kSubGroup; ++e) {
                const Lanes c = choice.scale[h] * LinearCodebook<32>::nearest(x_[e] * inverse),
                            wc = w_[e] * c;
                xc += wc * x_[e];
                cc += wc * c;
            }
        }
        const float norm = sum_lanes(cc);
        return norm > 0 ? round_to_f16(splat(sum_lanes(xc) / norm))[0] : choice.d;
    }

    const Lanes *x_, *w_;
    SubGroups groups_[2];
};

} // namespace
} // namespace nybl::quant
