// Sizes of this machine's caches: blocking depends on them, results do not.
#pragma once

#include <cstddef>
#include <unistd.h>

namespace nybl::cpu {

// Of one core. A size that every CPU of recent years has, where the system does not tell.
inline size_t second_level_cache_bytes() noexcept {
    constexpr size_t kUsual = 512 << 10;
#ifdef _SC_LEVEL2_CACHE_SIZE
    static const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return told > 0 ? static_cast<size_t>(told) : kUsual;
#else
    return kUsual;
#endif
}

} // namespace nybl::cpu
