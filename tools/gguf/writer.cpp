// Little-endian fields, one after the other.
#include "writer.h"

#include <cstring>

namespace nybl::gguf {
namespace {

void put(std::vector<uint8_t> &out, const void *bytes, size_t count) {
    const size_t at = out.size();
    out.resize(at + count);
    if (count != 0)
        std::memcpy(&out[at], bytes, count);
}

template <class T>
void put_number(std::vector<uint8_t> &out, T value) {
    put(out, &value, sizeof value);
}

void put_text(std::vector<uint8_t> &out, std::string_view text) {
    put_number(out, uint64_t{text.size()});
    put(out, text.data(), text.size());
}

} // namespace

void Writer::entry(std::string_view key, ValueType type, std::span<const uint8_t> value) {
    ++n_entries_;
    put_text(entries_, key);
    put_number(entries_, type);
    if (type == ValueType::kString)
        put_number(entries_, uint64_t{value.size()});
    put(entries_, value.data(), value.size());
}

void Writer::text(std::string_view key, std::string_view value) {
    entry(key, ValueType::kString, {reinterpret_cast<const uint8_t *>(value.data()), value.size()});
}

void Writer::tensor(std::string_view name, const std::vector<uint64_t> &dims, uint32_t type, uint64_t bytes) {
    ++n_tensors_;
    put_text(tensors_, name);
    put_number(tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims)
        put_number(tensors_, dim);
    put_number(tensors_, type);
    put_number(tensors_, data_bytes_);
    data_bytes_ += padded(bytes);
}

std::vector<uint8_t> Writer::head() const {
    std::vector<uint8_t> out;
    put(out, "GGUF", 4);
    put_number(out, uint32_t{3});
    put_number(out, n_tensors_);
    put_number(out, n_entries_);
    put(out, entries_.data(), entries_.size());
    put(out, tensors_.data(), tensors_.size());
    if (n_tensors_ != 0)
        out.resize(padded(out.size()));
    return out;
}

} // namespace nybl::gguf
