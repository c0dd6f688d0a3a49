// A host's allocator that fails as an input says.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace nybl::fuzz {

// The host's heap: refuses what is large, and one request in some when the input asks for it.
struct Heap {
    size_t most; // of one request
    int64_t live = 0;
    uint32_t refuse_one_in = 0, requests = 0;
    bool throws = false;

    void *allocate(size_t size, size_t alignment) {
        if (size > most || (refuse_one_in != 0 && ++requests % refuse_one_in == 0)) {
            if (throws)
                throw std::bad_alloc();
            return nullptr;
        }
        void *block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        live += block != nullptr;
        return block;
    }
};

} // namespace nybl::fuzz
