// place_kernel() with a fault: the kernel that NYBL_MUTANT names ("NAME OFFSET HEX") gets these bytes from
// that offset on. mutate.py decides which; without the variable kernels are what they are.
#include "cpu/jit/place.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/jit/executable_memory.h"
#include "cpu/jit/profiler.h"

namespace {

struct Fault {
    char kernel[64] = "";
    size_t offset = 0;
    std::vector<uint8_t> bytes;

    Fault() {
        const char *text = std::getenv("NYBL_MUTANT");
        if (text == nullptr)
            return;
        int read = 0;
        if (std::sscanf(text, "%63s %zu %n", kernel, &offset, &read) != 2) {
            std::fprintf(stderr, "NYBL_MUTANT is \"NAME OFFSET HEX\"\n");
            std::exit(2);
        }
        unsigned byte = 0;
        for (const char *hex = text + read; std::sscanf(hex, "%2x", &byte) == 1; hex += 2)
            bytes.push_back(uint8_t(byte));
    }
};

} // namespace

const void *nybl::cpu::jit::place_kernel(Generator &generator, const char *name) {
    static const Fault fault;
    const std::span<const uint8_t> whole = generator.finish();
    std::vector<uint8_t> code(whole.begin(), whole.end());
    if (std::strcmp(name, fault.kernel) == 0 && fault.offset + fault.bytes.size() <= code.size()) {
        std::copy(fault.bytes.begin(), fault.bytes.end(), code.begin() + ptrdiff_t(fault.offset));
        std::fprintf(stderr, "mutated %s\n", name);
    }
    const void *entry = make_executable(code);
    if (entry != nullptr)
        announce_kernel(name, entry, code.size());
    return entry;
}
