// Loads ggml's quantizers.
#include "ggml_quantizer.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <optional>

#include "weights.h"

namespace nybl::bench {

const GgmlQuantizer *GgmlQuantizer::find(const std::string &path) {
    static const std::optional<GgmlQuantizer> found = [&]() -> std::optional<GgmlQuantizer> {
        const char *variable = std::getenv("NYBL_GGML");
        const std::string file = !path.empty() ? path : variable ? variable : "";
        if (file.empty())
            return std::nullopt;
        void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!library)
            throw ApiError{NYBL_UNSUPPORTED, fmt::format("--ggml: {}", dlerror())};
        auto *chunk = reinterpret_cast<ChunkFn>(dlsym(library, "ggml_quantize_chunk"));
        if (!chunk)
            throw ApiError{NYBL_UNSUPPORTED, fmt::format("--ggml: {} has no ggml_quantize_chunk", file)};
        return GgmlQuantizer(chunk);
    }();
    return found ? &*found : nullptr;
}

} // namespace nybl::bench
