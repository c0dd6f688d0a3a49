// Output checks before timing: bits against the scalar kernels, and the error against f64 arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weights.h"

namespace nybl::bench {

// Sorted distinct indices below `count`: all where there are few, else both ends and some between.
std::vector<uint64_t> sampled(uint64_t count, size_t most);

struct Verdict {
    std::string mismatch; // empty: equal
    double squared_error = 0, squared_value = 0;

    void merge(const Verdict &other);
    double nmse() const { return squared_value > 0 ? squared_error / squared_value : 0; }
};

// An output buffer that starts out as a pattern no kernel writes, with a guard behind it.
class CheckedOutput {
  public:
    explicit CheckedOutput(size_t count);
    float *data() { return values_.data(); }
    const float *data() const { return values_.data(); }
    // Says which element was not written, or that something was written behind the end.
    std::string complaint() const;

  private:
    size_t count_;
    std::vector<float> values_;
};

// Row-major y[m, n] of x[m, k] and one matrix of the source.
struct Product {
    const Source &source;
    std::span<const uint8_t> matrix; // n rows of original blocks
    nybl_compute compute;
    std::span<const float> x;
    std::span<const float> y;
    uint64_t m;
    bool same_bits; // as the scalar kernels; a GPU promises an error only
};
Verdict verify_product(const Product &product, Contexts &contexts);

} // namespace nybl::bench
