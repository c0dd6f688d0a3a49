// Surviving fork(): a count of forks that this process came through, and a lock that a child can take even
// where a thread that the child does not have held it.
#pragma once

#include <atomic>
#include <cstdint>

namespace nybl {

// 0 in the process that loaded the library, one more in each forked child. Threads and locks of another
// generation do not exist here.
uint32_t fork_generation() noexcept;

// A futex lock (std::lock_guard works with it). What it guards must make sense at every instruction, since a
// child may take it over in the middle of the parent's critical section.
class ForkLock {
  public:
    bool try_lock() noexcept;
    void lock() noexcept;
    void unlock() noexcept;

  private:
    std::atomic<uint32_t> word_{0}; // 0: free; else generation + 1, doubled, plus 1 where somebody waits
};

} // namespace nybl
