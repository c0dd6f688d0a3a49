// Pages for generated code: written first, executable afterwards, never both.
#include "cpu/jit/executable_memory.h"

#include <atomic>
#include <cstring>

#include "base/status.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace nybl::cpu::jit {
namespace {

enum class Outcome : uint8_t { Done, NoMemory, Refused };

#ifdef _WIN32

size_t page_bytes() noexcept {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}
void *map_writable(size_t bytes) noexcept {
    return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
void unmap(void *pages, size_t) noexcept {
    VirtualFree(pages, 0, MEM_RELEASE);
}
Outcome protect(void *pages, size_t bytes) noexcept {
    DWORD before;
    if (!VirtualProtect(pages, bytes, PAGE_EXECUTE_READ, &before)) {
        return GetLastError() == ERROR_NOT_ENOUGH_MEMORY ? Outcome::NoMemory : Outcome::Refused;
    }
    FlushInstructionCache(GetCurrentProcess(), pages, bytes);
    return Outcome::Done;
}

#else

size_t page_bytes() noexcept {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}
void *map_writable(size_t bytes) noexcept {
    void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : pages;
}
void unmap(void *pages, size_t bytes) noexcept {
    munmap(pages, bytes);
}
Outcome protect(void *pages, size_t bytes) noexcept {
    if (mprotect(pages, bytes, PROT_READ | PROT_EXEC) == 0) {
        return Outcome::Done;
    }
    return errno == ENOMEM ? Outcome::NoMemory : Outcome::Refused;
}

#endif

size_t round_to_pages(size_t bytes) noexcept {
    const size_t page = page_bytes();
    return (bytes + page - 1) / page * page;
}

Outcome place(std::span<const uint8_t> code, const void **entry) noexcept {
    const size_t bytes = round_to_pages(code.size());
    void *pages = map_writable(bytes);
    if (pages == nullptr) {
        return Outcome::NoMemory;
    }
    // int3 in what is left of the last page: a stray jump stops there.
    std::memset(pages, 0xCC, bytes);
    std::memcpy(pages, code.data(), code.size());
    const Outcome outcome = protect(pages, bytes);
    if (outcome != Outcome::Done) {
        unmap(pages, bytes);
        return outcome;
    }
    *entry = pages;
    return outcome;
}

constexpr const char *kRefused =
    "the system refuses to make memory executable (a hardened kernel, SELinux or a "
    "seccomp filter): the scalar kernels serve instead";

std::atomic<const char *> g_refusal{nullptr};

bool probe() noexcept {
#if defined(__x86_64__) || defined(_M_X64)
    constexpr uint8_t kRet = 0xC3;
    const void *entry = nullptr;
    const Outcome outcome = place({&kRet, 1}, &entry);
    if (outcome == Outcome::Refused) {
        g_refusal.store(kRefused, std::memory_order_relaxed);
    } else if (outcome == Outcome::Done) {
        release_executable(entry, 1);
    }
#else
    g_refusal.store("kernels are generated for x86-64 only: the scalar kernels serve instead",
                    std::memory_order_relaxed);
#endif
    return true;
}

} // namespace

const char *jit_refusal() noexcept {
    static const bool probed = probe();
    static_cast<void>(probed);
    return g_refusal.load(std::memory_order_relaxed);
}

const void *make_executable(std::span<const uint8_t> code) noexcept {
    if (const char *refusal = jit_refusal()) {
        fail(NYBL_JIT_FAILURE, "%s", refusal);
        return nullptr;
    }
    const void *entry = nullptr;
    switch (place(code, &entry)) {
    case Outcome::Done:
        break;
    case Outcome::NoMemory:
        fail(NYBL_OUT_OF_MEMORY, "no memory for %zu bytes of generated code", code.size());
        break;
    case Outcome::Refused:
        g_refusal.store(kRefused, std::memory_order_relaxed);
        fail(NYBL_JIT_FAILURE, "%s", kRefused);
        break;
    }
    return entry;
}

void release_executable(const void *entry, size_t code_bytes) noexcept {
    unmap(const_cast<void *>(entry), round_to_pages(code_bytes));
}

} // namespace nybl::cpu::jit
