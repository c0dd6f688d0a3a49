// Generates the kernels that dispatch chooses on every instruction set into a folder for mca.py, and times
// those that this CPU can run on data that stays in its first-level cache.
//
//   nybl-mca-kernels FOLDER      prints a line per kernel: name, weight rows, tokens, the bytes of
//   activations that
//                                so many groups of 32 elements advance, those groups, and the cycles per 32
//                                weights and token (- where this CPU lacks the instruction set)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/original_kernel.h"
#include "cpu/jit/tile_kernel.h"
#include "cpu/jit/vec_dot_kernel.h"
#include "cpu/jit/weight_generator.h"
#include "cpu/panel.h"
#include "dispatch/choose.h"
#include "quant/format.h"

namespace nybl::bench {
namespace {

using cpu::jit::KernelKey;
using cpu::jit::KernelKind;
using cpu::jit::WeightForm;

// Groups of 32 elements in a timed row: two K super-blocks of a panel, a long row for a dot product.
constexpr size_t kGroups = 16, kDotGroups = 128;
constexpr nybl_format kFormats[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,
                                    NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL_ROW};
constexpr nybl_isa kIsas[] = {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI};
constexpr size_t kBatches[] = {1, 4, 512}; // a token, a small batch, a prefill

// A byte that makes a number of any width an ordinary one.
constexpr uint8_t kByte = 0x2c;
// Behind the data: what a kernel prefetches.
constexpr size_t kSlack = 16384;

struct Kernel {
    KernelKey key;
    size_t rows, tokens;
    size_t step_bytes, step_groups;
    size_t groups; // that run() covers
    std::function<void()> run;
};

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A chain of multiplications that take three cycles each (additions of constants take none on some CPUs).
constexpr uint64_t kChainCycles = 3 * 20000;
void run_chain() {
    uint64_t product = 3;
    for (uint64_t i = 0; i < kChainCycles / 12; ++i)
        __asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0" : "+r"(product));
}

template <class Run>
double time_of(const Run &run) {
    const double start = seconds();
    run();
    return seconds() - start;
}

// Clock cycles of run(): its best of many short samples, against the chain's best of samples in between. The
// best is the one that nothing else disturbed.
template <class Run>
double cycles_of(const Run &run) {
    double best = 1e9, best_chain = 1e9;
    for (int i = 0; i < 100; ++i) {
        best_chain = std::min(best_chain, time_of(run_chain));
        best = std::min(best, time_of(run));
    }
    return best / best_chain * kChainCycles;
}

Kernel tile_kernel(nybl_format format, nybl_isa isa, size_t m) {
    const dispatch::Choice choice = dispatch::choose({.format = format,
                                                      .storage = NYBL_STORAGE_PACKED,
                                                      .compute = NYBL_COMPUTE_DEFAULT,
                                                      .m = m,
                                                      .n = 4096,
                                                      .k = 4096,
                                                      .n_experts = 1,
                                                      .isa = isa,
                                                      .threads = 1});
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format);
    const bool packed = choice.kernel.strategy == cpu::Strategy::Stream;
    const size_t panels = choice.kernel.nr / cpu::kPanelRows, tokens = std::min<size_t>(choice.kernel.mr, m);
    const size_t block_bytes = packed ? layout.block_bytes : size_t(cpu::jit::byte_group_bytes(layout, isa));
    const size_t blocks = packed ? kGroups * 32 / layout.block_k : kGroups;
    const size_t stride = (blocks * block_bytes + 63) / 64 * 64;
    const cpu::jit::TileFn call =
        cpu::jit::tile_kernel(packed ? WeightForm::Packed : WeightForm::Bytes, format, isa, panels, tokens);
    Kernel kernel{.key = {.kind = packed ? KernelKind::Decode : KernelKind::Prefill,
                          .format = format,
                          .isa = isa,
                          .rows = uint8_t(choice.kernel.nr),
                          .tokens = uint8_t(tokens)},
                  .rows = choice.kernel.nr,
                  .tokens = tokens,
                  .step_bytes = cpu::kActivationBytes * tokens,
                  .step_groups = 1,
                  .groups = kGroups,
                  .run = nullptr};
    if (call)
        kernel.run = [=, weights = std::vector<uint8_t>(stride * panels + kSlack, kByte),
                      activations = std::vector<uint8_t>(cpu::activation_bytes(tokens, 32 * kGroups), kByte),
                      c = std::vector<float>(choice.kernel.nr * tokens)]() mutable {
            const uintptr_t at = reinterpret_cast<uintptr_t>(weights.data());
            const cpu::jit::TileArgs args{.w = weights.data() + (64 - at % 64) % 64,
                                          .panel_stride = stride,
                                          .a = activations.data(),
                                          .c = c.data(),
                                          .blocks = blocks};
            call(&args);
        };
    return kernel;
}

Kernel vec_dot_kernel(nybl_format format, nybl_isa isa) {
    const quant::Format &weights_format = *quant::find_format(format);
    const quant::Format &activations_format = *quant::find_format(weights_format.vec_dot_type);
    const size_t blocks = kDotGroups * 32 / weights_format.block_size;
    const cpu::jit::VecDotKernel call = cpu::jit::vec_dot_kernel(format, isa);
    Kernel kernel{.key = {.kind = KernelKind::VecDot, .format = format, .isa = isa},
                  .rows = 1,
                  .tokens = 1,
                  .step_bytes = activations_format.block_bytes,
                  .step_groups = weights_format.block_size / 32,
                  .groups = kDotGroups,
                  .run = nullptr};
    if (call)
        kernel.run = [=, w = std::vector<uint8_t>(blocks * weights_format.block_bytes + kSlack, kByte),
                      a = std::vector<uint8_t>(blocks * activations_format.block_bytes + kSlack, kByte)] {
            float out = 0;
            const cpu::jit::VecDotArgs args{w.data(), a.data(), blocks, &out};
            call(&args);
        };
    return kernel;
}

Kernel original_kernel(nybl_format format, nybl_isa isa) {
    constexpr size_t kRows = cpu::jit::kOriginalRows;
    const quant::Format &weights_format = *quant::find_format(format);
    const size_t blocks = kDotGroups * 32 / weights_format.block_size;
    const size_t stride = blocks * weights_format.block_bytes;
    const cpu::jit::OriginalFn call = cpu::jit::original_kernel(format, isa);
    Kernel kernel{.key = {.kind = KernelKind::DecodeOriginal, .format = format, .isa = isa, .rows = kRows},
                  .rows = kRows,
                  .tokens = 1,
                  .step_bytes = cpu::kActivationBytes,
                  .step_groups = 1,
                  .groups = kDotGroups,
                  .run = nullptr};
    if (call)
        kernel.run = [=, w = std::vector<uint8_t>(kRows * stride + kSlack, kByte),
                      a = std::vector<uint8_t>(kDotGroups * cpu::kActivationBytes, kByte)] {
            const uint8_t *rows[kRows];
            for (size_t i = 0; i < kRows; ++i)
                rows[i] = w.data() + i * stride;
            float c[kRows] = {};
            const cpu::jit::OriginalArgs args{
                .rows = rows, .a = a.data(), .c = c, .blocks = blocks, .next = rows[0]};
            call(&args);
        };
    return kernel;
}

// False where its code cannot be generated.
bool report(const Kernel &kernel, bool runs_here) {
    if (!kernel.run)
        return false;
    std::printf("%s %zu %zu %zu %zu ", cpu::jit::kernel_name(kernel.key).text, kernel.rows, kernel.tokens,
                kernel.step_bytes, kernel.step_groups);
    if (!runs_here) {
        std::printf("-\n");
        return true;
    }
    constexpr int kCalls = 20;
    const double cycles = cycles_of([&] {
        for (int i = 0; i < kCalls; ++i)
            kernel.run();
    });
    std::printf("%.4f\n", cycles / double(kCalls * kernel.groups * kernel.rows * kernel.tokens));
    return true;
}

bool report_all() {
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    std::set<std::string> seen; // several batch sizes may be served by one kernel
    bool all = true;
    for (nybl_isa isa : kIsas) {
        const bool runs_here = cpu::isa_available(registers, isa);
        for (nybl_format format : kFormats) {
            for (size_t m : kBatches) {
                const Kernel kernel = tile_kernel(format, isa, m);
                if (seen.insert(cpu::jit::kernel_name(kernel.key).text).second)
                    all &= report(kernel, runs_here);
            }
            if (cpu::jit::has_vec_dot_kernel(format))
                all &= report(vec_dot_kernel(format, isa), runs_here);
            if (cpu::jit::has_original_kernel(format))
                all &= report(original_kernel(format, isa), runs_here);
        }
    }
    return all;
}

} // namespace
} // namespace nybl::bench

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    setenv("NYBL_JIT_DUMP", argv[1], 1);
    if (!nybl::bench::report_all()) {
        std::fprintf(stderr, "%s: %s\n", argv[0], nybl::last_error());
        return 1;
    }
    return 0;
}
