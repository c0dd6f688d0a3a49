// The formulas of formula.h.
#include "gpu/formula.h"

#include <cmath>

namespace nybl::test {
namespace {

constexpr int kLut[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

double f16_at(const uint8_t *p) {
    return f16_value(static_cast<uint16_t>(p[0] | p[1] << 8));
}

int nibble(const uint8_t *qs, size_t j) {
    return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
}

AffineElement element_32(nybl_format id, const uint8_t *block, size_t j) {
    const double d = f16_at(block);
    switch (id) {
    case NYBL_Q4_0:
        return {nibble(block + 2, j) - 8, d, 0};
    case NYBL_IQ4_NL:
        return {kLut[nibble(block + 2, j)], d, 0};
    case NYBL_Q5_0:
        return {(nibble(block + 6, j) | (block[2 + j / 8] >> (j % 8) & 1) << 4) - 16, d, 0};
    case NYBL_Q8_0:
        return {static_cast<int8_t>(block[2 + j]), d, 0};
    case NYBL_Q4_1:
        return {nibble(block + 4, j), d, -f16_at(block + 2)};
    default: { // Q5_1
        const int high = block[4 + j / 8] >> (j % 8) & 1;
        return {nibble(block + 8, j) | high << 4, d, -f16_at(block + 2)};
    }
    }
}

// Halves of 128, each of four runs of 32: nibbles in 64 bytes, two bits more in 32.
AffineElement element_q6_k(const uint8_t *block, size_t j) {
    const size_t half = j / 128, run = j % 128 / 32, l = j % 32;
    const int low = block[64 * half + 32 * (run % 2) + l] >> (run < 2 ? 0 : 4) & 15;
    const int high = block[128 + 32 * half + l] >> (2 * run) & 3;
    return {(low | high << 4) - 32, f16_at(block + 208) * static_cast<int8_t>(block[192 + j / 16]), 0};
}

AffineElement element_256(nybl_format id, const uint8_t *block, size_t j) {
    if (id == NYBL_Q6_K)
        return element_q6_k(block, j);
    const uint8_t *scales = block + 4;
    const size_t i = j / 32, l = j % 32;
    const int sc = i < 4 ? scales[i] & 63 : (scales[i + 4] & 15) | (scales[i - 4] >> 6) << 4;
    const int mn = i < 4 ? scales[i + 4] & 63 : (scales[i + 4] >> 4) | (scales[i] >> 6) << 4;
    const uint8_t *qs = block + (id == NYBL_Q4_K ? 16 : 48);
    int code = qs[32 * (i / 2) + l] >> (i % 2 ? 4 : 0) & 15;
    if (id == NYBL_Q5_K)
        code |= (block[16 + l] >> i & 1) << 4;
    return {code, f16_at(block) * sc, f16_at(block + 2) * mn};
}

} // namespace

const std::vector<AffineBlockFormat> &affine_formats() {
    static const std::vector<AffineBlockFormat> formats = {
        {NYBL_Q4_0, "Q4_0", 32, 18, 32, 4, true, false},
        {NYBL_Q4_1, "Q4_1", 32, 20, 32, 4, false, true},
        {NYBL_Q5_1, "Q5_1", 32, 24, 32, 8, false, true},
        {NYBL_Q4_K, "Q4_K", 256, 144, 32, 4, false, true},
        {NYBL_Q5_K, "Q5_K", 256, 176, 32, 8, false, true},
        {NYBL_IQ4_NL, "IQ4_NL", 32, 18, 32, 8, true, false},
        {NYBL_Q5_0, "Q5_0", 32, 22, 32, 8, true, false},
        {NYBL_Q8_0, "Q8_0", 32, 34, 32, 8, true, false},
        {NYBL_Q6_K, "Q6_K", 256, 210, 16, 8, true, false}};
    return formats;
}

double f16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude =
        exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

AffineElement affine_element(const AffineBlockFormat &format, const uint8_t *row, size_t k) {
    const uint8_t *block = row + k / format.block * format.bytes;
    return format.block == 32 ? element_32(format.id, block, k % 32) : element_256(format.id, block, k % 256);
}

std::vector<uint8_t> random_blocks(const AffineBlockFormat &format, size_t n, size_t k, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> data(n * (k / format.block) * format.bytes);
    for (auto &byte : data)
        byte = static_cast<uint8_t>(random());
    for (size_t at = 0; at < data.size(); at += format.bytes) {
        // An f16 with exponent 5..9 (2^-10 to 2^-5) and a random fraction; the second one, a minimum, may be
        // negative.
        data[at + (format.id == NYBL_Q6_K ? 209 : 1)] =
            static_cast<uint8_t>((5 + random() % 5) << 2 | (random() & 3));
        if (format.has_zero)
            data[at + 3] =
                static_cast<uint8_t>((random() & 1) << 7 | (5 + random() % 5) << 2 | (random() & 3));
    }
    return data;
}

} // namespace nybl::test
