// Parses GGUF versions 2 and 3, little-endian.
#include "gguf.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_set>
#include <utility>

namespace nybl::gguf {
namespace {

// Elements and bytes of one block of a tensor type.
struct TypeSize {
    uint32_t type, elements, bytes;
};
constexpr TypeSize kTypeSizes[] = {
    {0, 1, 4},      {1, 1, 2},      {2, 32, 18},   {3, 32, 20},    {6, 32, 22},    {7, 32, 24},
    {8, 32, 34},    {9, 32, 36},    {10, 256, 84}, {11, 256, 110}, {12, 256, 144}, {13, 256, 176},
    {14, 256, 210}, {15, 256, 292}, {16, 256, 66}, {17, 256, 74},  {18, 256, 98},  {19, 256, 50},
    {20, 32, 18},   {21, 256, 110}, {22, 256, 82}, {23, 256, 136}, {24, 1, 1},     {25, 1, 2},
    {26, 1, 4},     {27, 1, 8},     {28, 1, 8},    {29, 256, 56},  {30, 1, 2},     {34, 256, 54},
    {35, 256, 66},  {39, 32, 17}};

constexpr unsigned kMaxDims = 4, kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;

const TypeSize *size_of_type(uint32_t type) {
    for (const TypeSize &size : kTypeSizes)
        if (size.type == type)
            return &size;
    return nullptr;
}

// Bytes of one value of a fixed-size type, 0 for strings, arrays and unknown numbers.
size_t scalar_bytes(uint32_t type) {
    constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof kBytes ? kBytes[type] : 0;
}

bool multiply(uint64_t a, uint64_t b, uint64_t &product) {
    return !__builtin_mul_overflow(a, b, &product);
}

// Names come from the file: shown shortened and without control characters.
std::string shown(std::string_view name) {
    std::string text(name.substr(0, 80));
    for (char &c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    return text;
}

class Parser {
  public:
    Parser(std::span<const uint8_t> bytes, std::string &error) : bytes_(bytes), error_(error) {}

    std::optional<Contents> parse() {
        Contents contents;
        uint64_t n_tensors = 0, n_entries = 0;
        if (!header(contents.version, n_tensors, n_entries) || !entries(n_entries, contents.entries) ||
            !alignment(contents.entries) || !tensor_infos(n_tensors, contents.tensors) ||
            !place_tensors(contents.tensors))
            return std::nullopt;
        return contents;
    }

  private:
    __attribute__((format(printf, 2, 3))) bool fail(const char *format, ...) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        error_ = text;
        return false;
    }

    uint64_t left() const { return bytes_.size() - at_; }

    bool take(uint64_t count, const char *what, std::span<const uint8_t> &out) {
        if (count > left())
            return fail("the file ends within %s: %llu bytes needed at byte %zu of %zu", what,
                        static_cast<unsigned long long>(count), at_, bytes_.size());
        out = bytes_.subspan(at_, count);
        at_ += count;
        return true;
    }

    template <class T>
    bool number(const char *what, T &out) {
        std::span<const uint8_t> raw;
        if (!take(sizeof(T), what, raw))
            return false;
        std::memcpy(&out, raw.data(), sizeof(T));
        return true;
    }

    bool text(const char *what, std::span<const uint8_t> &out) {
        uint64_t length = 0;
        return number(what, length) && take(length, what, out);
    }

    static std::string_view view(std::span<const uint8_t> raw) {
        return {reinterpret_cast<const char *>(raw.data()), raw.size()};
    }

    bool header(uint32_t &version, uint64_t &n_tensors, uint64_t &n_entries) {
        std::span<const uint8_t> magic;
        if (!take(4, "the magic number", magic))
            return false;
        if (std::memcmp(magic.data(), "GGUF", 4) != 0)
            return fail("byte 0: not a GGUF file (it starts with %02x %02x %02x %02x, not \"GGUF\")",
                        magic[0], magic[1], magic[2], magic[3]);
        if (!number("the version", version))
            return false;
        if (version != 2 && version != 3)
            return fail("byte 4: GGUF version %u; this reader knows 2 and 3%s", version,
                        (version & 0xffff) == 0 ? " (a big-endian file?)" : "");
        return number("the tensor count", n_tensors) && number("the metadata count", n_entries);
    }

    bool entries(uint64_t count, std::vector<Entry> &out) {
        constexpr uint64_t kLeastEntry = 8 + 4 + 1; // key length, type, a one-byte value
        if (count > left() / kLeastEntry)
            return fail("byte 16: %llu metadata entries do not fit in the %llu bytes that follow",
                        static_cast<unsigned long long>(count), static_cast<unsigned long long>(left()));
        out.reserve(count);
        for (uint64_t i = 0; i < count; ++i) {
            std::span<const uint8_t> key;
            uint32_t type = 0;
            if (!text("a metadata key", key) || !number("a metadata type", type))
                return false;
            Entry entry{view(key), static_cast<ValueType>(type), {}};
            if (!value(type, entry.key, 0, entry.value))
                return false;
            out.push_back(entry);
        }
        return true;
    }

    bool value(uint32_t type, std::string_view key, unsigned depth, std::span<const uint8_t> &out) {
        if (static_cast<ValueType>(type) == ValueType::kString)
            return text("a metadata string", out);
        if (static_cast<ValueType>(type) == ValueType::kArray)
            return array(key, depth, out);
        const size_t bytes = scalar_bytes(type);
        if (bytes == 0)
            return fail("byte %zu: metadata '%s' has the unknown type %u", at_, shown(key).c_str(), type);
        return take(bytes, "a metadata value", out);
    }

    bool array(std::string_view key, unsigned depth, std::span<const uint8_t> &out) {
        const size_t start = at_;
        uint32_t type = 0;
        uint64_t count = 0;
        if (depth >= kMaxArrayDepth)
            return fail("byte %zu: metadata '%s' nests arrays deeper than %u", at_, shown(key).c_str(),
                        kMaxArrayDepth);
        if (!number("an array's type", type) || !number("an array's length", count))
            return false;
        if (const size_t bytes = scalar_bytes(type); bytes != 0) {
            uint64_t total = 0;
            std::span<const uint8_t> raw;
            if (!multiply(count, bytes, total))
                return fail("byte %zu: the array '%s' has %llu values, more than any file holds", start,
                            shown(key).c_str(), static_cast<unsigned long long>(count));
            if (!take(total, "a metadata array", raw))
                return false;
        } else {
            // Each value takes its length field at least, so a false count soon runs into the file's end.
            for (uint64_t i = 0; i < count; ++i) {
                std::span<const uint8_t> ignored;
                if (!value(type, key, depth + 1, ignored))
                    return false;
            }
        }
        out = bytes_.subspan(start, at_ - start);
        return true;
    }

    bool alignment(const std::vector<Entry> &all) {
        for (const Entry &entry : all) {
            if (entry.key != "general.alignment")
                continue;
            uint32_t stated = 0;
            if (entry.type != ValueType::kU32)
                return fail("metadata 'general.alignment' is not a 32-bit number");
            std::memcpy(&stated, entry.value.data(), sizeof stated);
            if (!std::has_single_bit(stated))
                return fail("metadata 'general.alignment' is %u, not a power of two", stated);
            alignment_ = stated;
        }
        return true;
    }

    bool tensor_infos(uint64_t count, std::vector<Tensor> &out) {
        constexpr uint64_t kLeastInfo = 8 + 4 + 8 + 4 + 8; // name length, rank, one extent, type, offset
        if (count > left() / kLeastInfo)
            return fail("byte 8: %llu tensors do not fit in the %llu bytes that follow",
                        static_cast<unsigned long long>(count), static_cast<unsigned long long>(left()));
        out.reserve(count);
        offsets_.reserve(count);
        std::unordered_set<std::string_view> names;
        for (uint64_t i = 0; i < count; ++i) {
            Tensor tensor;
            std::span<const uint8_t> name;
            const size_t start = at_;
            if (!text("a tensor's name", name) || !number("a tensor's rank", tensor.n_dims))
                return false;
            tensor.name = view(name);
            if (!names.insert(tensor.name).second)
                return fail("byte %zu: a second tensor is named '%s'", start, shown(tensor.name).c_str());
            if (tensor.n_dims == 0 || tensor.n_dims > kMaxDims)
                return fail("byte %zu: tensor '%s' has %u dimensions; 1 to %u are legal", start,
                            shown(tensor.name).c_str(), tensor.n_dims, kMaxDims);
            tensor.dims.fill(1);
            for (uint32_t d = 0; d < tensor.n_dims; ++d)
                if (!number("a tensor's extents", tensor.dims[d]))
                    return false;
            uint64_t offset = 0;
            if (!number("a tensor's type", tensor.type) || !number("a tensor's offset", offset))
                return false;
            offsets_.push_back(offset);
            out.push_back(tensor);
        }
        return true;
    }

    bool tensor_bytes(const Tensor &tensor, uint64_t &bytes) {
        const std::string name = shown(tensor.name);
        const TypeSize *size = size_of_type(tensor.type);
        if (size == nullptr)
            return fail("tensor '%s' has the unknown type %u", name.c_str(), tensor.type);
        if (tensor.dims[0] % size->elements != 0)
            return fail("tensor '%s': its rows have %llu elements, not a multiple of %u", name.c_str(),
                        static_cast<unsigned long long>(tensor.dims[0]), size->elements);
        bytes = tensor.dims[0] / size->elements;
        bool fits = multiply(bytes, size->bytes, bytes);
        for (unsigned d = 1; d < kMaxDims; ++d)
            fits = fits && multiply(bytes, tensor.dims[d], bytes);
        return fits || fail("tensor '%s': its size does not fit 64 bits", name.c_str());
    }

    bool place_tensors(std::vector<Tensor> &tensors) {
        if (tensors.empty())
            return true;
        uint64_t base = 0;
        if (__builtin_add_overflow(static_cast<uint64_t>(at_), alignment_ - 1, &base))
            return fail("the tensor data would start beyond 64 bits");
        base = base / alignment_ * alignment_;
        for (size_t i = 0; i < tensors.size(); ++i) {
            Tensor &tensor = tensors[i];
            const std::string name = shown(tensor.name);
            uint64_t bytes = 0, start = 0, end = 0;
            if (!tensor_bytes(tensor, bytes))
                return false;
            if (offsets_[i] % alignment_ != 0)
                return fail("tensor '%s': its offset %llu is not a multiple of the alignment %llu",
                            name.c_str(), static_cast<unsigned long long>(offsets_[i]),
                            static_cast<unsigned long long>(alignment_));
            if (__builtin_add_overflow(base, offsets_[i], &start) ||
                __builtin_add_overflow(start, bytes, &end) || end > bytes_.size())
                return fail(
                    "tensor '%s': its %llu bytes at offset %llu lie beyond the file's end (the data starts "
                    "at byte %llu of %zu)",
                    name.c_str(), static_cast<unsigned long long>(bytes),
                    static_cast<unsigned long long>(offsets_[i]), static_cast<unsigned long long>(base),
                    bytes_.size());
            tensor.data = bytes_.subspan(start, bytes);
        }
        return true;
    }

    std::span<const uint8_t> bytes_;
    std::string &error_;
    size_t at_ = 0;
    uint64_t alignment_ = kDefaultAlignment;
    std::vector<uint64_t> offsets_; // of the tensors, from the start of the data
};

} // namespace

std::optional<std::string_view> Contents::text(std::string_view key) const {
    for (const Entry &entry : entries)
        if (entry.key == key && entry.type == ValueType::kString)
            return std::string_view(reinterpret_cast<const char *>(entry.value.data()), entry.value.size());
    return std::nullopt;
}

std::optional<Contents> parse(std::span<const uint8_t> bytes, std::string &error) {
    return Parser(bytes, error).parse();
}

std::optional<MappedFile> MappedFile::open(const std::string &path, std::string &error) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        error = path + ": " + (file < 0 ? std::strerror(errno) : "not a regular file");
        if (file >= 0)
            close(file);
        return std::nullopt;
    }
    const auto size = static_cast<size_t>(status.st_size);
    MappedFile mapped;
    if (size != 0) {
        void *data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (data != MAP_FAILED)
            mapped.bytes_ = {static_cast<const uint8_t *>(data), size};
        else
            error = path + ": cannot be mapped: " + std::strerror(errno);
    }
    close(file);
    if (size != 0 && mapped.bytes_.empty())
        return std::nullopt;
    std::optional<Contents> contents = parse(mapped.bytes_, error);
    if (!contents) {
        error = path + ": " + error;
        return std::nullopt;
    }
    mapped.contents_ = std::move(*contents);
    return mapped;
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), contents_(std::move(other.contents_)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(contents_, other.contents_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty())
        munmap(const_cast<uint8_t *>(bytes_.data()), bytes_.size());
}

} // namespace nybl::gguf
