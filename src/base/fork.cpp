// The fork count (kept by pthread_atfork) and the lock that knows about it.
#include "base/fork.h"

#include <pthread.h>

#include "base/futex.h"

namespace nybl {
namespace {

std::atomic<uint32_t> g_generation{0};

uint32_t held_by_us(uint32_t generation) noexcept {
    return (generation + 1) << 1;
}

} // namespace

uint32_t fork_generation() noexcept {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
    return g_generation.load(std::memory_order_relaxed);
}

bool ForkLock::try_lock() noexcept {
    const uint32_t mine = held_by_us(fork_generation());
    uint32_t seen = word_.load(std::memory_order_relaxed);
    while (seen == 0 || (seen & ~1u) != mine)
        if (word_.compare_exchange_weak(seen, mine, std::memory_order_acquire, std::memory_order_relaxed))
            return true;
    return false;
}

void ForkLock::lock() noexcept {
    if (try_lock())
        return;
    const uint32_t contended = held_by_us(fork_generation()) | 1u;
    // From here on we take the lock marked as contended: others may be waiting too.
    for (uint32_t seen = word_.load(std::memory_order_relaxed);;) {
        if (seen == 0) {
            if (word_.compare_exchange_weak(seen, contended, std::memory_order_acquire,
                                            std::memory_order_relaxed))
                return;
        } else if (seen == contended ||
                   word_.compare_exchange_weak(seen, contended, std::memory_order_relaxed)) {
            futex_wait(word_, contended);
            seen = word_.load(std::memory_order_relaxed);
        }
    }
}

void ForkLock::unlock() noexcept {
    if (word_.exchange(0, std::memory_order_release) & 1u)
        futex_wake(word_, 1);
}

} // namespace nybl
