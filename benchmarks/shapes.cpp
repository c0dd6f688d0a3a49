// Reads shape files from beside the program or from the source tree.
#include "shapes.h"

#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace nybl::bench {
namespace {

std::filesystem::path find_file(const std::string &name) {
    std::error_code ignored;
    const std::filesystem::path beside =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "shapes";
    const std::filesystem::path folders[] = {"", beside, NYBL_BENCH_SHAPES_DIR};
    for (const auto &folder : folders)
        for (const char *ending : {"", ".txt"})
            if (auto path = folder / (name + ending); std::filesystem::is_regular_file(path, ignored))
                return path;
    throw std::runtime_error(fmt::format("no shape file '{}', here or in {} or in {}", name, beside.string(),
                                         NYBL_BENCH_SHAPES_DIR));
}

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');)
        parts.push_back(part);
    return parts;
}

uint64_t number(const std::string &text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > (uint64_t{1} << 31))
        throw std::runtime_error(fmt::format("'{}' is not a size from 1 to 2^31", text));
    return value;
}

ShapeLine parse_line(const std::string &text) {
    std::stringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    if (words.size() != 4 && words.size() != 6)
        throw std::runtime_error("a line is: ops M,M,... N K [experts used]");
    ShapeLine line;
    line.ops = split(words[0]);
    for (const std::string &m : split(words[1]))
        line.ms.push_back(number(m));
    line.n = number(words[2]);
    line.k = number(words[3]);
    if (words.size() == 6) {
        line.experts = number(words[4]);
        line.used = number(words[5]);
        if (line.used > line.experts)
            throw std::runtime_error("more experts used than there are");
    }
    return line;
}

} // namespace

std::vector<ShapeLine> load_shapes(const std::string &name) {
    const std::filesystem::path path = find_file(name);
    std::ifstream file(path);
    if (!file)
        throw std::runtime_error("cannot read " + path.string());
    std::vector<ShapeLine> lines;
    int at = 0;
    for (std::string text; std::getline(file, text);) {
        ++at;
        text = text.substr(0, text.find('#'));
        if (text.find_first_not_of(" \t\r") == std::string::npos)
            continue;
        try {
            lines.push_back(parse_line(text));
        } catch (const std::runtime_error &error) {
            throw std::runtime_error(fmt::format("{}:{}: {}", path.string(), at, error.what()));
        }
    }
    return lines;
}

} // namespace nybl::bench
