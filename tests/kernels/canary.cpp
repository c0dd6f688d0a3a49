// The assembly behind broken_by_call(): fills the registers, calls, stores what came back.
#include "kernels/canary.h"

#include <cstring>
#include <immintrin.h>

namespace nybl::test {
namespace {

constexpr int kGprs = 8;
constexpr const char *kGprNames[kGprs] = {"rbx", "rbp", "r12", "r13", "r14", "r15", "rdi", "rsi"};
constexpr int kVectors = 10; // xmm6 .. xmm15

} // namespace

// Offsets are written out in the assembly below.
struct CanaryCall {
    const void *entry;                   // 0
    const void *argument;                // 8
    uint64_t win64;                      // 16
    uint64_t flags;                      // 24
    uint64_t gprs[kGprs];                // 32
    uint64_t gprs_after[kGprs];          // 96
    uint8_t vectors[kVectors][16];       // 160
    uint8_t vectors_after[kVectors][16]; // 320
    uint8_t uppers_after[16][16];        // 480
    uint64_t rsp_moved;                  // 736
};
static_assert(sizeof(CanaryCall) == 744);

extern "C" void nybl_test_canary_call(CanaryCall *call);

// The record's address waits at [rsp + 32], above the shadow space that Win64 callees may use.
__asm__(R"(
.intel_syntax noprefix
.text
nybl_test_canary_call:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 56
    mov [rsp + 32], rdi
    mov [rsp + 40], rsp
    mov rax, [rdi]
    mov rcx, [rdi + 8]
    mov rdx, [rdi + 16]
    mov rbx, [rdi + 32]
    mov rbp, [rdi + 40]
    mov r12, [rdi + 48]
    mov r13, [rdi + 56]
    mov r14, [rdi + 64]
    mov r15, [rdi + 72]
    mov rsi, [rdi + 88]
    .irp i, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups xmm\i, [rdi + 160 + 16 * (\i - 6)]
    .endr
    mov rdi, [rdi + 80]
    test rdx, rdx
    cmovz rdi, rcx
    call rax
    cmp rsp, [rsp + 40]
    mov rax, [rsp + 32]
    setne byte ptr [rax + 736]
    mov [rax + 96], rbx
    mov [rax + 104], rbp
    mov [rax + 112], r12
    mov [rax + 120], r13
    mov [rax + 128], r14
    mov [rax + 136], r15
    mov [rax + 144], rdi
    mov [rax + 152], rsi
    .irp i, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups [rax + 320 + 16 * (\i - 6)], xmm\i
    .endr
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vextractf128 [rax + 480 + 16 * \i], ymm\i, 1
    .endr
    pushfq
    pop rcx
    mov [rax + 24], rcx
    cld
    add rsp, 56
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
.att_syntax
)");

std::string broken_by_call(const void *entry, const void *argument, cpu::jit::Abi abi) {
    const bool win64 = abi == cpu::jit::Abi::Win64;
    CanaryCall call{};
    call.entry = entry;
    call.argument = argument;
    call.win64 = win64;
    for (int i = 0; i < kGprs; ++i) {
        call.gprs[i] = 0xC0FFEE0000000001u * static_cast<uint64_t>(i + 1);
    }
    for (int i = 0; i < kVectors; ++i) {
        std::memset(call.vectors[i], 0x51 + i, 16);
    }
    // Neither the default nor anything a kernel would set: flush to zero with rounding towards zero.
    const unsigned caller_mxcsr = _mm_getcsr();
    const unsigned odd_mxcsr = (caller_mxcsr & ~0x3Fu) | 0x8000u | 0x6000u;
    _mm_setcsr(odd_mxcsr);
    nybl_test_canary_call(&call);
    const unsigned mxcsr_after = _mm_getcsr();
    _mm_setcsr(caller_mxcsr);

    std::string broken;
    for (int i = 0; i < (win64 ? kGprs : kGprs - 2); ++i) {
        if (call.gprs_after[i] != call.gprs[i]) {
            broken += std::string(kGprNames[i]) + " ";
        }
    }
    for (int i = 0; win64 && i < kVectors; ++i) {
        if (std::memcmp(call.vectors[i], call.vectors_after[i], 16) != 0) {
            broken += "xmm" + std::to_string(i + 6) + " ";
        }
    }
    const uint8_t clean[16] = {};
    for (int i = 0; i < 16; ++i) {
        if (std::memcmp(call.uppers_after[i], clean, 16) != 0) {
            broken += "upper-half-of-ymm" + std::to_string(i) + " ";
        }
    }
    constexpr unsigned kControlBits = 0xFFC0; // the low six are sticky exception flags
    if ((mxcsr_after & kControlBits) != (odd_mxcsr & kControlBits)) {
        broken += "mxcsr ";
    }
    if ((call.flags & 0x400) != 0) {
        broken += "direction-flag ";
    }
    if (call.rsp_moved != 0) {
        broken += "rsp ";
    }
    return broken;
}

} // namespace nybl::test
