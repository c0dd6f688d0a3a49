// Models packed into files and mapped again: same products, same bytes, whatever happens on the way.
#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <cstring>
#include <stdexcept>

#include "capi/support.h"
#include "kernels/child_process.h"
#include "tools/support.h"

using namespace tools_test;
using capi_test::bits;
using capi_test::last_error_has;
using capi_test::make_context;

namespace {

std::vector<float> product(const nybl::Weights &w, size_t n, size_t k) {
    const auto x = capi_test::random_floats(3 * k, 5);
    std::vector<float> y = capi_test::unwritten(3 * n);
    w.matmul(3, x.data(), y.data());
    return y;
}

nybl_weights_desc describe(const nybl::gguf::Tensor &tensor) {
    return capi_test::describe(static_cast<nybl_format>(tensor.type), tensor.dims[1], tensor.dims[0],
                               tensor.data.data(), tensor.dims[2]);
}

} // namespace

TEST_CASE("a packed model holds every tensor, and its products are those of the model itself") {
    const Folder folder;
    const auto model = sample_model().bytes();
    const std::string path = pack(folder, model);
    CHECK(folder.names() == std::vector<std::string>{"model.gguf", "model.nybl"});
    const nybl::gguf::MappedFile source = open_model(folder.file("model.gguf"));
    const nybl::Context ctx = make_context(2);
    const nybl::Pack file(ctx, path.c_str());
    CHECK(file.count() == source.contents().tensors.size());
    for (const auto &tensor : source.contents().tensors) {
        const std::string name(tensor.name);
        INFO(name);
        const nybl_pack_tensor found = file.find(name.c_str());
        CHECK(std::string(found.name) == name);
        CHECK((found.format == static_cast<nybl_format>(tensor.type) && found.k == tensor.dims[0] &&
               found.n == tensor.dims[1] && found.n_experts == tensor.dims[2]));
        CHECK(reinterpret_cast<uintptr_t>(found.data) % 64 == 0);
        const bool packed = name.starts_with("blk");
        REQUIRE(found.storage == (packed ? NYBL_STORAGE_PACKED : NYBL_STORAGE_ORIGINAL));
        if (!packed) {
            REQUIRE(found.data_size == tensor.data.size());
            CHECK(std::memcmp(found.data, tensor.data.data(), found.data_size) == 0);
        } else if (found.n_experts == 1) {
            CHECK(bits(product(file.weights(name.c_str()), found.n, found.k)) ==
                  bits(product(nybl::Weights(ctx, describe(tensor)), found.n, found.k)));
        } else {
            std::vector<uint8_t> back(tensor.data.size());
            nybl::check(nybl_weights_unpack(file.weights(name.c_str()).get(), back.data(), 0));
            CHECK(std::memcmp(back.data(), tensor.data.data(), back.size()) == 0);
        }
    }
    // Original blocks can be multiplied where they are; other bytes say that they cannot.
    CHECK_NOTHROW(product(file.weights("token_embd.weight"), 8, 256));
    nybl_weights *none = nullptr;
    CHECK(nybl_pack_weights(file.get(), "norm.weight", &none) == NYBL_UNSUPPORTED);
    CHECK(nybl_pack_weights(file.get(), "no such", &none) == NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("no tensor 'no such'"));
    CHECK(none == nullptr);
}

TEST_CASE("tensors by index come in the order of their names; metadata is the model's") {
    const Folder folder;
    const std::string path = pack(folder, sample_model().bytes());
    const nybl::Pack file(make_context(), path.c_str());
    for (uint64_t i = 1; i < file.count(); ++i)
        CHECK(std::strcmp(file.at(i - 1).name, file.at(i).name) < 0);
    auto tensor = nybl::make<nybl_pack_tensor>();
    CHECK(nybl_pack_at(file.get(), file.count(), &tensor) == NYBL_INVALID_ARGUMENT);
    CHECK(tensor.name == nullptr);

    const void *data = nullptr;
    size_t bytes = 0;
    nybl::check(nybl_pack_metadata(file.get(), &data, &bytes));
    std::string error;
    const auto contents = nybl::gguf::parse({static_cast<const uint8_t *>(data), bytes}, error);
    REQUIRE(contents);
    CHECK(contents->text("general.name") == "sample");
    CHECK(contents->tensors.empty());
}

TEST_CASE("weights keep the file mapped after it is closed and its context destroyed") {
    const Folder folder;
    const std::string path = pack(folder, sample_model().bytes());
    std::vector<float> before, after;
    {
        nybl::Context ctx = make_context();
        nybl::Pack file(ctx, path.c_str());
        const nybl::Weights w = file.weights("blk.0.Q4_1.weight");
        before = product(w, 33, 512);
        { const nybl::Pack gone = std::move(file); }
        { const nybl::Context gone = std::move(ctx); }
        std::filesystem::remove(path);
        after = product(w, 33, 512);
    }
    CHECK(bits(before) == bits(after));
}

TEST_CASE("a mapped file costs its context no more memory than handles") {
    const Folder folder;
    const std::string path = pack(folder, sample_model().bytes());
    const nybl::Context ctx = make_context();
    const size_t before = ctx.memory().host_bytes;
    const nybl::Pack file(ctx, path.c_str());
    const nybl::Weights w = file.weights("blk.0.Q5_K.weight");
    CHECK(ctx.memory().host_bytes - before < 1000);
}

TEST_CASE("which tensors are packed can be chosen") {
    const Folder folder;
    nybl::pack::Options options;
    options.keep_original = {"blk.0.Q4_1.weight"};
    const nybl::Pack file(make_context(), pack(folder, sample_model().bytes(), options).c_str());
    CHECK(file.find("blk.0.Q4_1.weight").storage == NYBL_STORAGE_ORIGINAL);
    CHECK(file.find("token_embd.weight").storage == NYBL_STORAGE_PACKED);
}

TEST_CASE("a run that fails or is killed leaves the old file and nothing else") {
    const Folder folder;
    const std::string path = pack(folder, sample_model().bytes());
    const auto before = read_file(path);
    const std::vector<std::string> names{"model.gguf", "model.nybl"};

    nybl::pack::Options options;
    options.progress = [](std::string_view, uint64_t done, uint64_t bytes) {
        if (2 * done > bytes)
            throw std::runtime_error("stopped half-way");
    };
    CHECK_THROWS_AS(pack(folder, sample_model().bytes(), options), std::runtime_error);
    CHECK(folder.names() == names);
    CHECK(read_file(path) == before);

    // Killed without a chance to tidy up.
    options.progress = [](std::string_view, uint64_t done, uint64_t bytes) {
        if (2 * done > bytes)
            std::raise(SIGKILL);
    };
    const std::string end = nybl::test::run_in_child([&] {
        pack(folder, sample_model().bytes(), options);
        return std::string();
    });
    CHECK(end != "");
    CHECK(folder.names() == names);
    CHECK(read_file(path) == before);
}

TEST_CASE("a model with a bad block is refused by tensor, row and block, packed or not") {
    for (const char *name : {"a.weight", "token_embd.weight"}) {
        auto blocks = capi_test::random_blocks(NYBL_Q4_0, 20, 64, 1);
        blocks[18 * 35 + 1] = 0x7e; // the second block of row 17: its scale is a NaN
        Model model;
        model.tensor(name, {64, 20}, NYBL_Q4_0, blocks);
        const Folder folder;
        std::string said;
        try {
            pack(folder, model.bytes());
        } catch (const std::runtime_error &error) {
            said = error.what();
        }
        INFO(said);
        CHECK(said.find(std::string("tensor '") + name + "'") != std::string::npos);
        CHECK(said.find("row 17, block 1") != std::string::npos);
        nybl::pack::Options options;
        options.validate = false;
        CHECK_NOTHROW(pack(folder, model.bytes(), options));
    }
}

TEST_CASE("two tensors of one name are refused") {
    Model model;
    for (int i = 0; i < 2; ++i)
        model.tensor("same", {2}, NYBL_F32, std::vector<uint8_t>(8));
    const Folder folder;
    CHECK_THROWS_AS(pack(folder, model.bytes()), std::runtime_error);
    CHECK(folder.names() == std::vector<std::string>{"model.gguf"});
}

TEST_CASE("a model without tensors makes a file without tensors") {
    const Folder folder;
    const nybl::Pack file(make_context(), pack(folder, Model().bytes()).c_str());
    CHECK(file.count() == 0);
    auto tensor = nybl::make<nybl_pack_tensor>();
    CHECK(nybl_pack_find(file.get(), "any", &tensor) == NYBL_INVALID_ARGUMENT);
}
