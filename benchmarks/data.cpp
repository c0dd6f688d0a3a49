// Generators of test data.
#include "data.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numbers>
#include <stdexcept>

namespace nybl::bench {

nybl_format_info format_info(nybl_format format) {
    nybl_format_info info{};
    info.struct_size = sizeof info;
    if (nybl_format_get_info(format, &info) != NYBL_OK)
        throw std::runtime_error(nybl_last_error());
    return info;
}

size_t row_bytes(nybl_format format, uint64_t k) {
    size_t bytes = 0;
    if (nybl_row_bytes(format, k, &bytes) != NYBL_OK)
        throw std::runtime_error(nybl_last_error());
    return bytes;
}

uint64_t Random::next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du >> 16;
}

namespace {

const std::vector<float> &normal_pool() {
    static const std::vector<float> pool = [] {
        Random random(1);
        std::vector<float> values(1 << 16);
        for (size_t i = 0; i < values.size(); i += 2) {
            const double u = (static_cast<double>(random.below(1 << 30)) + 0.5) / (1 << 30);
            const double angle =
                2 * std::numbers::pi * static_cast<double>(random.below(1 << 30)) / (1 << 30);
            const double radius = std::sqrt(-2 * std::log(u));
            values[i] = static_cast<float>(radius * std::cos(angle));
            values[i + 1] = static_cast<float>(radius * std::sin(angle));
        }
        return values;
    }();
    return pool;
}

} // namespace

std::vector<float> normal_values(size_t count, uint64_t seed) {
    const std::vector<float> &pool = normal_pool();
    Random random(seed);
    std::vector<float> values(count);
    constexpr size_t kRun = 256; // runs of the pool from random places: as good as fresh draws for a bench
    for (size_t i = 0; i < count; i += kRun) {
        const size_t length = std::min(kRun, count - i);
        std::memcpy(&values[i], &pool[random.below(pool.size() - kRun)], length * sizeof(float));
    }
    return values;
}

std::vector<uint8_t> random_weights(nybl_format format, uint64_t rows, uint64_t k, uint64_t seed) {
    const nybl_format_info info = format_info(format);
    constexpr uint64_t kPoolElements = 1 << 16;
    const uint64_t pool_blocks = kPoolElements / info.block_size;
    std::vector<uint8_t> pool(row_bytes(format, kPoolElements));
    const std::vector<float> values = normal_values(kPoolElements, seed);
    if (nybl_quantize(format, 1, kPoolElements, values.data(), 0, nullptr, pool.data(), 0) != NYBL_OK)
        throw std::runtime_error(fmt::format("{}: {}", info.name, nybl_last_error()));

    std::vector<uint8_t> bytes(rows * row_bytes(format, k));
    Random random(seed);
    const size_t extra = info.row_extra_bytes;
    for (size_t at = 0; at < bytes.size();) {
        for (uint64_t block = 0; block < k / info.block_size; ++block, at += info.block_bytes)
            std::memcpy(&bytes[at], &pool[random.below(pool_blocks) * info.block_bytes], info.block_bytes);
        std::memcpy(&bytes[at], pool.data() + pool.size() - extra, extra);
        at += extra;
    }
    return bytes;
}

std::shared_ptr<const Source> random_source(nybl_format format, uint64_t n, uint64_t k, uint64_t experts) {
    auto source = std::make_shared<Source>();
    source->format = format;
    source->n = n;
    source->k = k;
    source->experts = experts;
    source->owned = random_weights(format, n * experts, k, n ^ k);
    source->tensors.emplace_back(source->owned);
    return source;
}

} // namespace nybl::bench
