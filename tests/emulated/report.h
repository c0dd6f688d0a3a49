// Outcomes as lines that tests/run.py counts: "ok NAME", "not ok NAME: why", "skip NAME: why".
#pragma once

#include <cstdint>
#include <string>

namespace nybl::emulated {

class Report {
  public:
    explicit Report(std::string prefix) : prefix_(std::move(prefix)) {}
    void ok(const std::string &name);
    void fail(const std::string &name, const std::string &why);
    void skip(const std::string &name, const std::string &why);
    void check(const std::string &name, bool passed, const std::string &why) {
        passed ? ok(name) : fail(name, why);
    }
    int failures() const noexcept { return failures_; }

  private:
    std::string prefix_;
    int failures_ = 0;
};

// The same numbers on every machine.
class Random {
  public:
    uint32_t next() noexcept {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 33) << 1 | static_cast<uint32_t>(state_ >> 62 & 1);
    }
    uint32_t below(uint32_t n) noexcept { return static_cast<uint32_t>(uint64_t{next()} * n >> 32); }
    float uniform() noexcept { return static_cast<float>(next() >> 8) * 0x1p-23f - 1.0f; } // [-1, 1)

  private:
    uint64_t state_ = 0x9e3779b97f4a7c15;
};

// The instructions that kernels rest on, against plain arithmetic: whether the CPU, real or emulated, is fit
// to judge kernels (instructions.cpp).
void check_instructions(Report &report);

// The block-level dot products of this CPU's instruction sets (vec_dots.cpp).
void check_vec_dots(Report &report);

// Every matrix kernel that the library generates for the instruction sets of this CPU, against its scalar
// kernels (kernels.cpp). brief: a few shapes, for CPU models whose instruction sets are checked in full
// elsewhere.
void check_kernels(Report &report, bool brief);

} // namespace nybl::emulated
