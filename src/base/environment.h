// The one place where the library reads environment variables.
#pragma once

#include <cstdlib>

namespace nybl {

// NULL where it is not set, or where the program has more rights than who started it (set-user-ID): variables
// name files and libraries.
inline const char *environment(const char *name) noexcept {
#ifdef __linux__
    return secure_getenv(name);
#else
    return std::getenv(name);
#endif
}

} // namespace nybl
