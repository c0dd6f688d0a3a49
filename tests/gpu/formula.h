// Codes, scales and scaled zero points of the affine formats, written down from docs/formats.md a second
// time and apart from src/, and blocks of random but legal bytes to try them on.
#pragma once

#include <cstdint>
#include <nybl/nybl.h>
#include <random>
#include <vector>

namespace nybl::test {

struct AffineBlockFormat {
    nybl_format id;
    const char *name;
    size_t block, bytes, group;
    int code_bits;
    bool is_signed, has_zero;
};
const std::vector<AffineBlockFormat> &affine_formats();

double f16_value(uint16_t bits);

struct AffineElement {
    int code;
    double scale, zero; // exact: not yet rounded to any parameter type; w = scale*code - zero
};
AffineElement affine_element(const AffineBlockFormat &format, const uint8_t *row, size_t k);

// n rows of k elements, contiguous. Scales are between 2^-10 and 2^-5, minima of either sign.
std::vector<uint8_t> random_blocks(const AffineBlockFormat &format, size_t n, size_t k, uint32_t seed);

} // namespace nybl::test
