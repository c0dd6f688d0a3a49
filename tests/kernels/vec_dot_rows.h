// Random rows of weight and activation blocks for the block-level dot product: every quant byte that is
// legal, scales that are ordinary numbers, each row fenced by pages that must not be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <nybl/nybl.h>

#include "fenced.h"

namespace nybl::test {

struct VecDotFormat {
    nybl_format id;
    const char *name;
    size_t block, w_bytes, a_bytes;
    std::vector<size_t> w_halves, a_halves; // where a block has f16 fields
};

inline const std::vector<VecDotFormat> &vec_dot_formats() {
    static const std::vector<VecDotFormat> formats = {
        {NYBL_Q4_0, "Q4_0", 32, 18, 34, {0}, {0}},       {NYBL_IQ4_NL, "IQ4_NL", 32, 18, 34, {0}, {0}},
        {NYBL_Q4_1, "Q4_1", 32, 20, 36, {0, 2}, {0, 2}}, {NYBL_Q5_1, "Q5_1", 32, 24, 36, {0, 2}, {0, 2}},
        {NYBL_Q5_0, "Q5_0", 32, 22, 34, {0}, {0}},       {NYBL_Q4_K, "Q4_K", 256, 144, 292, {0, 2}, {}},
        {NYBL_Q5_K, "Q5_K", 256, 176, 292, {0, 2}, {}},  {NYBL_Q8_0, "Q8_0", 32, 34, 34, {0}, {0}},
        {NYBL_Q6_K, "Q6_K", 256, 210, 292, {208}, {}},
    };
    return formats;
}

struct VecDotRows {
    VecDotRows(const VecDotFormat &format_, size_t blocks_, Fenced::Fence fence = Fenced::Fence::Behind)
        : format(format_), blocks(blocks_), w(blocks_ * format_.w_bytes, fence),
          a(blocks_ * format_.a_bytes, fence) {}

    uint64_t k() const { return blocks * format.block; }
    uint8_t *w_block(size_t b) const { return w.data() + b * format.w_bytes; }
    uint8_t *a_block(size_t b) const { return a.data() + b * format.a_bytes; }

    // Any bytes, then f16 fields with exponents in the middle of the range (now and then a subnormal or zero)
    // and f32 scales of about one.
    void fill(std::mt19937 &random) {
        for (size_t i = 0; i < blocks * format.w_bytes; ++i) {
            w.data()[i] = static_cast<uint8_t>(random());
        }
        for (size_t i = 0; i < blocks * format.a_bytes; ++i) {
            a.data()[i] = static_cast<uint8_t>(random());
        }
        for (size_t b = 0; b < blocks; ++b) {
            for (const size_t at : format.w_halves) {
                put(w_block(b) + at, half(random));
            }
            for (const size_t at : format.a_halves) {
                put(a_block(b) + at, half(random));
            }
            if (format.block == 256) {
                put(a_block(b), std::uniform_real_distribution<float>(-2, 2)(random));
            }
        }
    }

    template <class T>
    static void put(uint8_t *to, T value) {
        std::memcpy(to, &value, sizeof value);
    }

    const VecDotFormat &format;
    const size_t blocks;
    const Fenced w, a;

  private:
    static uint16_t half(std::mt19937 &random) {
        const auto bits = static_cast<uint32_t>(random());
        const uint32_t exponent = bits % 16 == 0 ? 0 : 8 + (bits >> 4) % 12;
        return static_cast<uint16_t>(((bits >> 16) & 0x83FF) | exponent << 10);
    }
};

} // namespace nybl::test
