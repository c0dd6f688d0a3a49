// Any bytes as a GGUF file: refused in words, or tensors that lie inside of it.
#include <memory>
#include <string>

#include "fuzz/input.h"
#include "tools/gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using nybl::fuzz::require;
    // In memory of its own, so that a read past the end is one past the allocation.
    const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
    if (size != 0)
        std::memcpy(copy.get(), data, size);
    std::string error;
    const auto contents = nybl::gguf::parse({copy.get(), size}, error);
    if (!contents) {
        require(!error.empty(), "a file was refused without a word");
        return 0;
    }
    for (const auto &tensor : contents->tensors) {
        require(tensor.data.empty() || (tensor.data.data() >= copy.get() &&
                                        tensor.data.data() + tensor.data.size() <= copy.get() + size),
                "a tensor lies outside of its file");
        volatile uint8_t sum = 0; // every byte of it can be read
        for (const uint8_t byte : tensor.data)
            sum = static_cast<uint8_t>(sum + byte);
    }
    contents->text("general.name");
    return 0;
}
