// How many threads this process may use: the cores of its affinity mask, no more than its cgroup's quota pays
// for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nybl::cpu {

// Reads a whole small file as text (NUL-terminated, at most `size` bytes with the NUL); false where there is
// none.
using ReadText = bool (*)(void *user, const char *path, char *text, size_t size);

// Whole cores that the cgroup quota (v1 or v2, the tightest of this group and its ancestors) allows, at least
// 1: 1.9 CPUs give 1. 0: no quota. Pure: everything it knows comes through `read`.
uint32_t quota_cores(ReadText read, void *user) noexcept;

// The cores in this thread's affinity mask.
uint32_t affinity_cores() noexcept;

// Both together, for this process; at least 1.
uint32_t default_thread_count() noexcept;

} // namespace nybl::cpu
