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

// Of this machine. Asks Linux for tile data (once, for the whole process), unless NYBL_MAX_ISA rules it out.
CpuRegisters read_cpu_registers() noexcept;
// The best that these registers and the cap allow; a cap above them is no error.
nybl_isa detect_isa(const CpuRegisters &registers, nybl_isa cap = NYBL_ISA_BEST) noexcept;
// Whether they allow this one: AVX-512 machines may lack AVX-VNNI.
bool isa_available(const CpuRegisters &registers, nybl_isa isa) noexcept;

// The processor's own name and its signature, since virtual machines like to say "Processor" only: "AMD EPYC
// 7763 64-Core Processor, a00f11".
struct CpuModel {
    char text[64];
};
CpuModel cpu_model() noexcept;

// The name in text ("avx2"), and back; NYBL_ISA_BEST for NULL, "" or an unknown name.
const char *isa_name(nybl_isa isa) noexcept;
nybl_isa isa_from_name(const char *name) noexcept;

// What this process may use: the machine, capped by NYBL_MAX_ISA in the environment and by `cap`; scalar
// where the system refuses generated code (jit::jit_refusal() has the sentence).
nybl_isa effective_isa(nybl_isa cap) noexcept;

} // namespace nybl::cpu
