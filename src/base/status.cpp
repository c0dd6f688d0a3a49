// The per-thread error sentence behind nybl_last_error().
#include "base/status.h"

#include <cstdarg>
#include <cstdio>

namespace nybl {
namespace {
thread_local char t_last_error[512] = "";
}

nybl_status fail(nybl_status status, const char *format, ...) noexcept {
    va_list args;
    va_start(args, format);
    std::vsnprintf(t_last_error, sizeof t_last_error, format, args);
    va_end(args);
    return status;
}

const char *last_error() noexcept {
    return t_last_error;
}

} // namespace nybl
