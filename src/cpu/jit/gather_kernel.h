// Original blocks of 16 rows to packed panel blocks (panel.h), so that weights which stay where they are meet
// the kernels that read panels.
#pragma once

#include "cpu/jit/code_cache.h"
#include "cpu/panel.h"

namespace nybl::cpu::jit {

struct GatherArgs {
    const uint8_t *const *rows; // 16: each row's first block to gather, at any alignment
    uint8_t *dst;               // packed panel blocks
    size_t blocks;              // to gather, > 0
    ptrdiff_t ahead;            // from a byte that is read to one that is worth fetching into the cache
};
using GatherFn = void (*)(const GatherArgs *);

// Reads the bytes of the blocks and none besides. Generated at the first call; NULL where code cannot be
// generated.
GatherFn gather_kernel(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu::jit
