// Sleeping until a 32-bit word changes. std::atomic::wait cannot wake a chosen number of threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace nybl {

// Returns when woken, at once where `word` is not `expected`, and sometimes for no reason.
void futex_wait(std::atomic<uint32_t> &word, uint32_t expected) noexcept;
void futex_wake(std::atomic<uint32_t> &word, uint32_t threads) noexcept;

} // namespace nybl
