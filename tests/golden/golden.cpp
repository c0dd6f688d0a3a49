// Reads golden.bin once, whole.
#include "golden/golden.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

namespace golden {
namespace {

struct File {
    std::vector<uint8_t> bytes;
    std::map<std::string, Tensor> tensors;
};

uint32_t u32(const uint8_t *p) {
    uint32_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

File read() {
    File file;
    std::ifstream in(NYBL_GOLDEN_FILE, std::ios::binary);
    file.bytes.assign(std::istreambuf_iterator<char>(in), {});
    const auto &bytes = file.bytes;
    if (bytes.size() < 16 || std::memcmp(bytes.data(), "NYBLGOLD", 8) != 0)
        throw std::runtime_error("golden.bin is missing or not a golden file: " NYBL_GOLDEN_FILE);
    const size_t count = u32(&bytes[8]), entry = u32(&bytes[12]), start = 16 + count * entry;
    for (size_t i = 0; i < count; ++i) {
        const uint8_t *e = bytes.data() + 16 + i * entry;
        Tensor t{u32(e + 40), u32(e + 44), u32(e + 48), bytes.data() + start + u32(e + 52), u32(e + 56)};
        if (start + u32(e + 52) + t.bytes > bytes.size())
            throw std::runtime_error("golden.bin is cut short");
        file.tensors.emplace(reinterpret_cast<const char *>(e), t);
    }
    return file;
}

template <class T>
std::vector<T> copy(const Tensor &t) {
    std::vector<T> values(t.bytes / sizeof(T));
    std::memcpy(values.data(), t.data, t.bytes);
    return values;
}

} // namespace

std::vector<float> Tensor::floats() const {
    return copy<float>(*this);
}
std::vector<uint64_t> Tensor::hashes() const {
    return copy<uint64_t>(*this);
}

const Tensor &tensor(const std::string &name) {
    static const File file = read();
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end())
        throw std::runtime_error("golden.bin holds no tensor " + name);
    return found->second;
}

const std::vector<std::string> &distributions() {
    static const std::vector<std::string> names{"normal",         "laplace",    "student_t",
                                                "uniform_offset", "outlier",    "tiny",
                                                "large",          "degenerate", "model_rows"};
    return names;
}

uint64_t hash(const float *values, size_t n) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(values);
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n * sizeof(float); ++i)
        h = (h ^ bytes[i]) * 0x100000001B3u;
    return h;
}

} // namespace golden
