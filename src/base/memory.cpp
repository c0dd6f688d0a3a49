// The counting allocator and the default hook.
#include "base/memory.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

#include "base/status.h"

namespace nybl {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

void *default_allocate(void *, size_t size, size_t alignment) {
    // Weights are streamed once per token: huge pages spare most of the page-table walks. A tail below a huge
    // page keeps small pages, so that no memory is spent on rounding up.
    const bool large = size >= 2 * kHugePage;
    if (large && alignment < kHugePage)
        alignment = kHugePage;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    void *ptr = nullptr;
    if (posix_memalign(&ptr, alignment, size) != 0)
        return nullptr;
    if (large)
        madvise(ptr, size / kHugePage * kHugePage, MADV_HUGEPAGE);
    return ptr;
}

void default_deallocate(void *, void *ptr, size_t) {
    std::free(ptr);
}

} // namespace

Memory::Memory(const nybl_allocator *hook) noexcept
    : hook_(hook ? *hook
                 : nybl_allocator{sizeof(nybl_allocator), nullptr, default_allocate, default_deallocate}) {}

nybl_status Memory::allocate(size_t size, size_t alignment, const char *what, void **out) noexcept {
    void *ptr = nullptr;
    try {
        ptr = hook_.allocate(hook_.user, size, alignment);
    } catch (...) { // a host's hook written in C++
        ptr = nullptr;
    }
    if (!ptr)
        return fail(NYBL_OUT_OF_MEMORY, "%s: the allocator has no %zu bytes", what, size);
    if (reinterpret_cast<uintptr_t>(ptr) % alignment != 0) {
        hook_.deallocate(hook_.user, ptr, size);
        return fail(NYBL_INVALID_ARGUMENT,
                    "%s: the allocator returned memory that is not aligned to the %zu bytes asked for", what,
                    alignment);
    }
    count(size);
    *out = ptr;
    return NYBL_OK;
}

void Memory::deallocate(void *ptr, size_t size) noexcept {
    if (!ptr)
        return;
    bytes_.fetch_sub(size, std::memory_order_relaxed);
    hook_.deallocate(hook_.user, ptr, size);
}

void Memory::count(size_t size) noexcept {
    const size_t now = bytes_.fetch_add(size, std::memory_order_relaxed) + size;
    size_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
}

} // namespace nybl
