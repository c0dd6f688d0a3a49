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

    // The unrounded optimum; min_limit is the largest minimum allowed (0 for the K formats, infinity for
    // others).
    Affine search(Effort effort, float min_limit) const noexcept {
        const float low = std::min(range_.min, min_limit), width = range_.max - low;
        Affine best{width / static_cast<float>(top), low};
        float best_error = error(best);
        const auto consider = [&](float inverse, float min) {
            if (!f32_is_finite(inverse))
                return false;
            const Affine a = refit(inverse, min, min_limit);
            const float e = error(a);
            if (!(e < best_error))
                return false;
            best_error = e;
            best = a;
            return true;
        };
        for (int step = -effort.candidates; step <= effort.candidates; ++step)
            consider(
                (static_cast<float>(top) + static_cast<float>(step) / static_cast<float>(effort.candidates)) /
                    width,
                low);
        for (int round = 0; round < effort.rounds; ++round)
            if (!consider(reciprocal_or_zero(best.scale), best.min))
                break;
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
    const Affine free = fit.search(effort(level), std::numeric_limits<float>::infinity());
    Affine best{load_f16(d_out), load_f16(m_out)};
    float best_error = fit.error(best);
    // Rounding the minimum to f16 can cost more than a step of the codes: its neighbours compete, each with
    // its own scale.
    const uint16_t middle = f32_to_f16(free.min);
    for (int offset = -1; offset <= 1; ++offset) {
        const auto bits = static_cast<uint16_t>(middle + offset);
        if (!f16_is_finite(bits))
            continue;
        const float min = f16_to_f32(bits);
        const float scale = round_to_f16(fit.refit_scale(free.scale, min));
        if (!f32_is_finite(scale))
            continue;
        const float e = fit.error({scale, min});
        if (e < best_error) {
            best_error = e;
            best = {scale, min};
        }
    }
    store_f16(d_out, best.scale);
    store_f16(m_out, best.min);
    fit.codes(best, codes);
    return true;
}

} // namespace nybl::quant
