// Weighted search for scale and minimum of 32 elements that are scale * code + min, codes 0 .. top:
// candidates around the plain scale, each refitted by least squares, the best then refined by alternating
// rounding and refitting.
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
    AffineSearch(const float *x, const float *weights) noexcept : x_(x), w_(weights) {}

    // Clamped first: the conversion is undefined beyond the range of int.
    static Lanes nearest(Lanes v) noexcept {
        return truncate(clamp(v, 0.0f, static_cast<float>(top)) + 0.5f);
    }

    float error(Affine a) const noexcept {
        const float inverse = reciprocal_or_zero(a.scale);
        Lanes sum{};
        for (size_t i = 0; i < kGroup; i += kLanes) {
            const Lanes x = load_lanes(x_ + i), e = x - (a.scale * nearest((x - a.min) * inverse) + a.min);
            sum += load_lanes(w_ + i) * e * e;
        }
        return sum_lanes(sum);
    }

    void codes(Affine a, uint8_t *out) const noexcept {
        const float inverse = reciprocal_or_zero(a.scale);
        for (size_t i = 0; i < kGroup; i += kLanes) {
            const IntLanes q = to_int(nearest((load_lanes(x_ + i) - a.min) * inverse));
            for (size_t l = 0; l < kLanes; ++l)
                out[i + l] = static_cast<uint8_t>(q[l]);
        }
    }

    // The best of what `polish` makes of the fits found (the form in which they will be stored, or they
    // themselves), judged by its own error, starting from `best`. min_limit is the largest minimum allowed: 0
    // for the K formats.
    template <class Polish>
    Affine search(Affine best, Effort effort, float min_limit, Polish polish) const noexcept {
        const Range whole = range(x_, kGroup);
        const Moments all = moments(whole.min);
        const float low = std::min(whole.min, min_limit), width = whole.max - low;
        float best_error = error(best);
        // From each start, rounding and refitting take turns while that helps: the error has many valleys,
        // the more so where importance is uneven.
        const auto descend = [&](float inverse, float min) {
            float last = std::numeric_limits<float>::infinity();
            for (int turn = 0; turn <= effort.rounds && f32_is_finite(inverse); ++turn) {
                const Affine a = refit(all, inverse, min, min_limit);
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
        const Range whole = range(x_, kGroup);
        const float low = std::min(whole.min, 0.0f);
        return search({(whole.max - low) / static_cast<float>(top), low}, effort, 0.0f,
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
        Lanes xq{}, qq{};
        for (size_t i = 0; i < kGroup; i += kLanes) {
            const Lanes y = load_lanes(x_ + i) - min, q = nearest(y * inverse), wq = load_lanes(w_ + i) * q;
            xq += wq * y;
            qq += wq * q;
        }
        const float norm = sum_lanes(qq);
        return norm > 0 ? std::max(0.0f, sum_lanes(xq) / norm) : scale;
    }

  private:
    // What least squares needs of the elements alone. They are taken relative to the smallest one, so that a
    // large common offset does not cancel digits.
    struct Moments {
        float base;
        double w, wy;
    };
    Moments moments(float base) const noexcept {
        Lanes w{}, wy{};
        for (size_t i = 0; i < kGroup; i += kLanes) {
            w += load_lanes(w_ + i);
            wy += load_lanes(w_ + i) * (load_lanes(x_ + i) - base);
        }
        return {base, sum_lanes(w), sum_lanes(wy)};
    }

    // Least squares for the codes that (inverse, min) give.
    Affine refit(const Moments &all, float inverse, float min, float min_limit) const noexcept {
        Lanes wq{}, wqq{}, wqy{};
        for (size_t i = 0; i < kGroup; i += kLanes) {
            const Lanes x = load_lanes(x_ + i), q = nearest((x - min) * inverse), t = load_lanes(w_ + i) * q;
            wq += t;
            wqq += t * q;
            wqy += t * (x - all.base);
        }
        const double W = all.w, Q = sum_lanes(wq), QQ = sum_lanes(wqq), Y = all.wy, YQ = sum_lanes(wqy);
        const double determinant = W * QQ - Q * Q;
        if (determinant > 1e-7 * W * QQ) {
            const double scale = (W * YQ - Y * Q) / determinant;
            const double fitted = all.base + (QQ * Y - Q * YQ) / determinant;
            if (fitted <= min_limit)
                return {static_cast<float>(std::max(0.0, scale)), static_cast<float>(fitted)};
        }
        const float held = std::min(min, min_limit);
        return {refit_scale(1.0f / inverse, held), held};
    }

    const float *x_, *w_;
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
