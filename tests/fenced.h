// Memory for tests of code that no checker instruments: between pages that fault when they are touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace nybl::test {

// Bytes with a page that faults on either side, directly at their end (Behind) or their start (Before). What
// is left of the pages on the other side holds canaries. The bytes themselves start at zero.
class Fenced {
  public:
    enum class Fence { Behind, Before };

    explicit Fenced(size_t bytes, Fence fence = Fence::Behind)
        : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(bytes),
          inner_((bytes + page_ - 1) / page_ * page_), base_(map(inner_ + 2 * page_)),
          data_(base_ + page_ + (fence == Fence::Behind ? inner_ - bytes : 0)),
          canaries_(fence == Fence::Behind ? base_ + page_ : data_ + bytes) {
        std::memset(canaries_, kCanary, inner_ - bytes);
        if (mprotect(base_, page_, PROT_NONE) != 0 || mprotect(base_ + page_ + inner_, page_, PROT_NONE) != 0)
            throw std::runtime_error("no fenced memory");
    }
    ~Fenced() { munmap(base_, inner_ + 2 * page_); }
    Fenced(const Fenced &) = delete;
    Fenced &operator=(const Fenced &) = delete;

    uint8_t *data() const { return data_; }
    size_t size() const { return bytes_; }
    template <class T>
    T *as() const {
        return reinterpret_cast<T *>(data_);
    }
    // Nothing was written on the side without a page.
    bool intact() const {
        return std::all_of(canaries_, canaries_ + (inner_ - bytes_),
                           [](uint8_t byte) { return byte == kCanary; });
    }

  private:
    static constexpr uint8_t kCanary = 0xA5;

    static uint8_t *map(size_t bytes) {
        void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            throw std::runtime_error("no fenced memory");
        return static_cast<uint8_t *>(pages);
    }

    size_t page_, bytes_, inner_;
    uint8_t *base_, *data_, *canaries_;
};

} // namespace nybl::test
