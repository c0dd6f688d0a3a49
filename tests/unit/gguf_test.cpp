// The tools' GGUF reader on well-formed, truncated and malicious files.
#include "tools/gguf/gguf.h"

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace gguf = nybl::gguf;

namespace {

// Writes a GGUF file field by field, so that each test can put a wrong value where it wants one.
class Writer {
  public:
    template <class T>
    Writer &put(T value) {
        const auto *raw = reinterpret_cast<const uint8_t *>(&value);
        bytes.insert(bytes.end(), raw, raw + sizeof value);
        return *this;
    }
    Writer &text(const std::string &value) {
        put<uint64_t>(value.size());
        bytes.insert(bytes.end(), value.begin(), value.end());
        return *this;
    }
    Writer &header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
        return put('G').put('G').put('U').put('F').put(version).put(tensors).put(entries);
    }
    Writer &tensor(const std::string &name, const std::vector<uint64_t> &dims, uint32_t type,
                   uint64_t offset) {
        text(name).put(static_cast<uint32_t>(dims.size()));
        for (const uint64_t dim : dims)
            put(dim);
        return put(type).put(offset);
    }
    Writer &pad(size_t alignment) {
        while (bytes.size() % alignment != 0)
            bytes.push_back(0);
        return *this;
    }
    Writer &fill(size_t count, uint8_t value) {
        bytes.insert(bytes.end(), count, value);
        return *this;
    }

    std::vector<uint8_t> bytes;
};

constexpr uint32_t kU32 = 4, kString = 8, kArray = 9, kQ4_1 = 3, kF32 = 0;

std::vector<uint8_t> small_file() {
    Writer file;
    file.header(2, 4);
    file.text("general.name").put(kString).text("tiny");
    file.text("general.alignment").put(kU32).put<uint32_t>(64);
    file.text("numbers")
        .put(kArray)
        .put(kU32)
        .put<uint64_t>(3)
        .put<uint32_t>(1)
        .put<uint32_t>(2)
        .put<uint32_t>(3);
    file.text("words").put(kArray).put(kString).put<uint64_t>(2).text("a").text("bc");
    file.tensor("blk.0.attn_q.weight", {64, 3}, kQ4_1, 0); // 3 rows of 2 blocks of 20 bytes
    file.tensor("norm", {5}, kF32, 128);
    file.pad(64).fill(128, 0xab).fill(20, 0xcd);
    return file.bytes;
}

// In memory of exactly that size, so that a checker sees any read past the end.
std::optional<gguf::Contents> parse_exact(const std::vector<uint8_t> &bytes, size_t size,
                                          std::string &error) {
    const std::unique_ptr<uint8_t[]> copy(new uint8_t[size == 0 ? 1 : size]);
    if (size != 0)
        std::memcpy(copy.get(), bytes.data(), size);
    return gguf::parse({copy.get(), size}, error);
}

// The sentence for a file that must be refused.
std::string refusal(const std::vector<uint8_t> &bytes) {
    std::string error;
    CHECK_FALSE(parse_exact(bytes, bytes.size(), error).has_value());
    return error;
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a GGUF file's tensors and metadata are found") {
    const std::vector<uint8_t> bytes = small_file();
    std::string error;
    const std::optional<gguf::Contents> contents = gguf::parse(bytes, error);
    INFO(error);
    REQUIRE(contents);
    CHECK(contents->version == 3);
    CHECK(contents->text("general.name") == "tiny");
    CHECK_FALSE(contents->text("general.alignment"));
    CHECK_FALSE(contents->text("absent"));
    REQUIRE(contents->tensors.size() == 2);
    const gguf::Tensor &first = contents->tensors[0], &second = contents->tensors[1];
    CHECK(first.name == "blk.0.attn_q.weight");
    CHECK(first.type == kQ4_1);
    CHECK(first.dims == std::array<uint64_t, 4>{64, 3, 1, 1});
    CHECK(first.data.size() == 120);
    CHECK(first.data.front() == 0xab);
    CHECK((first.data.data() - bytes.data()) % 64 == 0);
    CHECK(second.data.size() == 20);
    CHECK(second.data.front() == 0xcd);
    CHECK(second.data.data() + second.data.size() == bytes.data() + bytes.size());
}

TEST_CASE("a GGUF file cut at any byte is refused in words") {
    const std::vector<uint8_t> bytes = small_file();
    for (size_t size = 0; size < bytes.size(); ++size) {
        std::string error;
        INFO("cut at byte " << size);
        CHECK_FALSE(parse_exact(bytes, size, error).has_value());
        CHECK(contains(error, "byte"));
    }
}

TEST_CASE("no changed byte of a GGUF file leads the reader outside of it") {
    const std::vector<uint8_t> bytes = small_file();
    for (size_t at = 0; at < bytes.size(); ++at)
        for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
            std::vector<uint8_t> changed = bytes;
            changed[at] = static_cast<uint8_t>(value);
            std::string error;
            const std::optional<gguf::Contents> contents = gguf::parse(changed, error);
            if (!contents) {
                CHECK_FALSE(error.empty());
                continue;
            }
            for (const gguf::Tensor &tensor : contents->tensors) {
                const bool inside =
                    tensor.data.data() >= changed.data() &&
                    tensor.data.data() + tensor.data.size() <= changed.data() + changed.size();
                CHECK(inside);
            }
        }
}

TEST_CASE("wrong GGUF headers are named") {
    std::vector<uint8_t> bytes = small_file();
    bytes[0] = 'X';
    CHECK(contains(refusal(bytes), "not a GGUF file"));
    CHECK(contains(refusal(Writer().header(0, 0, 1).bytes), "version 1"));
    CHECK(contains(refusal(Writer().header(0, 0, 0x03000000).bytes), "big-endian"));
    CHECK(contains(refusal(Writer().header(std::numeric_limits<uint64_t>::max(), 0).bytes),
                   "tensors do not fit"));
    CHECK(contains(refusal(Writer().header(0, std::numeric_limits<uint64_t>::max()).bytes),
                   "metadata entries do not fit"));
    std::string error;
    CHECK(gguf::parse(Writer().header(0, 0, 2).bytes, error).has_value());
}

TEST_CASE("wrong GGUF metadata is named") {
    const uint64_t huge = std::numeric_limits<uint64_t>::max();
    CHECK(contains(refusal(Writer().header(0, 1).text("k").put<uint32_t>(13).put(huge).bytes),
                   "unknown type 13"));
    CHECK(contains(refusal(Writer().header(0, 1).text("k").put(kString).put(huge).bytes), "ends within"));
    CHECK(contains(refusal(Writer().header(0, 1).text("k").put(kArray).put(kU32).put(huge / 2).bytes),
                   "more than any file holds"));
    CHECK(contains(refusal(Writer().header(0, 1).text("k").put(kArray).put(kString).put(huge).bytes),
                   "ends within"));
    Writer nested;
    nested.header(0, 1).text("deep").put(kArray);
    for (int i = 0; i < 100; ++i)
        nested.put(kArray).put<uint64_t>(1);
    CHECK(contains(refusal(nested.bytes), "nests arrays"));
    for (const uint32_t alignment : {0u, 3u, 48u})
        CHECK(
            contains(refusal(Writer().header(0, 1).text("general.alignment").put(kU32).put(alignment).bytes),
                     "not a power of two"));
    CHECK(contains(refusal(Writer().header(0, 1).text("general.alignment").put(kString).text("x").bytes),
                   "not a 32-bit number"));
}

TEST_CASE("wrong GGUF tensors are named") {
    const auto one = [](const std::vector<uint64_t> &dims, uint32_t type, uint64_t offset) {
        return refusal(Writer().header(1, 0).tensor("w", dims, type, offset).pad(32).fill(64, 1).bytes);
    };
    const uint64_t huge = std::numeric_limits<uint64_t>::max();
    CHECK(contains(one({33}, kQ4_1, 0), "'w': its rows have 33 elements, not a multiple of 32"));
    CHECK(contains(one({32}, 99, 0), "'w' has the unknown type 99"));
    CHECK(contains(one({32, huge}, kQ4_1, 0), "'w': its size does not fit 64 bits"));
    CHECK(contains(one({uint64_t{1} << 60, 8}, kF32, 0), "'w': its size does not fit 64 bits"));
    CHECK(contains(one({32, 4}, kQ4_1, 0), "'w': its 80 bytes at offset 0 lie beyond the file's end"));
    CHECK(contains(one({32}, kQ4_1, 1), "'w': its offset 1 is not a multiple of the alignment 32"));
    CHECK(contains(one({32}, kQ4_1, huge - 31), "'w': its 20 bytes at offset"));
    CHECK(contains(one({}, kQ4_1, 0), "'w' has 0 dimensions"));
    CHECK(contains(one({1, 1, 1, 1, 1}, kF32, 0), "'w' has 5 dimensions"));
    Writer twice;
    twice.header(2, 0).tensor("w", {1}, kF32, 0).tensor("w", {1}, kF32, 32).pad(32).fill(64, 1);
    CHECK(contains(refusal(twice.bytes), "a second tensor is named 'w'"));
    Writer control;
    control.header(1, 0).tensor("a\nb", {32}, 99, 0);
    CHECK(contains(refusal(control.bytes), "'a?b'"));
}

TEST_CASE("a GGUF file is mapped, or refused with its path") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("nybl-gguf-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const auto write = [&](const char *name, const std::vector<uint8_t> &bytes) {
        const std::filesystem::path path = folder / name;
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        return path.string();
    };
    std::string error;
    std::optional<gguf::MappedFile> good = gguf::MappedFile::open(write("good.gguf", small_file()), error);
    REQUIRE(good);
    const gguf::MappedFile moved = std::move(*good);
    good.reset();
    CHECK(moved.contents().tensors.size() == 2);
    CHECK(moved.contents().tensors[1].data.back() == 0xcd);

    for (const std::string &path :
         {write("empty.gguf", {}), folder.string(), (folder / "absent.gguf").string()}) {
        error.clear();
        CHECK_FALSE(gguf::MappedFile::open(path, error).has_value());
        CHECK(contains(error, path));
    }
    std::filesystem::remove_all(folder);
}
