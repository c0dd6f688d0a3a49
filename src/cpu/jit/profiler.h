// Tells profilers and people about generated code, where the environment asks for it; otherwise does nothing.
//
//   NYBL_PERF=map       a line per kernel in /tmp/perf-PID.map, which perf report reads
//   NYBL_PERF=jitdump   jit-PID.dump in $JITDUMPDIR (or /tmp), for perf inject --jit: disassembly too
//   NYBL_JIT_DUMP=dir   NAME.bin (the bytes) and NAME.txt (how to disassemble them) per kernel
//
// docs/profiling.md shows each in use. A file that cannot be written is left out: profiling never fails a
// call.
#pragma once

#include <cstddef>

namespace nybl::cpu::jit {

// One kernel has been placed. Callers serialise.
void announce_kernel(const char *name, const void *code, size_t bytes) noexcept;

} // namespace nybl::cpu::jit
