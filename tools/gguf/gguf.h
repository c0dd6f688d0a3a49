// A reader for GGUF model files that trusts nothing: every count, length and offset is checked against the
// bytes that are there, and a bad file is an error in words that names what and where.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nybl::gguf {

// A view into the parsed bytes.
struct Tensor {
    std::string_view name;
    uint32_t type = 0;            // the file's number, which is nybl_format's too
    std::array<uint64_t, 4> dims; // dims[0] runs fastest: K, then N, then experts; unused ones are 1
    uint32_t n_dims = 0;
    std::span<const uint8_t> data;
};

enum class ValueType : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64
};
struct Entry {
    std::string_view key;
    ValueType type;
    std::span<const uint8_t> value; // as in the file; of a string its characters alone
};

struct Contents {
    uint32_t version = 0;
    std::vector<Entry> entries;
    std::vector<Tensor> tensors;

    // The text of a string entry, or nothing where it is absent or of another type.
    std::optional<std::string_view> text(std::string_view key) const;
};

// Views in the result live as long as `bytes`. On failure nothing is returned and `error` says why.
std::optional<Contents> parse(std::span<const uint8_t> bytes, std::string &error);

// A file mapped read-only for as long as the object lives.
class MappedFile {
  public:
    static std::optional<MappedFile> open(const std::string &path, std::string &error);
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;
    ~MappedFile();

    std::span<const uint8_t> bytes() const { return bytes_; }
    const Contents &contents() const { return contents_; }

  private:
    MappedFile() = default;

    std::span<const uint8_t> bytes_;
    Contents contents_;
};

} // namespace nybl::gguf
