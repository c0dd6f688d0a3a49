// A random product on which every kernel of src/cpu can be run and compared.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cpu/matmul.h"
#include "fenced.h"

namespace nybl::test {

constexpr nybl_format kPanelFormats[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,
                                         NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL_ROW};

// The instruction sets with kernels of their own that this machine can run; prints the ones it cannot, once.
std::vector<nybl_isa> runnable_isas();

// Valid blocks: any code and 6-bit scale, f16 scales and minimums of ordinary size and either sign.
std::vector<uint8_t> random_blocks(const quant::Format &format, size_t rows, size_t k, std::mt19937 &random);

// N x K weights (in both storages) and M x K activations.
class RandomProduct {
  public:
    RandomProduct(nybl_format format, size_t m, size_t n, size_t k, uint32_t seed);

    // The outputs, row-major, of a job with this kernel over nth threads that run one after the other.
    // Everything that kernels touch lies between pages that fault; empty where they wrote beside an output.
    std::vector<float> run(const cpu::KernelChoice &kernel, nybl_storage storage, size_t nth) const;
    std::vector<float> reference() const { return run({}, NYBL_STORAGE_PACKED, 1); }

    std::vector<float> x;
    std::vector<float> bias; // empty: none

  private:
    cpu::Matrix w_;
    size_t m_;
    Fenced::Fence fence_; // behind or before, by the seed
    std::unique_ptr<Fenced> original_, packed_;
};

// Equal bits, any NaN equal to any NaN.
bool same_bits(const std::vector<float> &a, const std::vector<float> &b);

} // namespace nybl::test
