// Formats and deterministic data for the tests of src/quant.
#pragma once

#include "quant/codec.h"

#include <cstdint>
#include <string>
#include <vector>

namespace quant_test {

constexpr nybl_format kWeightFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1,   NYBL_Q8_0,
                                          NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW};
constexpr nybl_format kAllFormats[] = {NYBL_Q4_0, NYBL_Q4_1,   NYBL_Q5_0, NYBL_Q5_1,
                                       NYBL_Q8_0, NYBL_Q8_1,   NYBL_Q4_K, NYBL_Q5_K,
                                       NYBL_Q6_K, NYBL_IQ4_NL, NYBL_Q8_K, NYBL_IQ4_NL_ROW};
constexpr nybl_level kLevels[] = {NYBL_LEVEL_DEFAULT, NYBL_LEVEL_PLAIN, NYBL_LEVEL_FAST, NYBL_LEVEL_BEST};

// Bell-shaped around 0 (the sum of four uniform numbers), the same on every compiler and library.
class Numbers {
  public:
    explicit Numbers(uint64_t seed) : state_(seed) {}
    uint32_t bits() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 32);
    }
    float uniform() { return static_cast<float>(bits() >> 8) * 0x1p-24f; } // [0, 1)
    float bell() { return uniform() + uniform() + uniform() + uniform() - 2.0f; }
    std::vector<float> bells(size_t n) {
        std::vector<float> values(n);
        for (float &value : values)
            value = bell();
        return values;
    }

  private:
    uint64_t state_;
};

inline const nybl::quant::Format &format_of(nybl_format id) {
    return *nybl::quant::find_format(id);
}

// Encoded rows; the source must be one that check_source accepts.
std::vector<uint8_t> encode(nybl_format id, nybl_level level, const std::vector<float> &x, size_t rows,
                            const float *importance, nybl_isa isa = NYBL_ISA_SCALAR);
std::vector<float> decode(nybl_format id, const std::vector<uint8_t> &bytes, size_t rows,
                          nybl_isa isa = NYBL_ISA_SCALAR);

// Every encoder's bytes over ordinary, offset and outlier rows, and what every compiler makes of them.
uint64_t checksum_of_all();
constexpr uint64_t kEncodersChecksum = 0xD9502EE8CA81CBBFu;

} // namespace quant_test
