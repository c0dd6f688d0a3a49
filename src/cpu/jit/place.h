// The step from a generator to a kernel that can be called. A file of its own, since test programs link
// another one in its place: kernels of a foreign calling convention, kernels with a fault put in.
#pragma once

#include "cpu/jit/generator.h"

namespace nybl::cpu::jit {

// Finishes the kernel, copies it to executable pages and announces it by name. NULL with a recorded sentence
// where the system refuses; throws what Generator::finish throws. Callers serialise.
const void *place_kernel(Generator &generator, const char *name);

} // namespace nybl::cpu::jit
