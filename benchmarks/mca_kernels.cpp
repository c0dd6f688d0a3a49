// Generates the micro-kernels of every instruction set into a folder for mca.py, and times those that this
// CPU can run on data that stays in its first-level cache.
//
//   nybl-mca-kernels FOLDER      prints one line per kernel: name, rows, tokens, cycles per 32 weights and
//   token, or -
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/tile_kernel.h"
#include "cpu/jit/weight_generator.h"
#include "cpu/panel.h"

namespace nybl::bench {
namespace {

using cpu::jit::TileArgs;
using cpu::jit::WeightForm;

constexpr size_t kGroups = 16; // of 32 elements: two K super-blocks
constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_1, NYBL_Q4_K, NYBL_Q5_K, NYBL_IQ4_NL};

struct Shape {
    WeightForm form;
    size_t panels, tokens;
};

// One token, a small batch, and the tile of a prefill.
std::vector<Shape> shapes(nybl_isa isa) {
    const bool wide = isa >= NYBL_ISA_AVX512_VNNI;
    const size_t prefill_panels = wide ? 2 : 1;
    return {{WeightForm::Packed, 2, 1},
            {WeightForm::Packed, 1, 4},
            {WeightForm::Bytes, prefill_panels, cpu::jit::max_tokens(isa, prefill_panels)}};
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of several short runs: the one that nothing else disturbed.
template <class Run>
double best_seconds(const Run &run) {
    double best = 1e9;
    for (int i = 0; i < 40; ++i) {
        const double start = seconds();
        run();
        best = std::min(best, seconds() - start);
    }
    return best;
}

// Seconds per clock cycle, from a chain of multiplications that take three each (additions of constants take
// none on some CPUs).
double cycle_seconds() {
    constexpr uint64_t kMultiplications = 100000;
    return best_seconds([] {
               uint64_t product = 3;
               for (uint64_t i = 0; i < kMultiplications / 4; ++i)
                   __asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
                                    : "+r"(product));
           }) /
           (3 * kMultiplications);
}

double measured_cycles(cpu::jit::TileFn kernel, nybl_format format, nybl_isa isa, const Shape &shape,
                       double cycle) {
    const cpu::PanelLayout &layout = *cpu::find_panel_layout(format);
    const bool packed = shape.form == WeightForm::Packed;
    const size_t block_bytes = packed ? layout.block_bytes : size_t(cpu::jit::byte_group_bytes(layout, isa));
    const size_t blocks = packed ? kGroups * 32 / layout.block_k : kGroups;
    const size_t stride = (blocks * block_bytes + 63) / 64 * 64;
    // A byte that makes every number an ordinary one, whatever its width. Behind the weights lies what a
    // kernel prefetches.
    constexpr uint8_t kByte = 0x2c;
    std::vector<uint8_t> weights(stride * shape.panels + 64 + 8192, kByte);
    std::vector<uint8_t> activations(cpu::activation_bytes(shape.tokens, 32 * kGroups), kByte);
    std::vector<float> c(16 * shape.panels * shape.tokens);
    const TileArgs args{.w = weights.data() + (64 - reinterpret_cast<uintptr_t>(weights.data()) % 64) % 64,
                        .panel_stride = stride,
                        .a = activations.data(),
                        .c = c.data(),
                        .blocks = blocks};
    constexpr int kCalls = 50;
    const double time = best_seconds([&] {
        for (int i = 0; i < kCalls; ++i)
            kernel(&args);
    });
    return time / cycle / double(kCalls * kGroups * cpu::kPanelRows * shape.panels * shape.tokens);
}

} // namespace
} // namespace nybl::bench

int main(int argc, char **argv) {
    using namespace nybl;
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    setenv("NYBL_JIT_DUMP", argv[1], 1);
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    const double cycle = bench::cycle_seconds();
    for (nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI})
        for (nybl_format format : bench::kFormats)
            for (const bench::Shape &shape : bench::shapes(isa)) {
                const cpu::jit::TileFn kernel =
                    cpu::jit::tile_kernel(shape.form, format, isa, shape.panels, shape.tokens);
                if (!kernel) {
                    std::fprintf(stderr, "%s: %s\n", argv[0], last_error());
                    return 1;
                }
                const cpu::jit::KernelKey key{.kind = shape.form == cpu::jit::WeightForm::Bytes
                                                          ? cpu::jit::KernelKind::Prefill
                                                          : cpu::jit::KernelKind::Decode,
                                              .format = format,
                                              .isa = isa,
                                              .rows = uint8_t(shape.panels * cpu::kPanelRows),
                                              .tokens = uint8_t(shape.tokens)};
                std::printf("%s %zu %zu ", cpu::jit::kernel_name(key).text, shape.panels * cpu::kPanelRows,
                            shape.tokens);
                if (cpu::isa_available(registers, isa))
                    std::printf("%.4f\n", bench::measured_cycles(kernel, format, isa, shape, cycle));
                else
                    std::printf("-\n");
            }
    return 0;
}
