// Calls generated code with a known value in every register that it must give back, under either convention.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/jit/generator.h"

namespace nybl::test {

// What the callee broke, in words ("rbx r13 xmm7 direction-flag"); "" when it kept every promise:
// callee-saved registers, rsp, MXCSR, the direction flag, and clean upper halves of ymm0 .. ymm15. Needs AVX.
std::string broken_by_call(const void *entry, const void *argument, cpu::jit::Abi abi);

} // namespace nybl::test
