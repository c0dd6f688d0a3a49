// The shared mapping, with huge pages asked for or refused, and what the kernel made of that.
#include "arena.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <sys/mman.h>

namespace nybl::bench {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

Arena::Arena(size_t bytes, Pages pages) {
    size_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    mapped_ = size_ + kHugePage; // slack to align on
    void *mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        throw std::bad_alloc();
    mapping_ = static_cast<uint8_t *>(mapping);
    const uintptr_t start = (reinterpret_cast<uintptr_t>(mapping) + kHugePage - 1) / kHugePage * kHugePage;
    data_ = reinterpret_cast<uint8_t *>(start);
    madvise(data_, size_, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    // Untouched pages all map to one page of zeros, which would read from the cache. Ordinary non-zero bytes.
    uint64_t state = 0x9e3779b97f4a7c15u;
    auto *words = reinterpret_cast<uint64_t *>(data_);
    for (size_t i = 0; i < size_ / 8; ++i) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = state;
    }
}

Arena::~Arena() {
    if (mapping_ != nullptr)
        munmap(mapping_, mapped_);
}

double Arena::huge_share() const {
    return huge_page_share(data_);
}

double huge_page_share(const void *address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    std::ifstream smaps("/proc/self/smaps");
    bool inside = false;
    double rss = 0;
    for (std::string line; std::getline(smaps, line);) {
        uintptr_t from = 0, to = 0;
        double kib = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            inside = from <= wanted && wanted < to;
        else if (inside && std::sscanf(line.c_str(), "Rss: %lf", &kib) == 1)
            rss = kib;
        else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lf", &kib) == 1)
            return rss > 0 ? kib / rss : 0;
    }
    return 0;
}

} // namespace nybl::bench
