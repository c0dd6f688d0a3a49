// One quantised token times eight rows of original blocks: decode of weights that stay where they are.
#pragma once

#include "cpu/jit/code_cache.h"
#include "cpu/panel.h"

namespace nybl::cpu::jit {

constexpr size_t kOriginalRows = 8;

struct OriginalArgs {
    const uint8_t *const *rows; // 8: each row's first block, at any alignment
    const uint8_t *a;           // the activation groups that belong to it, of a tile of one row
    float *c;                   // [8], read and written: the accumulators
    size_t blocks;              // to run, > 0
    const uint8_t *next; // what is read next: fetched into the cache line by line, as far as a call reads
};
using OriginalFn = void (*)(const OriginalArgs *);

// Formats with such a kernel; the others are gathered into panels.
constexpr bool has_original_kernel(nybl_format format) noexcept {
    return format == NYBL_Q4_0 || format == NYBL_Q4_1 || format == NYBL_IQ4_NL || format == NYBL_Q4_K;
}
// Reads the bytes of the blocks and none besides. Generated at the first call; NULL where code cannot be
// generated.
OriginalFn original_kernel(nybl_format format, nybl_isa isa) noexcept;

} // namespace nybl::cpu::jit
