// The f64 oracle: what the bytes mean and what a product is, written from docs/formats.md for the tests
// alone. It includes nothing from src/, so that a mistake there cannot be made twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>
#include <vector>

namespace oracle {

double half_to_double(uint16_t bits);

size_t row_bytes(nybl_format format, size_t k);

// The exact values of one row of k elements; any block format, activation blocks included.
// (A K format's scale times code is rounded to f32 by the library; here it is not.)
std::vector<double> dequantize(nybl_format format, const void *row, size_t k);

// y[m][n] = sum over k of x[m][k] * w[n][k] + bias[n], x not quantised; rows of w are `stride` bytes apart
// (0: contiguous).
std::vector<double> matmul(nybl_format format, const void *w, size_t stride, size_t n, size_t k,
                           const float *x, size_t m, const float *bias = nullptr);

// sum (y - exact)^2 / sum exact^2; 0 where both sums are 0.
double nmse(const float *y, const std::vector<double> &exact);

} // namespace oracle
