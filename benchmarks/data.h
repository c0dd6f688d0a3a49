// Test data: ordinary finite numbers, made fast. Weights are drawn from a pool of really quantized blocks, so
// that every block is valid and no scale is subnormal (which would slow any kernel down).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nybl/nybl.h>
#include <span>
#include <string>
#include <vector>

namespace nybl::bench {

nybl_format_info format_info(nybl_format format);
size_t row_bytes(nybl_format format, uint64_t k);

std::vector<float> normal_values(size_t count, uint64_t seed);
std::vector<uint8_t> random_weights(nybl_format format, uint64_t rows, uint64_t k, uint64_t seed);

// Small fast generator; the standard ones cost more than the data they make.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
    uint64_t next();
    uint64_t below(uint64_t bound) { return next() % bound; }

  private:
    uint64_t state_;
};

// Weights in their original blocks: one tensor, or the equal-shaped ones of a model's layers.
struct Source {
    nybl_format format = NYBL_F32;
    uint64_t n = 0, k = 0, experts = 1;
    std::vector<std::span<const uint8_t>> tensors;
    std::string origin; // "attn_q, attn_output" of a model; empty: random
    std::vector<uint8_t> owned;

    uint64_t rows() const { return n * experts; }
};
std::shared_ptr<const Source> random_source(nybl_format format, uint64_t n, uint64_t k, uint64_t experts);

} // namespace nybl::bench
