// One large mapping that all cases share: weights are laid into it, and the read limit is measured over the
// same pages, so that kernel and limit see one page size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nybl::bench {

enum class Pages { kHuge, kSmall }; // 2 MiB where the system grants them, or 4 KiB

class Arena {
  public:
    // Maps `bytes` and touches every page. Throws std::bad_alloc where the system has no memory.
    Arena(size_t bytes, Pages pages);
    ~Arena();
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    std::span<uint8_t> bytes() const { return {data_, size_}; }
    // The share of the mapping that lies on huge pages, as the kernel reports it.
    double huge_share() const;

  private:
    uint8_t *mapping_ = nullptr, *data_ = nullptr;
    size_t mapped_ = 0, size_ = 0;
};

// The same for any address: which share of the mapping that holds `address` is on huge pages.
double huge_page_share(const void *address);

} // namespace nybl::bench
