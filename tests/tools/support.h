// A scratch folder, small GGUF models, and files as bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "nybl-pack/pack_model.h"

namespace tools_test {

// Removed with all that is in it.
class Folder {
  public:
    Folder();
    ~Folder();
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    std::string file(const std::string &name) const { return path_ / name; }
    std::vector<std::string> names() const; // of what is in it, sorted

  private:
    std::filesystem::path path_;
};

std::vector<uint8_t> read_file(const std::string &path);
void write_file(const std::string &path, const std::vector<uint8_t> &bytes);

// A GGUF file, tensor by tensor.
class Model {
  public:
    void text(const std::string &key, const std::string &value) { writer_.text(key, value); }
    void tensor(const std::string &name, const std::vector<uint64_t> &dims, uint32_t type,
                const std::vector<uint8_t> &data);
    std::vector<uint8_t> bytes() const;

  private:
    nybl::gguf::Writer writer_;
    std::vector<uint8_t> data_;
};

// A matrix of each packed format, experts, an embedding, a vector and a type that this library does not know.
Model sample_model();

// Packs the bytes of a model and returns the path of the result, "model.nybl".
std::string pack(const Folder &folder, const std::vector<uint8_t> &model,
                 const nybl::pack::Options &options = {});

nybl::gguf::MappedFile open_model(const std::string &path);

} // namespace tools_test
