// Stores that go to memory without a place in the caches, for outputs that are read long after.
#pragma once

#include <cstring>

#include "cpu/panel.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace nybl::cpu {

// One cache line of outputs: the 16 rows of a panel. `to` is 64-byte aligned.
inline void store_line_past_caches(uint8_t *to, const float *from) noexcept {
#if defined(__x86_64__) || defined(_M_X64)
    for (size_t i = 0; i < kPanelRows; i += 4)
        _mm_stream_ps(reinterpret_cast<float *>(to) + i, _mm_loadu_ps(from + i));
#else
    std::memcpy(to, from, sizeof(float) * kPanelRows);
#endif
}

// Before other threads are told of such lines: these stores are not ordered with ordinary ones.
inline void finish_stores_past_caches() noexcept {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_sfence();
#endif
}

} // namespace nybl::cpu
