// The encoder of Q4_K and Q5_K: a fit per group, then scales and minima quantised together with their two
// factors.
#include "quant/k_block.h"

#include "quant/affine_search.h"

namespace nybl::quant {
namespace {

constexpr size_t kGroups = 8;
constexpr int kScaleTop = 63; // 6-bit scales and minima

// The f16 factor under which `largest` becomes 63; the smallest f16 above zero where that would vanish.
float factor_for(float largest) noexcept {
    const float factor = round_to_f16(std::min(largest / kScaleTop, kLargestF16));
    return largest > 0 ? std::max(factor, kSmallestF16) : 0.0f;
}

uint8_t to_six_bits(float value, float factor) noexcept {
    const float ratio = factor > 0 ? value / factor : 0.0f;
    return static_cast<uint8_t>(std::min(std::max(ratio, 0.0f), static_cast<float>(kScaleTop)) + 0.5f);
}

// One super-block on its way to bytes.
template <int top>
class KEncoder {
  public:
    KEncoder(const float *x, const float *weights, Effort effort) noexcept
        : x_(x), w_(weights), effort_(effort) {}

    void run() noexcept {
        Affine fits[kGroups];
        float largest_scale = 0, largest_min = 0;
        for (size_t i = 0; i < kGroups; ++i) {
            fits[i] = group(i).search_unrounded(effort_);
            largest_scale = std::max(largest_scale, fits[i].scale);
            largest_min = std::max(largest_min, -fits[i].min);
        }
        d_ = factor_for(largest_scale);
        dmin_ = factor_for(largest_min);
        for (size_t i = 0; i < kGroups; ++i) {
            scales_.scale[i] = to_six_bits(fits[i].scale, d_);
            scales_.min[i] = to_six_bits(-fits[i].min, dmin_);
        }
        for (int round = 0; round < effort_.rounds; ++round) {
            for (size_t i = 0; i < kGroups; ++i)
                improve_group(i);
            if (!refit_factors())
                break;
        }
    }

    void write(uint8_t *d, uint8_t *dmin, uint8_t *scales, uint8_t *codes) const noexcept {
        store_f16(d, d_);
        store_f16(dmin, dmin_);
        pack_k_scales(scales_, scales);
        for (size_t i = 0; i < kGroups; ++i)
            group(i).codes(affine(scales_.scale[i], scales_.min[i]), codes + kGroup * i);
    }

  private:
    AffineSearch<top> group(size_t i) const noexcept { return {x_ + kGroup * i, w_ + kGroup * i}; }

    // As the decoder computes them.
    Affine affine(int scale, int min) const noexcept {
        return {d_ * static_cast<float>(scale), -(dmin_ * static_cast<float>(min))};
    }

    // The best of the neighbouring 6-bit pairs, by the error of what will be decoded.
    void improve_group(size_t i) noexcept {
        const AffineSearch<top> fit = group(i);
        const int scale = scales_.scale[i], min = scales_.min[i];
        float best = fit.error(affine(scale, min));
        for (int s = std::max(0, scale - 1); s <= std::min(kScaleTop, scale + 1); ++s)
            for (int m = std::max(0, min - 1); m <= std::min(kScaleTop, min + 1); ++m) {
                if (s == scale && m == min)
                    continue;
                const float e = fit.error(affine(s, m));
                if (e < best) {
                    best = e;
                    scales_.scale[i] = static_cast<uint8_t>(s);
                    scales_.min[i] = static_cast<uint8_t>(m);
                }
            }
    }

    double total_error() const noexcept {
        double sum = 0;
        for (size_t i = 0; i < kGroups; ++i)
            sum += group(i).error(affine(scales_.scale[i], scales_.min[i]));
        return sum;
    }

    // Least squares for (d, dmin) with codes, scales and minima held: x ~ d*(sc*q) - dmin*mn. Kept where it
    // helps.
    bool refit_factors() noexcept {
        double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
        for (size_t i = 0; i < kGroups; ++i) {
            uint8_t q[kGroup];
            group(i).codes(affine(scales_.scale[i], scales_.min[i]), q);
            double wqq = 0, wq = 0, w1 = 0, wqx = 0, wx = 0;
            for (size_t j = 0; j < kGroup; ++j) {
                const double w = w_[kGroup * i + j], x = x_[kGroup * i + j];
                wqq += w * q[j] * q[j];
                wq += w * q[j];
                w1 += w;
                wqx += w * q[j] * x;
                wx += w * x;
            }
            const double s = scales_.scale[i], m = scales_.min[i];
            aa += s * s * wqq;
            ab -= s * m * wq;
            bb += m * m * w1;
            ax += s * wqx;
            bx -= m * wx;
        }
        const float old_d = d_, old_dmin = dmin_;
        const double before = total_error(), determinant = aa * bb - ab * ab;
        if (determinant > 1e-10 * aa * bb) {
            d_ = round_to_f16(static_cast<float>((ax * bb - bx * ab) / determinant));
            dmin_ = round_to_f16(static_cast<float>((aa * bx - ab * ax) / determinant));
        } else if (aa > 0) {
            d_ = round_to_f16(static_cast<float>((ax - ab * dmin_) / aa));
        }
        if (d_ >= 0 && dmin_ >= 0 && f32_is_finite(d_) && f32_is_finite(dmin_) && total_error() < before)
            return true;
        d_ = old_d;
        dmin_ = old_dmin;
        return false;
    }

    const float *x_, *w_;
    Effort effort_;
    float d_ = 0, dmin_ = 0;
    KScales scales_ = {};
};

// Whether the unsearched factors fit: beyond that the search would have no finite numbers to compare.
bool factors_fit(const float *x, int top) noexcept {
    float largest_width = 0, largest_min = 0;
    for (size_t i = 0; i < kGroups; ++i) {
        const Range r = range(x + kGroup * i, kGroup);
        const float low = std::min(r.min, 0.0f);
        largest_width = std::max(largest_width, r.max - low);
        largest_min = std::max(largest_min, -low);
    }
    return f16_is_finite(f32_to_f16(largest_width / static_cast<float>(kScaleTop * top))) &&
           f16_is_finite(f32_to_f16(largest_min / static_cast<float>(kScaleTop)));
}

} // namespace

template <bool fifth_bit>
bool KBlock<fifth_bit>::encode(nybl_level level, const float *x, const float *importance, uint8_t *dst) {
    if (!factors_fit(x, kTop))
        return false;
    const BlockWeights<kSize> weights(importance);
    KEncoder<kTop> encoder(x, weights.data(), effort(level));
    encoder.run();
    uint8_t codes[kSize];
    encoder.write(dst, dst + kDMin, dst + kScales, codes);
    pack_codes(codes, dst);
    return true;
}

template struct KBlock<false>;
template struct KBlock<true>;

} // namespace nybl::quant
