// When tests of a device do not run.
#pragma once

#include <catch2/catch_test_macros.hpp>

namespace nybl::test {

// OpenCL drivers are not built for sanitizers: they leak by design and start threads of their own.
inline void skip_under_sanitizers() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("OpenCL drivers are not run under a sanitizer");
#endif
}

} // namespace nybl::test
