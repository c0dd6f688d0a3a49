// The product of one random matrix pair, as the kernel under test and the scalar reference are asked for it.
#include "kernels/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/half.h"
#include "cpu/isa.h"

namespace nybl::test {
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
    const size_t per_row = k / format.block_size, row_bytes = quant::row_size(format, per_row);
    std::vector<uint8_t> bytes(rows * row_bytes);
    for (uint8_t &byte : bytes)
        byte = uint8_t(random());
    std::uniform_real_distribution<float> scale(0.25f, 1.0f);
    const auto put = [&](size_t offset, float value) {
        const uint16_t bits = f32_to_f16(random() % 4 == 0 ? -value : value);
        std::memcpy(bytes.data() + offset, &bits, 2);
    };
    for (size_t row = 0; row < rows; ++row) {
        if (format.row_factor_bytes) { // in place of scales that must be finite
            const float factor = scale(random) / 4096;
            std::memcpy(bytes.data() + (row + 1) * row_bytes - sizeof factor, &factor, sizeof factor);
            continue;
        }
        for (size_t b = 0; b < per_row; ++b) {
            const size_t block = row * row_bytes + b * format.block_bytes;
            // The scale of Q6_K lies at the end.
            put(block + (format.id == NYBL_Q6_K ? 208 : 0), scale(random) / 64);
            if (format.has_min)
                put(block + 2, scale(random) / (format.block_size == 256 ? 64 : 4));
        }
    }
    return bytes;
}

RandomProduct::RandomProduct(nybl_format format, size_t m, size_t n, size_t k, uint32_t seed)
    : m_(m), fence_(seed % 2 ? Fenced::Fence::Behind : Fenced::Fence::Before) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    w_.format = quant::find_format(format);
    w_.layout = cpu::find_panel_layout(format);
    w_.n = n;
    w_.k = k;
    const std::vector<uint8_t> blocks = random_blocks(*w_.format, n, k, random);
    original_ = std::make_unique<Fenced>(blocks.size(), fence_);
    std::copy(blocks.begin(), blocks.end(), original_->data());
    const size_t row_bytes = quant::row_size(*w_.format, k / w_.format->block_size);
    const size_t panel = cpu::panel_bytes(*w_.layout, k);
    packed_ = std::make_unique<Fenced>(cpu::panel_count(n) * panel, fence_);
    for (size_t p = 0; p < cpu::panel_count(n); ++p)
        cpu::pack_panel(*w_.layout, k, std::min(cpu::kPanelRows, n - p * cpu::kPanelRows),
                        original_->data() + p * cpu::kPanelRows * row_bytes, row_bytes,
                        packed_->data() + p * panel);
    x.resize(m * k);
    for (float &value : x)
        value = normal(random);
}

std::vector<float> RandomProduct::run(const cpu::KernelChoice &kernel, nybl_storage storage,
                                      size_t nth) const {
    constexpr float kUnwritten = 12345.0f;
    const size_t n = w_.n, k = w_.k;
    const Fenced y(m_ * n * sizeof(float), fence_), fenced_x(x.size() * sizeof(float), fence_),
        fenced_bias(bias.size() * sizeof(float), fence_);
    std::fill_n(y.as<float>(), m_ * n, kUnwritten);
    std::copy(x.begin(), x.end(), fenced_x.as<float>());
    std::copy(bias.begin(), bias.end(), fenced_bias.as<float>());
    const bool in_place = storage == NYBL_STORAGE_ORIGINAL;
    cpu::Product product;
    product.w = w_;
    product.w.storage = storage;
    product.w.data = in_place ? original_->data() : packed_->data();
    product.w.stride =
        in_place ? quant::row_size(*w_.format, k / w_.format->block_size) : cpu::panel_bytes(*w_.layout, k);
    product.y = {y.data(), NYBL_F32, m_, n * 4, 0};
    product.bias = bias.empty() ? nullptr : fenced_bias.as<float>();
    product.kernel = kernel;
    cpu::Job job;
    job.m = m_;
    job.k = k;
    job.x = {fenced_x.data(), NYBL_F32, m_, k * 4, 0};
    job.products = &product;
    job.n_products = 1;
    const Fenced scratch(cpu::scratch_bytes(job, nth), fence_);
    // What a kernel reads without anyone having written it is neither zero nor right.
    std::fill_n(scratch.data(), scratch.size(), uint8_t(0xA5));
    cpu::begin(job, scratch.data(), nth);
    for (size_t i = 0; i < nth; ++i)
        cpu::quantize(job, scratch.data(), i, nth);
    for (size_t i = nth; i-- > 0;)
        cpu::compute(job, scratch.data(), i, nth);
    for (const Fenced *memory : std::initializer_list<const Fenced *>{&y, &fenced_x, &fenced_bias, &scratch,
                                                                      original_.get(), packed_.get()})
        if (!memory->intact())
            return {};
    return {y.as<float>(), y.as<float>() + m_ * n};
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
