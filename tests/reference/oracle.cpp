// The f64 oracle; see oracle.h for why it repeats what src/quant knows.
#include "reference/oracle.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace oracle {
namespace {

using Bytes = const uint8_t *;

double half_at(Bytes p) {
    return half_to_double(static_cast<uint16_t>(p[0] + 256 * p[1]));
}

double float_at(Bytes p) {
    const uint32_t bits = p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
    const int exponent = static_cast<int>(bits >> 23 & 255);
    const double mantissa = (bits & 0x7FFFFF) + (exponent ? 0x800000 : 0);
    if (exponent == 255)
        return std::numeric_limits<double>::quiet_NaN();
    const double value = std::ldexp(mantissa, (exponent ? exponent : 1) - 150);
    return bits >> 31 ? -value : value;
}

int signed_byte(uint8_t b) {
    return b < 128 ? b : b - 256;
}

int nibble(Bytes qs, int j) {
    return j < 16 ? qs[j] % 16 : qs[j - 16] / 16;
}

int fifth_bit(Bytes qh, int j) {
    return qh[j / 8] >> (j % 8) & 1;
}

constexpr int kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct Pair {
    int scale, min;
};
Pair k_pair(Bytes scales, int i) {
    if (i < 4)
        return {scales[i] % 64, scales[i + 4] % 64};
    return {scales[i + 4] % 16 + scales[i - 4] / 64 * 16, scales[i + 4] / 16 + scales[i] / 64 * 16};
}

// Element e (0..255) of a Q4_K or Q5_K block.
double k_value(Bytes block, bool five, int e) {
    const int sub = e / 32, l = e % 32;
    Bytes codes = block + (five ? 48 : 16);
    const int byte = codes[32 * (sub / 2) + l];
    int q = sub % 2 ? byte / 16 : byte % 16;
    if (five)
        q += 16 * (block[16 + l] >> sub & 1);
    const Pair pair = k_pair(block + 4, sub);
    return half_at(block) * pair.scale * q - half_at(block + 2) * pair.min;
}

double q6_k_value(Bytes block, int e) {
    const int half = e / 128, run = e % 128 / 32, l = e % 32;
    const int byte = block[64 * half + 32 * (run % 2) + l];
    const int low = run < 2 ? byte % 16 : byte / 16;
    const int high = block[128 + 32 * half + l] >> (2 * run) & 3;
    return half_at(block + 208) * signed_byte(block[192 + e / 16]) * (low + 16 * high - 32);
}

struct Layout {
    size_t size, bytes;
};
Layout layout(nybl_format format) {
    switch (format) {
    case NYBL_Q4_0:
    case NYBL_IQ4_NL:
        return {32, 18};
    case NYBL_IQ4_NL_ROW:
        return {32, 17};
    case NYBL_Q4_1:
        return {32, 20};
    case NYBL_Q5_0:
        return {32, 22};
    case NYBL_Q5_1:
        return {32, 24};
    case NYBL_Q8_0:
        return {32, 34};
    case NYBL_Q8_1:
        return {32, 36};
    case NYBL_Q4_K:
        return {256, 144};
    case NYBL_Q5_K:
        return {256, 176};
    case NYBL_Q6_K:
        return {256, 210};
    case NYBL_Q8_K:
        return {256, 292};
    default:
        throw std::invalid_argument("the oracle does not know this format");
    }
}

double value(nybl_format format, Bytes block, int e) {
    switch (format) {
    case NYBL_Q4_0:
        return half_at(block) * (nibble(block + 2, e) - 8);
    case NYBL_IQ4_NL:
        return half_at(block) * kTable[nibble(block + 2, e)];
    case NYBL_IQ4_NL_ROW: // but for the row's factor
        return signed_byte(block[0]) * kTable[nibble(block + 1, e)];
    case NYBL_Q4_1:
        return half_at(block) * nibble(block + 4, e) + half_at(block + 2);
    case NYBL_Q5_0:
        return half_at(block) * (nibble(block + 6, e) + 16 * fifth_bit(block + 2, e) - 16);
    case NYBL_Q5_1:
        return half_at(block) * (nibble(block + 8, e) + 16 * fifth_bit(block + 4, e)) + half_at(block + 2);
    case NYBL_Q8_0:
        return half_at(block) * signed_byte(block[2 + e]);
    case NYBL_Q8_1:
        return half_at(block) * signed_byte(block[4 + e]);
    case NYBL_Q8_K:
        return float_at(block) * signed_byte(block[4 + e]);
    case NYBL_Q4_K:
        return k_value(block, false, e);
    case NYBL_Q5_K:
        return k_value(block, true, e);
    default:
        return q6_k_value(block, e);
    }
}

} // namespace

double half_to_double(uint16_t bits) {
    const int sign = bits >> 15, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude;
    if (exponent == 31)
        magnitude =
            fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else
        magnitude = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    return sign ? -magnitude : magnitude;
}

size_t row_bytes(nybl_format format, size_t k) {
    const Layout l = layout(format);
    if (k % l.size)
        throw std::invalid_argument("the oracle needs whole blocks");
    return k / l.size * l.bytes + (format == NYBL_IQ4_NL_ROW && k != 0 ? 4 : 0);
}

std::vector<double> dequantize(nybl_format format, const void *row, size_t k) {
    const Layout l = layout(format);
    row_bytes(format, k); // throws for a tail
    const Bytes blocks = static_cast<Bytes>(row);
    const double factor = format == NYBL_IQ4_NL_ROW && k != 0 ? float_at(blocks + k / l.size * l.bytes) : 1;
    std::vector<double> values(k);
    for (size_t i = 0; i < k; ++i)
        values[i] = factor * value(format, blocks + i / l.size * l.bytes, static_cast<int>(i % l.size));
    return values;
}

std::vector<double> matmul(nybl_format format, const void *w, size_t stride, size_t n, size_t k,
                           const float *x, size_t m, const float *bias) {
    const size_t step = stride ? stride : row_bytes(format, k);
    std::vector<double> y(m * n);
    for (size_t r = 0; r < n; ++r) {
        const std::vector<double> row = dequantize(format, static_cast<Bytes>(w) + r * step, k);
        for (size_t t = 0; t < m; ++t) {
            double sum = bias ? bias[r] : 0;
            for (size_t i = 0; i < k; ++i)
                sum += static_cast<double>(x[t * k + i]) * row[i];
            y[t * n + r] = sum;
        }
    }
    return y;
}

double nmse(const float *y, const std::vector<double> &exact) {
    double error = 0, energy = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        error += (y[i] - exact[i]) * (y[i] - exact[i]);
        energy += exact[i] * exact[i];
    }
    return error == 0 ? 0 : error / energy;
}

} // namespace oracle
