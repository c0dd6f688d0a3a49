// BlockKernels written in lanes: what block_kernels.cpp and block_kernels_avx2.cpp compile.
#pragma once

#include "quant/block_kernels.h"
#include "quant/block_weights.h"
#include "quant/k_search.h"
#include "quant/lut_codebook.h"
#include "quant/plain_lanes.h"
#include "quant/q6_search.h"
#include "quant/row_search.h"

namespace nybl::quant {
namespace {

// Up to eight blocks of 32 elements, one a lane; lanes without a block are zero.
void load_blocks(const float *rows, size_t blocks, Lanes *out) noexcept {
    if (blocks == kBatch)
        return load_columns<kAffineGroup>(rows, out);
    float padded[kBatchElements] = {};
    std::memcpy(padded, rows, blocks * kAffineGroup * sizeof(float));
    load_columns<kAffineGroup>(padded, out);
}

struct Elements {
    Lanes x[kAffineGroup];

    explicit Elements(const BatchIn &in) noexcept { load_blocks(in.x, in.blocks, x); }
};

struct WeightedElements : Elements {
    Lanes w[kAffineGroup];

    explicit WeightedElements(const BatchIn &in) noexcept : Elements(in) {
        if (in.importance)
            load_blocks(in.importance, in.blocks, w);
        finish_weights<kAffineGroup>(in.importance != nullptr, false, w);
    }
};

// Codes of a block from its elements, 32 at a time in row order.
template <class Codes>
void write_codes(const BatchIn &in, uint8_t *codes, Codes codes_of) noexcept {
    for (size_t b = 0; b < in.blocks; ++b) {
        IntLanes q[4];
        for (size_t i = 0; i < 4; ++i)
            q[i] = codes_of(b, load_lanes(in.x + kAffineGroup * b + kLanes * i));
        store_bytes(q, codes + kAffineGroup * b);
    }
}

template <class Codebook>
void search_scale(const BatchIn &in, nybl_level level, ScaleBatch *out) noexcept {
    const WeightedElements columns(in);
    const ScaleSearch<Codebook, kAffineGroup> fit(columns.x, columns.w);
    Lanes d = fit.to_f16(fit.search(kScaleEfforts.at(level)), round_to_f16(fit.extreme() / Codebook::kFirst));
    if (level == NYBL_LEVEL_BEST)
        d = fit.to_f16(fit.search(kScaleEfforts.best), d);
    const Lanes inverse = reciprocal_or_zero(d);
    store_halves(f16_bits(d), out->d);
    write_codes(in, out->codes, [&](size_t b, Lanes x) { return Codebook::codes(x * inverse[b]); });
}

template <class Codebook>
void search_unrounded(const BatchIn &in, nybl_level level, float *scales) noexcept {
    const WeightedElements columns(in);
    const ScaleSearch<Codebook, kAffineGroup> fit(columns.x, columns.w);
    store_lanes(scales, fit.search(kScaleEfforts.at(level)));
}

template <class Codebook>
void choose_row_steps(const BatchIn &in, float factor, const float *wanted, int reach,
                      StepBatch *out) noexcept {
    const WeightedElements columns(in);
    const ScaleSearch<Codebook, kAffineGroup> fit(columns.x, columns.w);
    const Lanes steps = choose_steps(fit, factor, load_lanes(wanted), reach);
    const IntLanes whole = to_int(steps);
    for (size_t l = 0; l < kLanes; ++l)
        out->steps[l] = static_cast<int8_t>(whole[l]);
    const Lanes inverse = reciprocal_or_zero(factor * steps);
    write_codes(in, out->codes, [&](size_t b, Lanes x) { return Codebook::codes(x * inverse[b]); });
}

template <int top>
void search_affine(const BatchIn &in, nybl_level level, AffineBatch *out) noexcept {
    WeightedElements columns(in);
    const AffineFit plain = plain_affine<top>(range(columns.x));
    const AffineSearch<top> fit(columns.x, columns.w, kLargestF32);
    const Lanes limit = splat(kLargestF32);
    AffineFit a = fit.to_f16(fit.search(kAffineEfforts.at(level), limit),
                             {round_to_f16(plain.scale), round_to_f16(plain.min)});
    if (level == NYBL_LEVEL_BEST)
        a = fit.to_f16(fit.search(kAffineEfforts.best, limit), a);
    const Lanes inverse = reciprocal_or_zero(a.scale);
    store_halves(f16_bits(a.scale), out->d);
    store_halves(f16_bits(a.min), out->m);
    write_codes(in, out->codes, [&](size_t b, Lanes x) {
        return to_int(AffineSearch<top>::nearest((x - a.min[b]) * inverse[b]));
    });
}

template <int top>
void search_k(const BatchIn &in, nybl_level level, KBatch *out) noexcept {
    Lanes x[kAffineGroup], w[kAffineGroup];
    load_columns<kAffineGroup>(in.x, x);
    if (in.importance)
        load_columns<kAffineGroup>(in.importance, w);
    finish_weights<kAffineGroup>(in.importance != nullptr, true, w);
    const KSearch<top> search(x, w);
    KChoice choice = search.search(kKEfforts.at(level));
    if (level == NYBL_LEVEL_BEST) {
        const KChoice other = search.search(kKEfforts.best);
        choice = search.error(other) < search.error(choice) ? other : choice;
    }
    out->d = static_cast<uint16_t>(f16_bits(splat(choice.d))[0]);
    out->dmin = static_cast<uint16_t>(f16_bits(splat(choice.dmin))[0]);
    const IntLanes scale = to_int(choice.scale), min = to_int(choice.min);
    for (size_t l = 0; l < kLanes; ++l) {
        out->scales.scale[l] = static_cast<uint8_t>(scale[l]);
        out->scales.min[l] = static_cast<uint8_t>(min[l]);
    }
    const Lanes offset = choice.dmin * choice.min, inverse = reciprocal_or_zero(choice.d * choice.scale);
    write_codes({in.x, nullptr, kBatch}, out->codes, [&](size_t b, Lanes v) {
        return to_int(AffineSearch<top>::nearest((v + offset[b]) * inverse[b]));
    });
}

void search_q6_k(const BatchIn &in, nybl_level level, Q6Batch *out) noexcept {
    Lanes x[32], w[32];
    for (size_t h = 0; h < 2; ++h) {
        load_columns<16>(in.x + 128 * h, x + 16 * h);
        if (in.importance)
            load_columns<16>(in.importance + 128 * h, w + 16 * h);
    }
    finish_weights<32>(in.importance != nullptr, true, w);
    const Q6Search search(x, w);
    Q6Scored scored = search.search(kQ6Efforts.at(level));
    if (level == NYBL_LEVEL_BEST) {
        const Q6Scored other = search.search(kQ6Efforts.best);
        scored = other.error < scored.error ? other : scored;
    }
    const Q6Choice &choice = scored.choice;
    out->d = static_cast<uint16_t>(f16_bits(splat(choice.d))[0]);
    Lanes inverse[2];
    for (size_t h = 0; h < 2; ++h) {
        const IntLanes scale = to_int(choice.scale[h]);
        for (size_t l = 0; l < kLanes; ++l)
            out->scales[kLanes * h + l] = static_cast<int8_t>(scale[l]);
        inverse[h] = reciprocal_or_zero(choice.d * choice.scale[h]);
    }
    for (size_t b = 0; b < kBatch; ++b) {
        IntLanes q[4];
        for (size_t i = 0; i < 4; ++i) {
            const size_t sub = 2 * b + i / 2;
            q[i] = LinearCodebook<32>::codes(load_lanes(in.x + 32 * b + kLanes * i) *
                                             inverse[sub / kLanes][sub % kLanes]);
        }
        store_bytes(q, out->codes + 32 * b);
    }
}

template <int bias>
void plain_scale(const BatchIn &in, ScaleBatch *out) noexcept {
    const Elements columns(in);
    const Lanes d = extreme(columns.x) / static_cast<float>(-bias), inverse = reciprocal_or_zero(d);
    store_halves(f16_bits(round_to_f16(d)), out->d);
    constexpr float half_up = bias + 0.5f;
    write_codes(in, out->codes, [&](size_t b, Lanes x) {
        return to_int(smaller(x * inverse[b] + half_up, splat(2 * bias - 1)));
    });
}

template <int top>
void plain_affine_batch(const BatchIn &in, AffineBatch *out) noexcept {
    const Elements columns(in);
    const AffineFit a = plain_affine<top>(range(columns.x));
    const Lanes inverse = reciprocal_or_zero(a.scale);
    store_halves(f16_bits(round_to_f16(a.scale)), out->d);
    store_halves(f16_bits(round_to_f16(a.min)), out->m);
    write_codes(in, out->codes, [&](size_t b, Lanes x) {
        return to_int(smaller((x - a.min[b]) * inverse[b] + 0.5f, splat(top)));
    });
}

// Halves away from zero, codes counted from -128.
void plain_q8_0(const BatchIn &in, ScaleBatch *out) noexcept {
    const Elements columns(in);
    const Lanes d = magnitude(extreme(columns.x)) / 127.0f, inverse = reciprocal_or_zero(d);
    store_halves(f16_bits(round_to_f16(d)), out->d);
    write_codes(in, out->codes, [&](size_t b, Lanes x) {
        const Lanes v = x * inverse[b], whole = to_float(to_int(v)), rest = v - whole; // exact
        return to_int(whole) + 128 - (rest >= 0.5f) + (rest <= -0.5f);
    });
}

constexpr BlockKernels kLaneKernels = {
    .q4_0 = {search_scale<LinearCodebook<8>>, plain_scale<8>},
    .q5_0 = {search_scale<LinearCodebook<16>>, plain_scale<16>},
    .q8_0 = {search_scale<LinearCodebook<128>>, plain_q8_0},
    .iq4_nl = {search_scale<LutCodebook>, nullptr},
    .q4_1 = {search_affine<15>, plain_affine_batch<15>},
    .q5_1 = {search_affine<31>, plain_affine_batch<31>},
    .iq4_nl_row = {search_unrounded<LutCodebook>, choose_row_steps<LutCodebook>},
    .search_q4_k = search_k<15>,
    .search_q5_k = search_k<31>,
    .search_q6_k = search_q6_k,
    .find_dequantize = nullptr,
};

} // namespace
} // namespace nybl::quant
