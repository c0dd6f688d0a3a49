// Failure as a status code plus one sentence, kept per thread for nybl_last_error().
#pragma once

#include <nybl/nybl.h>

namespace nybl {

// Records the sentence (printf-style, at most 511 bytes, never allocates) as this thread's last error
// and returns `status`, so that a check reads `return fail(NYBL_INVALID_ARGUMENT, "...", ...)`.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
nybl_status
fail(nybl_status status, const char *format, ...) noexcept;

// This thread's last recorded sentence; "" where nothing failed yet. Valid until the thread's next failure.
const char *last_error() noexcept;

} // namespace nybl
