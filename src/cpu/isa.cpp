// Reads CPUID, XCR0 and the tile permission, and decides from their values alone.
#include "cpu/isa.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "cpu/jit/executable_memory.h"

#if defined(__x86_64__) || defined(_M_X64)
#define NYBL_X86_64
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

#if defined(__linux__) && defined(__x86_64__)
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nybl::cpu {
namespace {

constexpr uint32_t bit(unsigned i) noexcept {
    return 1u << i;
}

// CPUID leaf 1, ecx.
constexpr uint32_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
// Leaf 7, ebx, ecx, edx; leaf 7 sub-leaf 1, eax.
constexpr uint32_t kBmi1 = bit(3), kAvx2 = bit(5), kBmi2 = bit(8);
constexpr uint32_t kAvx512f = bit(16), kAvx512dq = bit(17), kAvx512bw = bit(30), kAvx512vl = bit(31);
constexpr uint32_t kAvx512Vnni = bit(11);
constexpr uint32_t kAmxTile = bit(24), kAmxInt8 = bit(25);
constexpr uint32_t kAvxVnni = bit(4);
// XCR0: which state the operating system saves.
constexpr uint64_t kStateAvx = 0x6;     // xmm, ymm
constexpr uint64_t kStateAvx512 = 0xE6; // and mask registers, the upper halves of zmm, zmm16 .. zmm31
constexpr uint64_t kStateAmx = 0x60000; // tile configuration, tile data

constexpr bool has(uint64_t value, uint64_t bits) noexcept {
    return (value & bits) == bits;
}

constexpr std::array<const char *, 6> kNames = {"best", "scalar", "avx2", "avx_vnni", "avx512_vnni", "amx"};

bool has_tiles(const CpuRegisters &r) noexcept {
    return has(r.leaf7_edx, kAmxTile | kAmxInt8) && has(r.xcr0, kStateAmx);
}

#ifdef NYBL_X86_64

struct Leaf {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) noexcept {
    Leaf result;
#ifdef _MSC_VER
    int values[4];
    __cpuidex(values, static_cast<int>(leaf), static_cast<int>(subleaf));
    std::memcpy(&result, values, sizeof result);
#else
    __cpuid_count(leaf, subleaf, result.eax, result.ebx, result.ecx, result.edx);
#endif
    return result;
}

uint64_t read_xcr0() noexcept {
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    uint32_t low = 0, high = 0; // the intrinsic would need -mxsave
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
#endif
}

#endif

// Linux hands tile data out on request only, to the whole process and for good; it may refuse (an old kernel,
// a seccomp filter, a thread with a small signal stack).
[[maybe_unused]] bool ask_for_tiles() noexcept {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;
    const int kept = errno;
    const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    errno = kept;
    return granted;
#else
    return false;
#endif
}

nybl_isa lower_cap(nybl_isa a, nybl_isa b) noexcept {
    if (a == NYBL_ISA_BEST || b == NYBL_ISA_BEST) {
        return std::max(a, b);
    }
    return std::min(a, b);
}

nybl_isa environment_cap() noexcept {
    return isa_from_name(environment("NYBL_MAX_ISA"));
}

} // namespace

CpuRegisters read_cpu_registers() noexcept {
    CpuRegisters r;
#ifdef NYBL_X86_64
    r.max_leaf = cpuid(0, 0).eax;
    if (r.max_leaf >= 1) {
        r.leaf1_ecx = cpuid(1, 0).ecx;
    }
    if (r.max_leaf >= 7) {
        const Leaf leaf = cpuid(7, 0);
        r.leaf7_ebx = leaf.ebx;
        r.leaf7_ecx = leaf.ecx;
        r.leaf7_edx = leaf.edx;
        if (leaf.eax >= 1) {
            r.leaf7_1_eax = cpuid(7, 1).eax;
        }
    }
    if (has(r.leaf1_ecx, kOsxsave)) {
        r.xcr0 = read_xcr0();
    }
    // A process that is capped below tiles never asks: the permission enlarges its signal frames.
    const nybl_isa cap = environment_cap();
    if (has_tiles(r) && (cap == NYBL_ISA_BEST || cap >= NYBL_ISA_AMX)) {
        static const bool granted = ask_for_tiles();
        r.amx_permission = granted;
    }
#endif
    return r;
}

CpuModel cpu_model() noexcept {
    char name[49] = {};
    uint32_t signature = 0;
#ifdef NYBL_X86_64
    constexpr uint32_t kExtended = 0x80000000, kFirst = 0x80000002, kLast = 0x80000004;
    for (uint32_t leaf = kFirst; leaf <= kLast && cpuid(kExtended, 0).eax >= kLast; ++leaf) {
        const Leaf part = cpuid(leaf, 0);
        std::memcpy(name + 16 * (leaf - kFirst), &part, 16);
    }
    signature = cpuid(1, 0).eax;
#endif
    // Some names are padded in front, some behind.
    const char *begin = name + std::strspn(name, " ");
    size_t length = std::strlen(begin);
    while (length > 0 && begin[length - 1] == ' ') {
        --length;
    }
    CpuModel model{};
    std::snprintf(model.text, sizeof model.text, "%.*s, %x", static_cast<int>(length), begin, signature);
    return model;
}

bool isa_available(const CpuRegisters &r, nybl_isa isa) noexcept {
    switch (isa) {
    case NYBL_ISA_BEST:
    case NYBL_ISA_SCALAR:
        return true;
    case NYBL_ISA_AVX2:
        return r.max_leaf >= 7 && has(r.leaf1_ecx, kFma | kOsxsave | kAvx | kF16c) &&
               has(r.leaf7_ebx, kBmi1 | kAvx2 | kBmi2) && has(r.xcr0, kStateAvx);
    case NYBL_ISA_AVX_VNNI:
        return isa_available(r, NYBL_ISA_AVX2) && has(r.leaf7_1_eax, kAvxVnni);
    case NYBL_ISA_AVX512_VNNI:
        return isa_available(r, NYBL_ISA_AVX2) && has(r.xcr0, kStateAvx512) &&
               has(r.leaf7_ebx, kAvx512f | kAvx512dq | kAvx512bw | kAvx512vl) &&
               has(r.leaf7_ecx, kAvx512Vnni);
    case NYBL_ISA_AMX:
        return isa_available(r, NYBL_ISA_AVX512_VNNI) && has_tiles(r) && r.amx_permission;
    }
    return false;
}

nybl_isa detect_isa(const CpuRegisters &registers, nybl_isa cap) noexcept {
    for (int isa = cap == NYBL_ISA_BEST ? NYBL_ISA_AMX : cap; isa > NYBL_ISA_SCALAR; --isa) {
        if (isa_available(registers, static_cast<nybl_isa>(isa))) {
            return static_cast<nybl_isa>(isa);
        }
    }
    return NYBL_ISA_SCALAR;
}

const char *isa_name(nybl_isa isa) noexcept {
    const auto i = static_cast<size_t>(isa);
    return i < kNames.size() ? kNames[i] : "unknown";
}

nybl_isa isa_from_name(const char *name) noexcept {
    for (size_t i = NYBL_ISA_SCALAR; name != nullptr && i < kNames.size(); ++i) {
        if (std::strcmp(name, kNames[i]) == 0) {
            return static_cast<nybl_isa>(i);
        }
    }
    return NYBL_ISA_BEST;
}

nybl_isa effective_isa(nybl_isa cap) noexcept {
    if (jit::jit_refusal() != nullptr) {
        return NYBL_ISA_SCALAR;
    }
    static const CpuRegisters registers = read_cpu_registers();
    return detect_isa(registers, lower_cap(cap, environment_cap()));
}

} // namespace nybl::cpu
