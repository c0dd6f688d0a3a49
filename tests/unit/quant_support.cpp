// Whole-tensor forms of the row codecs for the tests.
#include "unit/quant_support.h"

#include <catch2/catch_test_macros.hpp>

namespace quant_test {

using namespace nybl::quant;

std::vector<uint8_t> encode(nybl_format id, nybl_level level, const std::vector<float> &x, size_t rows,
                            const float *importance) {
    const Format &format = format_of(id);
    const size_t k = x.size() / rows;
    const float *effective = nullptr;
    size_t bytes = 0;
    REQUIRE(row_bytes(format, k, &bytes) == NYBL_OK);
    REQUIRE(check_importance(k, importance, &effective) == NYBL_OK);
    REQUIRE(check_source(format, level, {0, rows}, k, {x.data(), 0}, effective) == NYBL_OK);
    std::vector<uint8_t> out(rows * bytes);
    quantize_rows(format, level, {0, rows}, k, {x.data(), 0}, effective, {out.data(), 0});
    return out;
}

std::vector<float> decode(nybl_format id, const std::vector<uint8_t> &bytes, size_t rows) {
    const Format &format = format_of(id);
    const size_t k = bytes.size() / rows / format.block_bytes * format.block_size;
    std::vector<float> values(rows * k);
    dequantize_rows(format, {0, rows}, k, {bytes.data(), 0}, values.data(), 0);
    return values;
}

} // namespace quant_test
