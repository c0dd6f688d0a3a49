// Q5_K: super-blocks of 256, eight groups with 6-bit scales and minima, 5-bit codes (layout and codec:
// k_block.h).
#include "quant/k_block.h"

namespace nybl::quant {

const Format kFormatQ5_K = weight_format<KBlock<true>>(NYBL_Q5_K, "Q5_K", 32, true, NYBL_Q8_K);

} // namespace nybl::quant
