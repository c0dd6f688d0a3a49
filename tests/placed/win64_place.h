// Kernels made for the Win64 convention, called from System V code through bridges that watch them.
#pragma once

#include <set>

#include "cpu/jit/code_cache.h"

namespace nybl::test {

// What was placed so far, by kind and instruction set.
std::set<std::pair<cpu::jit::KernelKind, nybl_isa>> placed_kernels();

} // namespace nybl::test
