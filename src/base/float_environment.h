// The floating-point environment that the numeric contract assumes, for the life of an object: round to
// nearest even, subnormals kept, no traps. The caller's own comes back unchanged, exception flags included.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace nybl {

#if defined(__x86_64__) || defined(__i386__)
class FloatEnvironment {
  public:
    // Writing the register waits for all arithmetic in flight, so it is written only where that changes it.
    FloatEnvironment() noexcept : saved_(_mm_getcsr()) {
        if ((saved_ & ~kFlags) != kDefault) {
            _mm_setcsr(kDefault);
        }
    }
    ~FloatEnvironment() {
        if (_mm_getcsr() != saved_) {
            _mm_setcsr(saved_);
        }
    }
    FloatEnvironment(const FloatEnvironment &) = delete;
    FloatEnvironment &operator=(const FloatEnvironment &) = delete;

  private:
    static constexpr unsigned kFlags = 0x3f;     // exceptions so far
    static constexpr unsigned kDefault = 0x1f80; // all exceptions masked; FTZ, DAZ and the rounding bits zero
    unsigned saved_;
};
#else
class FloatEnvironment {
  public:
    FloatEnvironment() noexcept {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatEnvironment() { std::fesetenv(&saved_); }
    FloatEnvironment(const FloatEnvironment &) = delete;
    FloatEnvironment &operator=(const FloatEnvironment &) = delete;

  private:
    std::fenv_t saved_;
};
#endif

} // namespace nybl
