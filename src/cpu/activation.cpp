// Quantised activations in plain C++: contract step 1, and the tile layout of activation.h.
#include "cpu/activation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/convert.h"

namespace nybl::cpu {
namespace {

uint32_t lane_pair(int32_t low, int32_t high) noexcept {
    return uint32_t(uint16_t(low)) | uint32_t(uint16_t(high)) << 16;
}

// Of the q of elements 0, 1 and 2, 3 (mod 4).
struct Sums {
    int32_t s01, s23;
};

// The values that integer accumulators start from (activation.h), from the sums of q.
void set_inits(DotFamily family, const Sums (&half)[2], ActivationGroup *group) noexcept {
    const bool dot = family == DotFamily::Dot;
    const auto init = [dot](int32_t factor, Sums s) {
        return dot ? uint32_t(factor * (s.s01 + s.s23)) : lane_pair(factor * s.s01, factor * s.s23);
    };
    const Sums all{half[0].s01 + half[1].s01, half[0].s23 + half[1].s23};
    group->init0 = init(-8, all);
    group->init1 = init(dot ? -128 : -11, all);
    group->half0 = init(-32, half[0]);
    group->half1 = init(-32, half[1]);
}

void quantize_group(DotFamily family, const float *x, ActivationGroup *group) noexcept {
    *group = {};
    float a = 0;
    bool finite = true;
    for (size_t i = 0; i < 32; ++i) {
        finite = finite && std::isfinite(x[i]);
        a = std::max(a, std::fabs(x[i]));
    }
    if (!finite) {
        group->d = group->ds = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    const float d = a / 127.0f;
    const float r = 1.0f / d;
    if (!std::isfinite(r))
        return;
    Sums half[2] = {};
    for (size_t i = 0; i < 32; ++i) {
        group->q[i] = int8_t(std::clamp(std::nearbyintf(x[i] * r), -127.0f, 127.0f));
        Sums &s = half[i / 16];
        (i / 2 % 2 == 0 ? s.s01 : s.s23) += group->q[i];
    }
    group->d = d;
    group->ds = d * float(half[0].s01 + half[0].s23 + half[1].s01 + half[1].s23);
    set_inits(family, half, group);
}

} // namespace

void quantize_row(DotFamily family, nybl_format type, const uint8_t *x, size_t k,
                  ActivationGroup *groups) noexcept {
    float values[32];
    for (size_t g = 0; g < k / 32; ++g) {
        load_row(type, x, 32 * g, 32, values);
        quantize_group(family, values, groups + g);
    }
}

void scatter_row(const ActivationGroup *groups, size_t n_groups, size_t t, size_t tile_rows,
                 uint8_t *tile) noexcept {
    copy_row({reinterpret_cast<const uint8_t *>(groups), 1, 0}, n_groups, t, tile_rows, tile);
}

void copy_row(const ActivationRow &from, size_t n_groups, size_t t, size_t tile_rows,
              uint8_t *tile) noexcept {
    for (size_t g = 0; g < n_groups; ++g, tile += kActivationBytes * tile_rows) {
        std::memcpy(tile + 32 * t, from.q(g), 32);
        for (size_t i = 0; i < kActivationFields; ++i)
            std::memcpy(tile + 32 * tile_rows + 4 * (i * tile_rows + t), from.field(g, i), 4);
    }
}

void scatter_f32_row(nybl_format type, const uint8_t *x, size_t n, size_t t, size_t tile_rows,
                     uint8_t *tile) noexcept {
    float values[32];
    tile += 4 * t;
    for (size_t at = 0; at < n; at += 32) {
        load_row(type, x, at, 32, values);
        for (size_t i = 0; i < 32; ++i, tile += 4 * tile_rows)
            std::memcpy(tile, values + i, 4);
    }
}

} // namespace nybl::cpu
