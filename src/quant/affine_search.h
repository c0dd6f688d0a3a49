// Weighted search for scale and minimum of 32 elements that are scale * code + min, codes 0 .. top:
// candidates around the plain scale, each refitted by least squares, the best then refined by alternating
// rounding and refitting.
//
// Sums run in four lanes with a fixed final order, so that compilers may use vectors without changing a bit.
#pragma once

#include "quant/block_weights.h"
#include "quant/scale_search.h"

#include <limits>

namespace nybl::quant {

struct Affine {
    float scale, min;
};

template <int top>
class AffineSearch {
    // The starts span this many codes on each side of the plain scale.
    static constexpr float kStretch = 1.2f;

  public:
    AffineSearch(const float *x, const float *weights) noexcept
        : x_(x), w_(weights), range_(range(x, kGroup)) {}

    static float nearest(float v) noexcept {
        // Clamped first: the cast is undefined beyond the range of int.
        return static_cast<float>(
            static_cast<int>(std::min(std::max(v, 0.0f), static_cast<float>(top)) + 0.5f));
    }

    float error(Affine a) const noexcept {
        const float inverse = reciprocal_or_zero(a.scale);
        float lane[4] = {};
        for (size_t i = 0; i < kGroup; i += 4)
            for (size_t l = 0; l < 4; ++l) {
                const float e = x_[i + l] - (a.scale * nearest((x_[i + l] - a.min) * inverse) + a.min);
                lane[l] += w_[i + l] * e * e;
            }
        return sum_lanes(lane);
    }

    void codes(Affine a, uint8_t *out) const noexcept {
        const float inverse = reciprocal_or_zero(a.scale);
        for (size_t i = 0; i < kGroup; ++i)
            out[i] = static_cast<uint8_t>(nearest((x_[i] - a.min) * inverse));
    }

    // The best of what `polish` makes of the fits found (the form in which they will be stored, or they
    // themselves), judged by its own error, starting from `best`. min_limit is the largest minimum allowed: 0
    // for the K formats.
    template <class Polish>
    Affine search(Affine best, Effort effort, float min_limit, Polish polish) const noexcept {
        const float low = std::min(range_.min, min_limit), width = range_.max - low;
        float best_error = error(best);
        // From each start, rounding and refitting take turns while that helps: the error has many valleys,
        // the more so where importance is uneven.
        const auto descend = [&](float inverse, float min) {
            float last = std::numeric_limits<float>::infinity();
            for (int turn = 0; turn <= effort.rounds && f32_is_finite(inverse); ++turn) {
                const Affine a = refit(inverse, min, min_limit);
                const float e = error(a);
                if (e < best_error) {
                    const Affine polished = polish(a);
                    const float polished_error = error(polished);
                    if (polished_error < best_error) {
                        best_error = polished_error;
                        best = polished;
                    }
                }
                if (!(e < last))
                    return;
                last = e;
                inverse = reciprocal_or_zero(a.scale);
                min = a.min;
            }
        };
        for (int step = -effort.candidates; step <= effort.candidates; ++step) {
            const float stretch = kStretch * static_cast<float>(step) / static_cast<float>(effort.candidates);
            const float inverse = (static_cast<float>(top) + stretch) / width;
            descend(inverse, low);
            // An outlier at the top leaves the others fewer than two codes: the best minimum is then in their
            // midst.
            descend(inverse, low + 0.5f * width / static_cast<float>(top));
        }
        return best;
    }

    // For the K formats, which quantise the fits of their groups together.
    Affine search_unrounded(Effort effort) const noexcept {
        const float low = std::min(range_.min, 0.0f);
        return search({(range_.max - low) / static_cast<float>(top), low}, effort, 0.0f,
                      [](Affine a) { return a; });
    }

    // The nearest pair of f16 values: rounding the minimum can cost more than a step of the codes, so its
    // neighbours compete, each with a scale of its own.
    Affine to_f16(Affine a) const noexcept {
        Affine best{round_to_f16(a.scale), round_to_f16(a.min)};
        float best_error = std::numeric_limits<float>::infinity();
        const uint16_t middle = f32_to_f16(a.min);
        for (int offset = -1; offset <= 1; ++offset) {
            const auto bits = static_cast<uint16_t>(middle + offset);
            if (!f16_is_finite(bits)) // the neighbour of the largest one, or of zero
                continue;
            const float min = f16_to_f32(bits), scale = round_to_f16(refit_scale(a.scale, min));
            if (!f32_is_finite(scale))
                continue;
            const float e = error({scale, min});
            if (e < best_error) {
                best_error = e;
                best = {scale, min};
            }
        }
        return best;
    }

    // The best scale for a given minimum, starting from `scale`.
    float refit_scale(float scale, float min) const noexcept {
        const float inverse = reciprocal_or_zero(scale);
        float xq[4] = {}, qq[4] = {};
        for (size_t i = 0; i < kGroup; i += 4)
            for (size_t l = 0; l < 4; ++l) {
                const float q = nearest((x_[i + l] - min) * inverse), wq = w_[i + l] * q;
                xq[l] += wq * (x_[i + l] - min);
                qq[l] += wq * q;
            }
        const float norm = sum_lanes(qq);
        return norm > 0 ? std::max(0.0f, sum_lanes(xq) / norm) : scale;
    }

  private:
    // Least squares for the codes that (inverse, min) give. Elements are taken relative to the block's
    // minimum, so that a large common offset does not cancel digits.
    Affine refit(float inverse, float min, float min_limit) const noexcept {
        const float base = range_.min;
        float sw[4] = {}, sq[4] = {}, sqq[4] = {}, sy[4] = {}, syq[4] = {};
        for (size_t i = 0; i < kGroup; i += 4)
            for (size_t l = 0; l < 4; ++l) {
                const float q = nearest((x_[i + l] - min) * inverse), y = x_[i + l] - base, w = w_[i + l],
                            wq = w * q;
                sw[l] += w;
                sq[l] += wq;
                sqq[l] += wq * q;
                sy[l] += w * y;
                syq[l] += wq * y;
            }
        const double W = sum_lanes(sw), Q = sum_lanes(sq), QQ = sum_lanes(sqq), Y = sum_lanes(sy),
                     YQ = sum_lanes(syq);
        const double determinant = W * QQ - Q * Q;
        if (determinant > 1e-7 * W * QQ) {
            const double scale = (W * YQ - Y * Q) / determinant;
            const double fitted = base + (QQ * Y - Q * YQ) / determinant;
            if (fitted <= min_limit)
                return {static_cast<float>(std::max(0.0, scale)), static_cast<float>(fitted)};
        }
        const float held = std::min(min, min_limit);
        return {refit_scale(1.0f / inverse, held), held};
    }

    const float *x_, *w_;
    Range range_;
};

// f16 scale and minimum for a block of 32. False where the plain ones do not fit.
template <int top>
bool encode_affine_searched(const float *x, const float *importance, nybl_level level, uint8_t *codes,
                            uint8_t *d_out, uint8_t *m_out) {
    if (!encode_affine_plain(x, top, codes, d_out, m_out))
        return false;
    const BlockWeights<kGroup> weights(importance);
    const AffineSearch<top> fit(x, weights.data());
    const Affine best =
        fit.search({load_f16(d_out), load_f16(m_out)}, effort(level), std::numeric_limits<float>::infinity(),
                   [&](Affine a) { return fit.to_f16(a); });
    store_f16(d_out, best.scale);
    store_f16(m_out, best.min);
    fit.codes(best, codes);
    return true;
}

} // namespace nybl::quant
