// Helpers of the tests of tools.
#include "tools/support.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <stdlib.h>

#include "capi/support.h"

namespace tools_test {

Folder::Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "nybl-test-XXXXXX";
    if (!mkdtemp(pattern.data()))
        throw std::runtime_error("no scratch folder");
    path_ = pattern;
}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> Folder::names() const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(path_))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<uint8_t> read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(path + " is not there");
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string &path, const std::vector<uint8_t> &bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void Model::tensor(const std::string &name, const std::vector<uint64_t> &dims, uint32_t type,
                   const std::vector<uint8_t> &data) {
    writer_.tensor(name, dims, type, data.size());
    data_.insert(data_.end(), data.begin(), data.end());
    data_.resize(nybl::gguf::padded(data_.size()));
}

std::vector<uint8_t> Model::bytes() const {
    std::vector<uint8_t> out = writer_.head();
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
}

Model sample_model() {
    Model model;
    model.text("general.name", "sample");
    uint32_t seed = 1;
    for (const nybl_format format : capi_test::kFormats) {
        if (format == NYBL_IQ4_NL_ROW) // no GGUF file holds its rows
            continue;
        const auto blocks = capi_test::random_blocks(format, 33, 512, seed++);
        model.tensor("blk.0." + capi_test::format_name(format) + ".weight", {512, 33}, format, blocks);
    }
    model.tensor("token_embd.weight", {256, 8}, NYBL_Q4_0, capi_test::random_blocks(NYBL_Q4_0, 8, 256, 20));
    model.tensor("blk.0.exps.weight", {256, 17, 3}, NYBL_Q4_K,
                 capi_test::random_blocks(NYBL_Q4_K, 51, 256, 21));
    model.tensor("norm.weight", {3}, NYBL_F32, std::vector<uint8_t>(12, 0x3f));
    model.tensor("other.weight", {256, 2}, 16, std::vector<uint8_t>(2 * 66, 7));
    return model;
}

std::string pack(const Folder &folder, const std::vector<uint8_t> &model,
                 const nybl::pack::Options &options) {
    write_file(folder.file("model.gguf"), model);
    const std::string out = folder.file("model.nybl");
    nybl::pack::pack_model(capi_test::make_context(2), open_model(folder.file("model.gguf")), out, options);
    return out;
}

nybl::gguf::MappedFile open_model(const std::string &path) {
    std::string error;
    auto model = nybl::gguf::MappedFile::open(path, error);
    if (!model)
        throw std::runtime_error(error);
    return std::move(*model);
}

} // namespace tools_test
