// The sixteen values that IQ4_NL's codes stand for.
#pragma once

#include <cstdint>

namespace nybl::quant {

constexpr int8_t kIq4NlTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

} // namespace nybl::quant
