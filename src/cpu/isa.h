// Which instruction sets a machine has: a pure function of register values, so that tests can ask about
// machines they do not have.
#pragma once

#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::cpu {

// The CPUID and XCR0 values that detection reads.
struct CpuRegisters {
    uint32_t max_leaf = 0;
    uint32_t leaf1_ecx = 0;
    uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
    uint32_t leaf7_1_eax = 0;
    uint64_t xcr0 = 0;           // 0 where OSXSAVE is off
    bool amx_permission = false; // the operating system grants tile data to this process
};

CpuRegisters read_cpu_registers() noexcept;                  // of this machine
nybl_isa detect_isa(const CpuRegisters &registers) noexcept; // the best that these registers allow
bool isa_available(const CpuRegisters &registers,
                   nybl_isa isa) noexcept; // AVX-512 machines may lack AVX-VNNI

// The name in text ("avx2"), and back; NYBL_ISA_BEST for NULL, "" or an unknown name.
const char *isa_name(nybl_isa isa) noexcept;
nybl_isa isa_from_name(const char *name) noexcept;

// What this process may use: the machine, capped by NYBL_MAX_ISA in the environment and by `cap`.
nybl_isa effective_isa(nybl_isa cap) noexcept;

} // namespace nybl::cpu
