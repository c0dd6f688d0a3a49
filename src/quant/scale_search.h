// Weighted search for the scale of elements that are scale * (a value of a codebook): inverse scales around
// those that map the extreme element to an end of the codebook, each refitted by least squares; then rounding
// and refitting take turns. Eight runs of n elements side by side, one a lane.
#pragma once

#include "quant/effort.h"
#include "quant/lanes.h"

namespace nybl::quant {
namespace {

// Codes 0 .. 2*bias-1 standing for -bias .. bias-1.
template <int bias>
struct LinearCodebook {
    static constexpr float kFirst = -bias, kLast = bias - 1;
    // The search maps the extreme element to these shares of an end: beyond 1 it is cut off, and the others
    // get smaller steps. Found by trying; where codes are many, fewer shares are worth it.
    static constexpr float kLeast = bias == 8     ? 0.85f
                                    : bias == 128 ? 0.97f
                                                  : 0.88f,
                           kMost = bias == 8    ? 1.2f
                                   : bias == 16 ? 1.12f
                                   : bias == 32 ? 1.08f
                                                : 1.03f;
    // Above this, errors are so small beside the elements that they must be summed themselves.
    static constexpr bool kFine = bias > 64;

    static Lanes nearest(Lanes v) noexcept { return clamp(round_lanes(v), kFirst, kLast); }
    static IntLanes codes(Lanes v) noexcept { return to_int(nearest(v)) + bias; }
};

template <class Codebook, size_t n>
class ScaleSearch {
  public:
    ScaleSearch(const Lanes *x, const Lanes *w) noexcept : x_(x), w_(w) {}

    // What the scales decode to, against the elements.
    Lanes error(Lanes scale) const noexcept {
        const Lanes inverse = reciprocal_or_zero(scale);
        Lanes sum[2] = {};
        for (size_t e = 0; e < n; ++e) {
            const Lanes rest = x_[e] - scale * Codebook::nearest(x_[e] * inverse);
            sum[e % 2] += w_[e] * rest * rest;
        }
        return sum[0] + sum[1];
    }

    // The element of largest magnitude, the first of them, with its sign.
    Lanes extreme() const noexcept {
        Lanes best{};
        for (size_t e = 0; e < n; ++e)
            best = magnitude(x_[e]) > magnitude(best) ? x_[e] : best;
        return best;
    }

    // The best scales found, not rounded.
    Lanes search(Effort effort) const noexcept {
        const Lanes top = reciprocal_or_zero(extreme());
        Best best;
        consider(best, top * Codebook::kFirst);
        consider(best, top * Codebook::kLast);
        for (int step = 0; step < effort.candidates; ++step) {
            const float share = static_cast<float>(step) / static_cast<float>(effort.candidates - 1);
            const float stretch = Codebook::kLeast + (Codebook::kMost - Codebook::kLeast) * share;
            consider(best, top * (Codebook::kFirst * stretch));
            consider(best, top * (Codebook::kLast * stretch));
        }
        for (int round = 0; round < effort.rounds; ++round)
            consider(best, reciprocal_or_zero(best.scale));
        return best.scale;
    }

    // The best of the scales nearest to `scale` that f16 holds, and of `other`.
    Lanes to_f16(Lanes scale, Lanes other) const noexcept {
        const Lanes middle = smaller(larger(round_to_f16(scale), splat(-65504.0f)), splat(65504.0f)),
                    step = f16_step(middle);
        Lanes best = middle, best_error = error(middle);
        const Lanes others[] = {round_to_f16(middle - step), round_to_f16(middle + step), other};
        for (const Lanes candidate : others) {
            const Lanes e = error(candidate);
            const IntLanes better = (e < best_error) & (magnitude(candidate) <= 65504.0f);
            best = better ? candidate : best;
            best_error = better ? e : best_error;
        }
        return best;
    }

  private:
    struct Best {
        Lanes scale{}, cost{};
    };

    // The least-squares scale for the codes that `inverse` gives. Its cost is the error less the energy of
    // the elements, which is the same for all, or for fine codebooks the error itself.
    void consider(Best &best, Lanes inverse) const noexcept {
        Lanes xc[2] = {}, cc[2] = {}, rr[2] = {};
        const Lanes first = reciprocal_or_zero(inverse);
        for (size_t e = 0; e < n; ++e) {
            const Lanes c = Codebook::nearest(x_[e] * inverse), wc = w_[e] * c;
            const Lanes rest = Codebook::kFine ? x_[e] - first * c : x_[e];
            xc[e % 2] += wc * rest;
            cc[e % 2] += wc * c;
            if constexpr (Codebook::kFine)
                rr[e % 2] += w_[e] * rest * rest;
        }
        const Lanes product = xc[0] + xc[1], by = ratio_or_zero(product, cc[0] + cc[1]);
        const Lanes fitted = Codebook::kFine ? first + by : by,
                    scale = Codebook::kFine ? round_to_f16(fitted) : fitted, off = scale - fitted;
        const Lanes cost = (rr[0] + rr[1]) - by * product + off * off * (cc[0] + cc[1]);
        const IntLanes better = Codebook::kFine ? (cost < best.cost) | (best.scale == 0.0f)
                                                : cost < best.cost + kNoise * best.cost;
        best.scale = better ? scale : best.scale;
        best.cost = better ? cost : best.cost;
    }

    const Lanes *x_, *w_;
};

} // namespace
} // namespace nybl::quant
