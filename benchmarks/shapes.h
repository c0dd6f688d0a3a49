// Shapes to run, from text files: "ops M,M,... N K [experts used]", one group a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nybl::bench {

struct ShapeLine {
    std::vector<std::string> ops;
    std::vector<uint64_t> ms;
    uint64_t n = 0, k = 0;
    uint64_t experts = 0, used = 0; // 0: a plain matrix
};

// `name` is a path, or the name of a file in the shapes folder with or without ".txt". Throws
// std::runtime_error that names file and line where the text makes no sense.
std::vector<ShapeLine> load_shapes(const std::string &name);

} // namespace nybl::bench
