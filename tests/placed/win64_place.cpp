// place_kernel() for Win64: each kernel behind a bridge that calls it as a Windows compiler would, with
// values of its own in what a callee must give back: rdi, rsi and xmm6 .. xmm15. A kernel that breaks one
// ends the process.
#include "placed/win64_place.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "cpu/jit/executable_memory.h"
#include "cpu/jit/place.h"

namespace nybl::test {
namespace {

std::mutex g_mutex;
std::set<std::pair<cpu::jit::KernelKind, nybl_isa>> g_placed;

[[noreturn]] void report(const char *name) {
    std::fprintf(stderr, "%s: rdi, rsi or one of xmm6 .. xmm15 came back changed\n", name);
    std::abort();
}

class Bridge : public Xbyak::CodeGenerator {
  public:
    Bridge(const void *kernel, const char *name) {
        constexpr uint64_t kRdi = 0x0123456789ABCDEF, kRsi = 0xFEDCBA9876543210;
        constexpr int kFirst = 6, kLast = 15;
        Xbyak::Label patterns, broken;
        const auto pattern = [&](int i) { return ptr[rip + patterns + 16 * (i - kFirst)]; };
        endbr64();
        push(rbp);
        mov(rbp, rsp);
        sub(rsp, 32); // the callee's own
        mov(rcx, rdi);
        mov(rdi, kRdi);
        mov(rsi, kRsi);
        for (const Xbyak::Reg64 &garbage : {rdx, r8, r9, r10, r11})
            mov(garbage, rdi);
        for (int i = kFirst; i <= kLast; ++i)
            movups(Xbyak::Xmm(i), pattern(i));
        mov(rax, reinterpret_cast<uint64_t>(kernel));
        call(rax);
        mov(rax, kRdi);
        cmp(rax, rdi);
        jne(broken, T_NEAR);
        mov(rax, kRsi);
        cmp(rax, rsi);
        jne(broken, T_NEAR);
        for (int i = kFirst; i <= kLast; ++i) {
            pxor(Xbyak::Xmm(i), pattern(i));
            ptest(Xbyak::Xmm(i), Xbyak::Xmm(i));
            jnz(broken, T_NEAR);
        }
        leave();
        ret();
        L(broken);
        mov(rdi, reinterpret_cast<uint64_t>(name));
        mov(rax, reinterpret_cast<uint64_t>(&report));
        call(rax);
        align(16);
        L(patterns);
        for (int i = kFirst; i <= kLast; ++i)
            for (int at = 0; at < 16; ++at)
                db(uint8_t(0x80 + 16 * (i % 8) + at));
        ready();
    }
    const void *place() const { return cpu::jit::make_executable({getCode(), getSize()}); }
};

} // namespace

std::set<std::pair<cpu::jit::KernelKind, nybl_isa>> placed_kernels() {
    const std::lock_guard lock(g_mutex);
    return g_placed;
}

} // namespace nybl::test

const void *nybl::cpu::jit::place_kernel(Generator &generator, const char *name) {
    const void *kernel = make_executable(generator.finish(Abi::Win64));
    if (kernel == nullptr)
        return nullptr;
    const std::lock_guard lock(test::g_mutex);
    test::g_placed.emplace(generator.key().kind, generator.key().isa);
    // The name lives as long as the kernel: to the end of the process.
    return test::Bridge(kernel, (new std::string(name))->c_str()).place();
}
