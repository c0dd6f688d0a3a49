// What the tests of the C API share: reproducible data, contexts and weights in one line, products as
// vectors.
#pragma once

#include <nybl/nybl.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace capi_test {

constexpr nybl_format kFormats[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,
                                    NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL_ROW};

// Where a block keeps its f16 scale.
constexpr size_t scale_offset(nybl_format format) {
    return format == NYBL_Q6_K ? 208 : 0;
}
std::string format_name(nybl_format format);

// Roughly Gaussian, the same on every run.
std::vector<float> random_floats(size_t count, uint32_t seed);

nybl::Context make_context(uint32_t n_threads = 1, nybl_isa max_isa = NYBL_ISA_BEST);

// Blocks of random weights: n * n_experts rows.
std::vector<uint8_t> random_blocks(nybl_format format, size_t rows, size_t k, uint32_t seed);

nybl_weights_desc describe(nybl_format format, size_t n, size_t k, const void *data, size_t n_experts = 1,
                           nybl_storage storage = NYBL_STORAGE_PACKED);

nybl_matmul_args f32_args(size_t m, const float *x, float *y);

// The bytes of a product; bits, so that == means equal bits.
std::vector<uint32_t> bits(const std::vector<float> &values);

// An output filled with one NaN: what was not written shows.
std::vector<float> unwritten(size_t count);
void forget(std::vector<float> &values); // the same in place

bool last_error_has(const char *text);

} // namespace capi_test
