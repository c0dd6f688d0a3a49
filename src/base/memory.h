// All allocation of a context: through the host's hook where there is one, and counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <nybl/nybl.h>

namespace nybl {

// Safe to use from several threads at once (as far as the host's hook is: its contract says so).
class Memory {
  public:
    explicit Memory(const nybl_allocator *hook) noexcept; // NULL: the C library's heap

    // `size` bytes (not 0) at a multiple of `alignment` (a power of two); `what` names the purpose in the
    // error sentence. *out changes on success only.
    nybl_status allocate(size_t size, size_t alignment, const char *what, void **out) noexcept;
    void deallocate(void *ptr, size_t size) noexcept; // NULL is ignored

    // For memory that an equal allocator gave before this object existed: the context itself.
    void adopt(size_t size) noexcept { count(size); }

    const nybl_allocator &hook() const noexcept { return hook_; }
    size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
    size_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

  private:
    void count(size_t size) noexcept;

    nybl_allocator hook_;
    std::atomic<size_t> bytes_{0}, peak_{0};
};

} // namespace nybl
