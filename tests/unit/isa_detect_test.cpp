// CPU detection over injected register values: machines that are not at hand, systems that withhold state.
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <string>

#include "cpu/isa.h"

using namespace nybl::cpu;

namespace {

CpuRegisters avx2_machine() {
    CpuRegisters r;
    r.max_leaf = 13;
    r.leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29; // FMA, OSXSAVE, AVX, F16C
    r.leaf7_ebx = 1u << 3 | 1u << 5 | 1u << 8;               // BMI1, AVX2, BMI2
    r.xcr0 = 0x7;
    return r;
}

CpuRegisters avx_vnni_machine() {
    CpuRegisters r = avx2_machine();
    r.leaf7_1_eax = 1u << 4;
    return r;
}

// As Ice Lake: AVX512-VNNI without AVX-VNNI.
CpuRegisters avx512_machine() {
    CpuRegisters r = avx2_machine();
    r.leaf7_ebx |= 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; // F, DQ, BW, VL
    r.leaf7_ecx = 1u << 11;                                   // VNNI
    r.xcr0 = 0xE7;
    return r;
}

CpuRegisters amx_machine() {
    CpuRegisters r = avx512_machine();
    r.leaf7_1_eax = 1u << 4;
    r.leaf7_edx = 1u << 24 | 1u << 25; // TILE, INT8
    r.xcr0 = 0x600E7;
    r.amx_permission = true;
    return r;
}

// Sets NYBL_MAX_ISA for a scope.
class MaxIsa {
  public:
    explicit MaxIsa(const char *value) {
        if (const char *before = std::getenv("NYBL_MAX_ISA")) {
            before_ = before;
            was_set_ = true;
        }
        setenv("NYBL_MAX_ISA", value, 1);
    }
    ~MaxIsa() {
        if (was_set_) {
            setenv("NYBL_MAX_ISA", before_.c_str(), 1);
        } else {
            unsetenv("NYBL_MAX_ISA");
        }
    }

  private:
    std::string before_;
    bool was_set_ = false;
};

} // namespace

TEST_CASE("complete machines are named", "[isa]") {
    CHECK(detect_isa(CpuRegisters{}) == NYBL_ISA_SCALAR);
    CHECK(detect_isa(avx2_machine()) == NYBL_ISA_AVX2);
    CHECK(detect_isa(avx_vnni_machine()) == NYBL_ISA_AVX_VNNI);
    CHECK(detect_isa(avx512_machine()) == NYBL_ISA_AVX512_VNNI);
    CHECK(detect_isa(amx_machine()) == NYBL_ISA_AMX);
}

TEST_CASE("C12: AVX2 needs each of its features", "[isa]") {
    for (const unsigned missing : {12u, 27u, 28u, 29u}) {
        CpuRegisters r = amx_machine();
        r.leaf1_ecx &= ~(1u << missing);
        CAPTURE(missing);
        CHECK(detect_isa(r) == NYBL_ISA_SCALAR);
    }
    for (const unsigned missing : {3u, 5u, 8u}) {
        CpuRegisters r = amx_machine();
        r.leaf7_ebx &= ~(1u << missing);
        CAPTURE(missing);
        CHECK(detect_isa(r) == NYBL_ISA_SCALAR);
    }
    CpuRegisters old = amx_machine();
    old.max_leaf = 6;
    CHECK(detect_isa(old) == NYBL_ISA_SCALAR);
}

TEST_CASE("C12: state that the system does not save is not used", "[isa]") {
    CpuRegisters r = avx2_machine();
    r.xcr0 = 0x3; // no ymm
    CHECK(detect_isa(r) == NYBL_ISA_SCALAR);
    r.xcr0 = 0;
    CHECK(detect_isa(r) == NYBL_ISA_SCALAR);

    r = avx512_machine();
    for (const uint64_t xcr0 : {0x7u, 0x27u, 0x67u, 0xC7u, 0xA7u}) {
        r.xcr0 = xcr0;
        CAPTURE(xcr0);
        CHECK(detect_isa(r) == NYBL_ISA_AVX2);
    }

    r = amx_machine();
    for (const uint64_t xcr0 : {0xE7u, 0x200E7u, 0x400E7u}) {
        r.xcr0 = xcr0;
        CAPTURE(xcr0);
        CHECK(detect_isa(r) == NYBL_ISA_AVX512_VNNI);
    }
    r = amx_machine();
    r.amx_permission = false;
    CHECK(detect_isa(r) == NYBL_ISA_AVX512_VNNI);
}

TEST_CASE("C12: AVX512-VNNI needs each of its features", "[isa]") {
    for (const unsigned missing : {16u, 17u, 30u, 31u}) {
        CpuRegisters r = avx512_machine();
        r.leaf7_ebx &= ~(1u << missing);
        CAPTURE(missing);
        CHECK(detect_isa(r) == NYBL_ISA_AVX2);
    }
    CpuRegisters r = amx_machine();
    r.leaf7_ecx = 0;
    CHECK(detect_isa(r) == NYBL_ISA_AVX_VNNI);
    for (const unsigned missing : {24u, 25u}) {
        r = amx_machine();
        r.leaf7_edx &= ~(1u << missing);
        CAPTURE(missing);
        CHECK(detect_isa(r) == NYBL_ISA_AVX512_VNNI);
    }
}

TEST_CASE("a cap lowers and never raises", "[isa]") {
    CHECK(detect_isa(avx2_machine(), NYBL_ISA_AMX) == NYBL_ISA_AVX2);
    CHECK(detect_isa(amx_machine(), NYBL_ISA_AVX512_VNNI) == NYBL_ISA_AVX512_VNNI);
    CHECK(detect_isa(amx_machine(), NYBL_ISA_AVX_VNNI) == NYBL_ISA_AVX_VNNI);
    CHECK(detect_isa(amx_machine(), NYBL_ISA_SCALAR) == NYBL_ISA_SCALAR);
    // A machine may have AVX512-VNNI and lack AVX-VNNI: the next lower one that it has serves.
    CHECK(detect_isa(avx512_machine(), NYBL_ISA_AVX_VNNI) == NYBL_ISA_AVX2);
    CHECK_FALSE(isa_available(avx512_machine(), NYBL_ISA_AVX_VNNI));
    CHECK(detect_isa(amx_machine(), static_cast<nybl_isa>(7)) == NYBL_ISA_AMX);
}

TEST_CASE("names go both ways", "[isa]") {
    for (const nybl_isa isa :
         {NYBL_ISA_SCALAR, NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX}) {
        CHECK(isa_from_name(isa_name(isa)) == isa);
    }
    CHECK(std::string(isa_name(NYBL_ISA_AVX512_VNNI)) == "avx512_vnni");
    CHECK(std::string(isa_name(static_cast<nybl_isa>(7))) == "unknown");
    CHECK(isa_from_name(nullptr) == NYBL_ISA_BEST);
    CHECK(isa_from_name("") == NYBL_ISA_BEST);
    CHECK(isa_from_name("AVX2") == NYBL_ISA_BEST);
}

TEST_CASE("NYBL_MAX_ISA and the caller's cap both hold", "[isa]") {
    const CpuRegisters machine = read_cpu_registers();
    {
        const MaxIsa env("scalar");
        CHECK(effective_isa(NYBL_ISA_BEST) == NYBL_ISA_SCALAR);
        CHECK(effective_isa(NYBL_ISA_AMX) == NYBL_ISA_SCALAR);
    }
    {
        const MaxIsa env("avx2");
        CHECK(effective_isa(NYBL_ISA_BEST) == detect_isa(machine, NYBL_ISA_AVX2));
        CHECK(effective_isa(NYBL_ISA_AMX) == detect_isa(machine, NYBL_ISA_AVX2));
        CHECK(effective_isa(NYBL_ISA_SCALAR) == NYBL_ISA_SCALAR);
    }
    {
        const MaxIsa env("no such set");
        CHECK(effective_isa(NYBL_ISA_AVX2) == detect_isa(machine, NYBL_ISA_AVX2));
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
TEST_CASE("this machine reads as the compiler's own detection has it", "[isa]") {
    const CpuRegisters machine = read_cpu_registers();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    CHECK(isa_available(machine, NYBL_ISA_AVX2) == avx2);
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
    CHECK(isa_available(machine, NYBL_ISA_AVX512_VNNI) == avx512);
}
#endif
