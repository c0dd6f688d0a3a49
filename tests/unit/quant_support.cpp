// Whole-tensor forms of the row codecs for the tests.
#include "unit/quant_support.h"

#include <stdexcept>

#include "base/status.h"

namespace {

// Not an assertion of the test framework: compilers.sh builds this file without it.
void require(nybl_status status) {
    if (status != NYBL_OK)
        throw std::runtime_error(nybl::last_error());
}

uint64_t fnv1a(uint64_t hash, const std::vector<uint8_t> &bytes) {
    for (const uint8_t byte : bytes)
        hash = (hash ^ byte) * 0x100000001B3u;
    return hash;
}

} // namespace

namespace quant_test {

using namespace nybl::quant;

std::vector<uint8_t> encode(nybl_format id, nybl_level level, const std::vector<float> &x, size_t rows,
                            const float *importance, nybl_isa isa) {
    const Format &format = format_of(id);
    const size_t k = x.size() / rows;
    const float *effective = nullptr;
    size_t bytes = 0;
    require(row_bytes(format, k, &bytes));
    require(check_importance(k, importance, &effective));
    require(check_source(format, {0, rows}, k, {x.data(), 0}));
    std::vector<uint8_t> out(rows * bytes);
    quantize_rows(format, isa, level, {0, rows}, k, {x.data(), 0}, effective, {out.data(), 0});
    return out;
}

std::vector<float> decode(nybl_format id, const std::vector<uint8_t> &bytes, size_t rows, nybl_isa isa) {
    const Format &format = format_of(id);
    const size_t k = (bytes.size() / rows - format.row_factor_bytes) / format.block_bytes * format.block_size;
    std::vector<float> values(rows * k);
    dequantize_rows(format, isa, {0, rows}, k, {bytes.data(), 0}, values.data(), 0);
    return values;
}

uint64_t checksum_of_all() {
    constexpr size_t k = 512;
    uint64_t hash = 0xCBF29CE484222325u;
    Numbers numbers(4);
    std::vector<float> x = numbers.bells(3 * k), importance(k);
    for (size_t i = 0; i < k; ++i) {
        x[k + i] += 3.0f;
        x[2 * k + i] *= i % 37 == 0 ? 50.0f : 1.0f;
        importance[i] = numbers.uniform() * numbers.uniform();
    }
    for (const nybl_format id : kAllFormats)
        for (const nybl_level level : kLevels)
            for (const float *weights :
                 {static_cast<const float *>(nullptr), static_cast<const float *>(importance.data())})
                hash = fnv1a(hash, encode(id, level, x, 3, weights));
    return hash;
}

} // namespace quant_test
