// The assembler, under a namespace of this library's own: a program that links us statically beside another
// library with another version of xbyak would otherwise mix two sets of inline functions of the same name.
#pragma once

// Only x86-64 code is ever generated, also where a cross build compiles these files for another processor.
#ifndef XBYAK64
#define XBYAK64
#endif
#define Xbyak nybl_xbyak
#include <xbyak/xbyak.h>
#undef Xbyak

namespace nybl {
namespace Xbyak = ::nybl_xbyak;
}
