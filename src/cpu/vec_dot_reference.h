// The contract of the block-level dot product in plain C++: one row of original weight blocks times one row
// of Q8_0, Q8_1 or Q8_K blocks. Generated kernels return the same bits.
//
// Eight partial sums in f32, acc[0..7], start at +0 and run over the blocks in ascending order. Integer sums
// are exact for every legal byte, q = -128 included.
//
// Blocks of 32 (Q4_0, Q5_0, Q8_0, IQ4_NL with Q8_0; Q4_1, Q5_1 with Q8_1): even blocks use lanes 0..3, odd
// blocks 4..7.
//   Lane j (or 4 + j), j = 0..3, sums the elements 4j .. 4j+3 and 16+4j .. 16+4j+3 of the block, as one
//   integer:
//     acc[lane] = fma(f32(sum of code*q), f32(d_w * d_a), acc[lane])
//   Minimums have four partial sums of their own, least[b mod 4] for block b:
//     least[b mod 4] = fma(m, s, least[b mod 4])
//   s is the f16 sum that Q8_1 stores; where that is not finite, f32(d_a * f32(sum of q)) instead.
// Blocks of 256 (Q4_K, Q5_K with Q8_K): lane j = 0..7 sums the elements 32i + 4j .. 32i + 4j+3, each times
// the
//   6-bit scale sc[i] of its sub-block i = 0..7, as one integer; minimums go by sub-block:
//     acc[j] = fma(f32(sum of sc*code*q), f32(d_w * d_a), acc[j]), then
//     acc[j] = fma(f32(mn[j] * (bsums[2j] + bsums[2j+1])), -f32(dmin * d_a), acc[j])
// Q6_K with Q8_K: the same lanes with the scale sc of each group of 16 and the unsigned code, 0 .. 63; the 32
// that it is stored with comes off by sub-block, still in integers:
//     least = 32 * (sc[2j] * bsums[2j] + sc[2j+1] * bsums[2j+1])
//     acc[j] = fma(f32(sum of sc*code*q - least), f32(d_w * d_a), acc[j])
//
// The tree: t[j] = acc[j] + acc[j+4], j = 0..3; y = (t[0] + t[2]) + (t[1] + t[3]); where there are minimums,
// y = y + ((least[0] + least[2]) + (least[1] + least[3])). One rounding each, to nearest even.
//
// Two blocks of 32 share the eight lanes because one multiply-add then serves both: four lanes of a ymm are
// what one block's 32 products fold into without a shuffle. The separate minimum sums let four headers be
// multiplied at once.
#pragma once

#include <nybl/nybl.h>

namespace nybl::cpu {

// The function for a weight format; NULL where it has no block-level dot product. k counts elements, a
// multiple of the block; pointers may be unaligned.
nybl_vec_dot_fn find_vec_dot_reference(nybl_format format) noexcept;

} // namespace nybl::cpu
