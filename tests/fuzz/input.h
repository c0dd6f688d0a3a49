// What the fuzzers share: numbers out of an input's bytes, a check that ends the process with a sentence, and
// contexts that are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <nybl/nybl.hpp>

namespace nybl::fuzz {

using nybl::make;

// Reads from the front; what an input lacks is zero.
class Input {
  public:
    Input(const uint8_t *data, size_t size) : data_(data), size_(size) {}

    template <class T>
    T take() {
        T value{};
        const size_t bytes = sizeof value < size_ ? sizeof value : size_;
        std::memcpy(&value, data_, bytes);
        skip(bytes);
        return value;
    }
    // In [0, count), count in 1 .. 65536.
    uint32_t below(size_t count) {
        return static_cast<uint32_t>(count <= 256 ? take<uint8_t>() % count : take<uint16_t>() % count);
    }
    template <class T, size_t count>
    T one_of(const T (&choices)[count]) {
        return choices[below(count)];
    }
    bool flag() { return take<uint8_t>() & 1; }

    // Fills memory from the input; once that is used up, with bytes that follow from `seed`.
    void fill(void *to, size_t bytes, uint32_t seed = 1) {
        auto *out = static_cast<uint8_t *>(to);
        const size_t given = bytes < size_ ? bytes : size_;
        if (given != 0)
            std::memcpy(out, data_, given);
        skip(given);
        for (size_t i = given; i < bytes; ++i) {
            seed = seed * 1664525 + 1013904223;
            out[i] = static_cast<uint8_t>(seed >> 24);
        }
    }

    const uint8_t *data() const { return data_; }
    size_t size() const { return size_; }

  private:
    void skip(size_t bytes) {
        data_ += bytes;
        size_ -= bytes;
    }

    const uint8_t *data_;
    size_t size_;
};

inline void require(bool right, const char *sentence) {
    if (right)
        return;
    std::fprintf(stderr, "fuzz: %s (last error: %s)\n", sentence, nybl_last_error());
    std::abort();
}

inline nybl_context *open_context(uint32_t threads, nybl_isa isa = NYBL_ISA_BEST) {
    auto desc = make<nybl_context_desc>();
    desc.max_isa = isa;
    desc.n_threads = threads;
    nybl_context *made = nullptr;
    require(nybl_context_create(&desc, &made) == NYBL_OK, "no context");
    return made;
}

} // namespace nybl::fuzz
