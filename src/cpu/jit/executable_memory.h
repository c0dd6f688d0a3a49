// Memory for generated code that is never writable and executable at once.
//
// Every kernel gets pages of its own: mapped writable, filled, then made read-and-execute for good. Kernels
// are few (one per kind, not per shape), so the rounding up to pages is cheaper than making a shared page
// writable again while other threads run on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nybl::cpu::jit {

// NULL where this process may generate code; else one static sentence saying why not. The first call tries it
// with one page; a refusal that comes later (a filter installed after start) is remembered too.
const char *jit_refusal() noexcept;

// A read-and-execute copy of `code`, page-aligned. NULL with a recorded sentence where memory is short or the
// system refuses executable pages.
const void *make_executable(std::span<const uint8_t> code) noexcept;

// Gives the pages of make_executable back; nothing may run on them any more.
void release_executable(const void *entry, size_t code_bytes) noexcept;

} // namespace nybl::cpu::jit
