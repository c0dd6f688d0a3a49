// The block-level dot product on the best instruction set at hand.
#pragma once

#include <nybl/nybl.h>

namespace nybl::cpu {

// The function for a weight format on an instruction set (or the next lower one that has a kernel): generated
// code, or the reference for scalar and where no code can be generated. NULL for a format without one. All
// give the same bits, whatever the calling thread's MXCSR, which they leave as it was.
nybl_vec_dot_fn find_vec_dot(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu
