// The library's own way: the host's convention, and the code as it was generated.
#include "cpu/jit/place.h"

#include "cpu/jit/executable_memory.h"
#include "cpu/jit/profiler.h"

namespace nybl::cpu::jit {

const void *place_kernel(Generator &generator, const char *name) {
    const std::span<const uint8_t> code = generator.finish();
    const void *entry = make_executable(code);
    if (entry != nullptr)
        announce_kernel(name, entry, code.size());
    return entry;
}

} // namespace nybl::cpu::jit
