// Packs a GGUF model into a file that nybl_pack_open maps.
#pragma once

#include <nybl/nybl.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace nybl::pack {

struct Options {
    // Engines look rows of the embedding up one by one, which packed panels are not made for.
    std::vector<std::string> keep_original{"token_embd.weight"};
    bool validate = true; // refuse blocks with non-finite scales
    // After each tensor; may throw to stop.
    std::function<void(std::string_view tensor, uint64_t bytes_done, uint64_t bytes)> progress;
};

struct Summary {
    size_t packed = 0, original = 0; // tensors
    uint64_t model_bytes = 0, file_bytes = 0;
};

// Throws std::runtime_error (nybl::Error among them) in words; `out` then is what it was before.
Summary pack_model(const Context &context, const gguf::MappedFile &model, const std::string &out,
                   const Options &options);

} // namespace nybl::pack
