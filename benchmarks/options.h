// The bench's own flags; those of Google Benchmark (--benchmark_...) pass by.
#pragma once

#include <cstdint>
#include <nybl/nybl.h>
#include <optional>
#include <string>
#include <vector>

#include "arena.h"

namespace nybl::bench {

struct Options {
    std::vector<nybl_isa> isas;       // caps; empty: the best
    std::optional<uint32_t> gpu;      // run on this OpenCL device, and not on the CPU
    std::vector<unsigned> threads;    // empty: 1 and all cores
    std::vector<nybl_format> formats; // empty: every weight format
    std::vector<std::string> ops;     // empty: all
    std::vector<std::string> shapes;  // files, or names of files in the shapes folder
    std::string model;                // a GGUF file
    std::string peer;                 // a libggml-cpu.so to run the same cases; empty: none
    std::string quality, quality_csv; // a GGUF file to requantize, and where to write the figures
    uint64_t quality_rows = 32;       // of a tensor
    std::string ggml;                 // ggml's shared library
    bool hot = false, quick = false, list = false, limits_only = false;
    Pages pages = Pages::kHuge;
    double budget_seconds = 0; // cases that would start later are left out; 0: no limit
    double arena_factor = 1.5; // memory that weights are cycled through, in last-level caches
};

// Returns false where the program should end now with `exit_code` (help, or a wrong flag: told on stderr).
bool parse_options(int argc, char **argv, Options &options, int &exit_code);

} // namespace nybl::bench
