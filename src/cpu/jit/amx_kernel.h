// The prefill micro-kernel on AMX: one byte panel times up to 16 tokens, int8 tiles of depth 32.
//
// A group's dot products come out of one tile multiplication; scales and minimums are applied group by group
// in vector registers, so that the bits are those of every other kernel. Codes are signed where the format
// has an offset or a table (no correction is needed), else unsigned.
#pragma once

#include "cpu/jit/tile_kernel.h"

namespace nybl::cpu::jit {

// As tile_kernel(WeightForm::Bytes, ...) for one panel, tokens <= 16, on byte panels unpacked for
// NYBL_ISA_AMX.
TileFn amx_kernel(nybl_format format, size_t tokens) noexcept;

} // namespace nybl::cpu::jit
