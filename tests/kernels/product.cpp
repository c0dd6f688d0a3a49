// The product of one random matrix pair, as the kernel under test and the scalar reference are asked for it.
#include "kernels/product.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/half.h"
#include "cpu/isa.h"

namespace nybl::test {
namespace {

// 64-byte aligned bytes inside a vector that is a little longer.
uint8_t *aligned(std::vector<uint8_t> &bytes, size_t size) {
    bytes.resize(size + 64);
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (64 - address % 64) % 64;
}

} // namespace

std::vector<nybl_isa> runnable_isas() {
    static const std::vector<nybl_isa> isas = [] {
        std::vector<nybl_isa> found;
        for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX})
            if (cpu::isa_available(cpu::read_cpu_registers(), isa))
                found.push_back(isa);
            else
                std::printf("not on this machine: %s (the emulated tests run it)\n", cpu::isa_name(isa));
        return found;
    }();
    return isas;
}

std::vector<uint8_t> random_blocks(const quant::Format &format, size_t rows, size_t k, std::mt19937 &random) {
    const size_t blocks = rows * k / format.block_size;
    std::vector<uint8_t> bytes(blocks * format.block_bytes);
    for (uint8_t &byte : bytes)
        byte = uint8_t(random());
    std::uniform_real_distribution<float> scale(0.25f, 1.0f);
    const auto put = [&](size_t offset, float value) {
        const uint16_t bits = f32_to_f16(random() % 4 == 0 ? -value : value);
        std::memcpy(bytes.data() + offset, &bits, 2);
    };
    for (size_t b = 0; b < blocks; ++b) {
        put(b * format.block_bytes, scale(random) / 64);
        if (format.has_min)
            put(b * format.block_bytes + 2, scale(random) / (format.block_size == 256 ? 64 : 4));
    }
    return bytes;
}

RandomProduct::RandomProduct(nybl_format format, size_t m, size_t n, size_t k, uint32_t seed) : m_(m) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    w_.format = quant::find_format(format);
    w_.layout = cpu::find_panel_layout(format);
    w_.n = n;
    w_.k = k;
    original_ = random_blocks(*w_.format, n, k, random);
    const size_t row_bytes = k / w_.format->block_size * w_.format->block_bytes;
    const size_t panel = cpu::panel_bytes(*w_.layout, k);
    uint8_t *packed = aligned(packed_, cpu::panel_count(n) * panel);
    for (size_t p = 0; p < cpu::panel_count(n); ++p)
        cpu::pack_panel(*w_.layout, k, std::min(cpu::kPanelRows, n - p * cpu::kPanelRows),
                        original_.data() + p * cpu::kPanelRows * row_bytes, row_bytes, packed + p * panel);
    x.resize(m * k);
    for (float &value : x)
        value = normal(random);
}

std::vector<float> RandomProduct::run(const cpu::KernelChoice &kernel, nybl_storage storage,
                                      size_t nth) const {
    // Canaries around the output: a kernel that writes beside it is caught by the comparison.
    constexpr float kCanary = 12345.0f;
    const size_t n = w_.n, k = w_.k;
    std::vector<float> y(m_ * n + 32, kCanary);
    cpu::Product product;
    product.w = w_;
    product.w.storage = storage;
    auto *packed = const_cast<uint8_t *>(packed_.data());
    product.w.data = storage == NYBL_STORAGE_ORIGINAL
                         ? original_.data()
                         : packed + (64 - reinterpret_cast<uintptr_t>(packed) % 64) % 64;
    product.w.stride = storage == NYBL_STORAGE_ORIGINAL ? k / w_.format->block_size * w_.format->block_bytes
                                                        : cpu::panel_bytes(*w_.layout, k);
    product.y = {reinterpret_cast<uint8_t *>(y.data() + 16), NYBL_F32, m_, n * 4, 0};
    product.bias = bias.empty() ? nullptr : bias.data();
    product.kernel = kernel;
    cpu::Job job;
    job.m = m_;
    job.k = k;
    job.x = {reinterpret_cast<uint8_t *>(const_cast<float *>(x.data())), NYBL_F32, m_, k * 4, 0};
    job.products = &product;
    job.n_products = 1;
    std::vector<uint8_t> memory;
    uint8_t *scratch = aligned(memory, cpu::scratch_bytes(job, nth));
    cpu::begin(job, scratch, nth);
    for (size_t i = 0; i < nth; ++i)
        cpu::quantize(job, scratch, i, nth);
    for (size_t i = nth; i-- > 0;)
        cpu::compute(job, scratch, i, nth);
    for (size_t i = 0; i < 16; ++i)
        if (y[i] != kCanary || y[m_ * n + 16 + i] != kCanary)
            return {};
    return {y.begin() + 16, y.end() - 16};
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    if (a.size() != b.size())
        return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
            !(std::isnan(a[i]) && std::isnan(b[i])))
            return false;
    return true;
}

} // namespace nybl::test
