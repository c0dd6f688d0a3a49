// Quantised activations: int8 per group of 32, laid out in the token tiles of a micro-kernel.
//
// Tokens are split into tiles of `mr`; the last tile holds the rest. A tile of T tokens stores its groups one
// after the other, 48*T bytes each, so that a micro-kernel walks one pointer:
//
//   i8  q[T][32]      the quants
//   f32 d[T]          the scales                  (contract: d = max|x|/127)
//   f32 ds[T]         d * S, S the sum of q       (factor of a weight minimum)
//   u32 init0[T]      what an integer accumulator of a format with an offset starts from, by dot family:
//   u32 init1[T]        Madd:  i16 pair -8*(S01, S23) and -11*(S01, S23), where S01 sums the q of elements
//                              0, 1 (mod 4) and S23 those of 2, 3 (mod 4): the lanes of vpmaddubsw
//                       Dot:   i32 -8*S and -128*S (vpdpbusd)
//
// Tile t of group count G starts at byte 48*G*mr*t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::cpu {

constexpr size_t kActivationBytes = 48; // per token and group

enum class DotFamily : uint8_t { Madd, Dot };

// Bytes for m tokens of k elements (k a multiple of 32).
constexpr size_t activation_bytes(size_t m, size_t k) noexcept { return m * (k / 32) * kActivationBytes; }

// Quantises tokens [m_begin, m_end) of a batch of m (m_begin a multiple of mr, or any where mr is 1) into `dst`,
// the start of the whole buffer. x is row-major F32, F16 or BF16 with a row stride in bytes.
void quantize_activations(DotFamily family, nybl_format x_type, const void *x, size_t x_stride, size_t m, size_t k,
                          size_t mr, size_t m_begin, size_t m_end, uint8_t *dst) noexcept;

} // namespace nybl::cpu
