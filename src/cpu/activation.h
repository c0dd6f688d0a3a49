// Quantised activations: int8 per group of 32, laid out in the token tiles of a micro-kernel.
//
// Rows are split into tiles of `mr`; the last tile holds the rest. A tile of T rows stores its groups one
// after the other, 56*T bytes each, so that a micro-kernel walks one pointer:
//
//   i8  q[T][32]      the quants
//   f32 d[T]          the scales                  (contract: d = max|x|/127)
//   f32 ds[T]         d * S, S the sum of q       (factor of a weight minimum)
//   u32 init0[T]      what an integer accumulator of a format with an offset starts from, by dot family:
//   u32 init1[T]        Madd:  i16 pair -8*(S01, S23) and -11*(S01, S23), where S01 sums the q of elements
//                              0, 1 (mod 4) and S23 those of 2, 3 (mod 4): the lanes of vpmaddubsw
//                       Dot:   i32 -8*S and -128*S (vpdpbusd)
//   u32 half0[T]        the same with -32, of elements 0 .. 15 and of elements 16 .. 31 alone: for groups
//   u32 half1[T]        whose halves have scales of their own
//
// A generated quantizer writes d and those other fields that the job's formats read.
//
// Tile t of G groups starts at byte 56*G*mr*t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nybl/nybl.h>

#include "cpu/rows.h"

namespace nybl::cpu {

enum class DotFamily : uint8_t { Madd, Dot };

// Which integer accumulators the kernels of an instruction set use.
constexpr DotFamily dot_family(nybl_isa isa) noexcept {
    return isa >= NYBL_ISA_AVX_VNNI ? DotFamily::Dot : DotFamily::Madd;
}

// One group of one row: also the layout of a tile of one row.
struct ActivationGroup {
    int8_t q[32];
    float d;
    float ds;
    uint32_t init0, init1, half0, half1;
};
constexpr size_t kActivationBytes = sizeof(ActivationGroup);
static_assert(kActivationBytes == 56);
constexpr size_t kActivationFields = 6; // behind the quants
enum class ActivationField : uint8_t { D, Ds, Init0, Init1, Half0, Half1 };
constexpr uint8_t kAllActivationFields = (1 << kActivationFields) - 1; // a bit each

// Row t of a tile, group by group.
struct ActivationRow {
    const uint8_t *tile;
    size_t tile_rows, t;

    const int8_t *q(size_t g) const noexcept {
        return reinterpret_cast<const int8_t *>(tile + kActivationBytes * tile_rows * g + 32 * t);
    }
    float d(size_t g) const noexcept { return as_float(field(g, 0)); }
    float ds(size_t g) const noexcept { return as_float(field(g, 1)); }
    // Of d, ds, init0, init1, half0, half1.
    const uint8_t *field(size_t g, size_t index) const noexcept {
        return tile + kActivationBytes * tile_rows * g + 32 * tile_rows + 4 * (index * tile_rows + t);
    }

  private:
    static float as_float(const uint8_t *bytes) noexcept {
        float value;
        std::memcpy(&value, bytes, 4);
        return value;
    }
};

// Bytes for m rows of k elements (k a multiple of 32).
constexpr size_t activation_bytes(size_t m, size_t k) noexcept {
    return m * (k / 32) * kActivationBytes;
}

// Unquantised activations lie in tiles as well: f32 [k][T] per tile. Bytes for m rows of k elements.
constexpr size_t f32_activation_bytes(size_t m, size_t k) noexcept {
    return m * k * sizeof(float);
}

// Quantises one row of k elements: contract step 1.
void quantize_row(DotFamily family, nybl_format type, const uint8_t *x, size_t k,
                  ActivationGroup *groups) noexcept;

// Writes a quantised row as row t of a tile of `tile_rows`, whose first group is at `tile`.
void scatter_row(const ActivationGroup *groups, size_t n_groups, size_t t, size_t tile_rows,
                 uint8_t *tile) noexcept;
// The same from a row of another tile.
void copy_row(const ActivationRow &from, size_t n_groups, size_t t, size_t tile_rows, uint8_t *tile) noexcept;

// Writes n elements of a row as row t of an f32 tile of `tile_rows`, whose first element is at `tile`.
void scatter_f32_row(nybl_format type, const uint8_t *x, size_t n, size_t t, size_t tile_rows,
                     uint8_t *tile) noexcept;

} // namespace nybl::cpu
