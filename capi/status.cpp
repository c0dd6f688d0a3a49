// Texts and numbers about the library itself.
#include <nybl/nybl.h>

#include "base/status.h"
#include "cpu/isa.h"

namespace {

#if defined(__clang__)
#define NYBL_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define NYBL_COMPILER "gcc " __VERSION__
#else
#define NYBL_COMPILER "another compiler"
#endif
constexpr char kBuildInfo[] = "nybl " NYBL_VERSION_TEXT ", " NYBL_COMPILER ", " NYBL_GPU_PATHS;

} // namespace

const char *nybl_status_string(nybl_status status) {
    switch (status) {
    case NYBL_OK:
        return "ok";
    case NYBL_INVALID_ARGUMENT:
        return "invalid argument";
    case NYBL_INVALID_DATA:
        return "invalid data";
    case NYBL_UNSUPPORTED:
        return "unsupported";
    case NYBL_UNSUPPORTED_HARDWARE:
        return "unsupported hardware";
    case NYBL_OUT_OF_MEMORY:
        return "out of memory";
    case NYBL_BUFFER_TOO_SMALL:
        return "buffer too small";
    case NYBL_JIT_FAILURE:
        return "kernel generation failed";
    case NYBL_DEVICE_ERROR:
        return "device error";
    case NYBL_INTERNAL:
        return "internal error";
    case NYBL_CANCELLED:
        return "cancelled";
    }
    return "unknown status";
}

const char *nybl_last_error(void) {
    return nybl::last_error();
}

uint32_t nybl_version(void) {
    return NYBL_VERSION_MAJOR * 10000 + NYBL_VERSION_MINOR * 100 + NYBL_VERSION_PATCH;
}

const char *nybl_build_info(void) {
    return kBuildInfo;
}

const char *nybl_isa_string(nybl_isa isa) {
    return nybl::cpu::isa_name(isa);
}
