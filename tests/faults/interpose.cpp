// The C library's functions under the names that every library of the process calls.
#include "faults/interpose.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nybl::fault {
namespace {

constexpr int kNoPoint = -1;
std::atomic<int> g_point{kNoPoint};
std::atomic<uint64_t> g_requests{0}, g_first{0}, g_count{0}, g_refused{0};
std::atomic<int64_t> g_blocks{0}, g_mappings{0};

bool refused(Point point) {
    if (g_point.load(std::memory_order_acquire) != static_cast<int>(point))
        return false;
    const uint64_t number = g_requests.fetch_add(1), first = g_first;
    if (number < first || number - first >= g_count)
        return false;
    ++g_refused;
    return true;
}

// Counts a block, or refuses it in the C library's manner.
template <class Allocate>
void *allocate(const Allocate &really) {
    if (refused(Point::Heap)) {
        errno = ENOMEM;
        return nullptr;
    }
    void *block = really();
    g_blocks += block != nullptr;
    return block;
}

} // namespace

void refuse(Point point, uint64_t first, uint64_t count) {
    g_requests = g_refused = 0;
    g_first = first;
    g_count = count;
    g_point.store(static_cast<int>(point), std::memory_order_release);
}

uint64_t end_refusals() {
    g_point.store(kNoPoint, std::memory_order_release);
    return g_refused;
}

int64_t live_blocks() {
    return g_blocks;
}
int64_t live_mappings() {
    return g_mappings;
}

} // namespace nybl::fault

using nybl::fault::allocate;
using nybl::fault::g_blocks;
using nybl::fault::g_mappings;
using nybl::fault::Point;
using nybl::fault::refused;

extern "C" {

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t size) {
    return allocate([&] { return __libc_malloc(size); });
}
void *calloc(size_t count, size_t size) {
    return allocate([&] { return __libc_calloc(count, size); });
}
void *realloc(void *block, size_t size) {
    if (block && size != 0) // neither a new block nor the end of one
        return refused(Point::Heap) ? nullptr : __libc_realloc(block, size);
    g_blocks -= block != nullptr;
    return allocate([&] { return __libc_realloc(block, size); });
}
void *memalign(size_t alignment, size_t size) {
    return allocate([&] { return __libc_memalign(alignment, size); });
}
void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}
int posix_memalign(void **block, size_t alignment, size_t size) {
    void *made = memalign(alignment, size);
    if (made)
        *block = made;
    return made ? 0 : ENOMEM;
}
void free(void *block) {
    g_blocks -= block != nullptr;
    __libc_free(block);
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) noexcept {
    if (refused(Point::Map)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *pages =
        reinterpret_cast<void *>(syscall(SYS_mmap, address, length, protection, flags, file, offset));
    g_mappings += pages != MAP_FAILED;
    return pages;
}
int munmap(void *address, size_t length) noexcept {
    --g_mappings;
    return static_cast<int>(syscall(SYS_munmap, address, length));
}
int mprotect(void *address, size_t length, int protection) noexcept {
    if (refused(Point::Protect)) {
        errno = ENOMEM;
        return -1;
    }
    return static_cast<int>(syscall(SYS_mprotect, address, length, protection));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) noexcept {
    static const auto really =
        reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return refused(Point::Thread) ? EAGAIN : really(thread, attributes, start, argument);
}

} // extern "C"
