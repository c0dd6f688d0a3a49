// A GGUF file used in place: its blocks are multiplied where the mapping has them; nothing is copied or
// packed. The reader is the one of tools/gguf; an engine has its own.
#include <nybl/nybl.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace {

// Whether the tensor is a matrix in a format that has weights; what is not says so by its status.
std::optional<nybl::Weights> weights_in_place(const nybl::Context &context,
                                              const nybl::gguf::Tensor &tensor) {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = static_cast<nybl_format>(tensor.type);
    desc.k = tensor.dims[0];
    desc.n = tensor.dims[1];
    desc.data = tensor.data.data();
    desc.data_size = tensor.data.size();
    desc.storage = NYBL_STORAGE_ORIGINAL;
    desc.validate = 1; // the file is not trusted
    nybl_weights *made = nullptr;
    const nybl_status status = nybl_weights_create(context.get(), &desc, &made);
    if (status == NYBL_UNSUPPORTED)
        return std::nullopt;
    nybl::check(status);
    return nybl::Weights(made);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    std::string error;
    const auto model = nybl::gguf::MappedFile::open(argv[1], error);
    if (!model) {
        std::fprintf(stderr, "%s\n", error.c_str());
        return 1;
    }
    try {
        const nybl::Context context;
        for (const nybl::gguf::Tensor &tensor : model->contents().tensors) {
            if (tensor.n_dims != 2)
                continue;
            const std::string name(tensor.name);
            const auto weights = weights_in_place(context, tensor);
            if (!weights) {
                std::printf("%s: %s\n", name.c_str(), nybl_last_error());
                continue;
            }
            const std::vector<float> x(tensor.dims[0], 1.0f);
            std::vector<float> y(tensor.dims[1]);
            weights->matmul(1, x.data(), y.data());
            std::printf("%s: y[0] = %g, by %s\n", name.c_str(), double(y[0]), weights->explain(1).name);
        }
        std::printf("memory of the context: %zu bytes\n", context.memory().host_bytes);
    } catch (const nybl::Error &failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
    return 0;
}
