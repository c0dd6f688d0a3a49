// Q4_K: super-blocks of 256, eight groups with 6-bit scales and minima, 4-bit codes (layout and codec:
// k_block.h).
#include "quant/k_block.h"

namespace nybl::quant {

const Format kFormatQ4_K = weight_format<KBlock<false>>(NYBL_Q4_K, "Q4_K", 32, true, NYBL_Q8_K);

} // namespace nybl::quant
