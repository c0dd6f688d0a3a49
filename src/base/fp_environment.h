// Codecs and kernels promise bits that hold whatever rounding or flush-to-zero mode the calling thread is in.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace nybl {

// Default floating-point modes while it lives (round to nearest, subnormals kept); the caller's come back
// after.
class DefaultFpEnvironment {
  public:
#if defined(__x86_64__)
    DefaultFpEnvironment() noexcept : saved_(_mm_getcsr()) {
        _mm_setcsr(0x1F80);
    }
    ~DefaultFpEnvironment() {
        _mm_setcsr(saved_);
    }
#else
    DefaultFpEnvironment() noexcept {}
    ~DefaultFpEnvironment() {}
#endif
    DefaultFpEnvironment(const DefaultFpEnvironment &) = delete;
    DefaultFpEnvironment &operator=(const DefaultFpEnvironment &) = delete;

#if defined(__x86_64__)
  private:
    unsigned saved_;
#endif
};

} // namespace nybl
