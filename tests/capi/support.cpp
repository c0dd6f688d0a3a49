// Helpers of the C API tests.
#include "capi/support.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace capi_test {

std::string format_name(nybl_format format) {
    auto info = nybl::make<nybl_format_info>();
    nybl::check(nybl_format_get_info(format, &info));
    return info.name;
}

std::vector<float> random_floats(size_t count, uint32_t seed) {
    std::vector<float> values(count);
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    const auto next = [&] {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
    };
    for (float &value : values)
        value = next() + next() + next() + next();
    return values;
}

nybl::Context make_context(uint32_t n_threads, nybl_isa max_isa) {
    auto desc = nybl::make<nybl_context_desc>();
    desc.n_threads = n_threads;
    desc.max_isa = max_isa;
    return nybl::Context(desc);
}

std::vector<uint8_t> random_blocks(nybl_format format, size_t rows, size_t k, uint32_t seed) {
    return nybl::quantize(format, rows, k, random_floats(rows * k, seed).data());
}

nybl_weights_desc describe(nybl_format format, size_t n, size_t k, const void *data, size_t n_experts,
                           nybl_storage storage) {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = format;
    desc.n = n;
    desc.k = k;
    desc.n_experts = n_experts;
    desc.data = data;
    desc.storage = storage;
    return desc;
}

nybl_matmul_args f32_args(size_t m, const float *x, float *y) {
    auto args = nybl::make<nybl_matmul_args>();
    args.m = m;
    args.x = x;
    args.y = y;
    return args;
}

std::vector<uint32_t> bits(const std::vector<float> &values) {
    std::vector<uint32_t> out;
    for (const float value : values)
        out.push_back(std::bit_cast<uint32_t>(value));
    return out;
}

std::vector<float> unwritten(size_t count) {
    std::vector<float> values(count);
    forget(values);
    return values;
}

void forget(std::vector<float> &values) {
    std::fill(values.begin(), values.end(), std::bit_cast<float>(0x7fc0dead));
}

bool last_error_has(const char *text) {
    return std::strstr(nybl_last_error(), text) != nullptr;
}

} // namespace capi_test
