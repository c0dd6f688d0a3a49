// What oneDNN's primitives of a product are made for: the key of their cache, in memory and as text. Plain
// arithmetic, also in builds without oneDNN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

#include "gpu/affine.h"

namespace nybl::gpu {

// How w = scale * code - zero is multiplied. A zero point is never rounded to an integer.
enum class OneDnnMode : uint8_t {
    OneTerm,         // no zero points: X (scale * code)
    TwoTerm,         // X (scale * code), and the sums of X's groups times the scaled zero points added to it
    ScaleBeforeZero, // both in one matmul: oneDNN's static_sbzp
};

struct OneDnnPlan {
    OneDnnMode mode;
    CodeType codes;
    uint32_t group;          // elements of K that share a scale
    nybl_format params;      // scales and scaled zero points: F16 or F32
    nybl_format activations; // F16 or BF16; F32 on CPU engines
    uint64_t m, n, k;        // m: a bucket

    uint64_t groups() const noexcept { return k / group; }

    friend bool operator==(const OneDnnPlan &, const OneDnnPlan &) = default;
};

uint64_t hash_plan(const OneDnnPlan &plan) noexcept;

// "u4/32 f16 f16 64x4096x4096 two-term": codes and their group, parameters, activations, m x n x k, mode. The
// text fits 112 bytes.
void write_plan(const OneDnnPlan &plan, char *text, size_t size) noexcept;
bool read_plan(const char *text, OneDnnPlan *plan) noexcept; // false: this is no plan

const char *mode_name(OneDnnMode mode) noexcept;

// Rows that a product of m rows is run with: primitives know their sizes, so that every m needs one.
size_t bucket_rows(size_t m) noexcept;

// What decides between the modes.
struct ModeFacts {
    bool has_zeros;
    bool has_scale_before_zero; // this build's oneDNN does
    bool matrix_engine;         // the device does
    CodeType codes;
    nybl_format params, activations;
    size_t groups; // along K
};
OneDnnMode choose_mode(const ModeFacts &facts) noexcept;

} // namespace nybl::gpu
