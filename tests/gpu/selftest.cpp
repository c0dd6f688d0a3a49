// nybl-gpu-selftest: every format on every kernel shape of every OpenCL device, against f64 arithmetic on
// exact weights; one table that a user can send.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/status.h"
#include "dispatch/choose_gpu.h"
#include "gpu/device_case.h"

namespace nybl::test {
namespace {

constexpr size_t kN = 256, kK = 1024;
constexpr double kWorstNmse = 1e-6; // f16 activations; f32 ones stay below 1e-11

struct Options {
    bool check = true;                   // false: a device that computes nothing (a driver without hardware)
    bool list_shapes = false;            // print what oneDNN would run for models' shapes
    bool list_programs = false;          // print what is compiled instead of running
    std::optional<gpu::Variant> variant; // other kernels than the device's own
};

// Milliseconds of the fastest of some runs, everything included: activations in, outputs out.
double time_product(gpu::Device &device, const DeviceWeightsCase &w, const Uploaded &uploaded, size_t m,
                    const std::vector<float> &x) {
    std::vector<float> y;
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
        const auto start = std::chrono::steady_clock::now();
        if (multiply(device, w, uploaded, m, x, nullptr, NYBL_COMPUTE_DEFAULT, &y) != NYBL_OK)
            return best;
        best = std::min(
            best,
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

bool check_format(gpu::Device &device, const AffineBlockFormat &format, const Options &options) {
    const DeviceWeightsCase w(format, kN, kK, 1, 1);
    const size_t before = gpu::device_memory(device).bytes;
    const Uploaded uploaded(device, w);
    const size_t bytes = gpu::device_memory(device).bytes - before;
    if (uploaded.status() != NYBL_OK) {
        std::printf("%-8s FAILED: %s\n", format.name, last_error());
        return false;
    }
    bool good = true;
    for (const size_t m : {1, 8, 64, 512}) {
        const auto x = random_activations(m * kK, 7);
        std::vector<float> y;
        std::string name;
        if (multiply(device, w, uploaded, m, x, nullptr, NYBL_COMPUTE_DEFAULT, &y, &name) != NYBL_OK) {
            std::printf("%-8s %4zu  FAILED: %s\n", format.name, m, last_error());
            good = false;
            continue;
        }
        if (!options.check) {
            std::printf("%-8s %4zu  %-34s ran\n", format.name, m, name.c_str());
            continue;
        }
        const double error = nmse(y, multiply_exactly(w, m, x, nullptr));
        const bool right = error < kWorstNmse; // also false for NaN
        good = good && right;
        std::printf("%-8s %4zu  %-34s %9.2e  %7.4f  %9.3f  %s\n", format.name, m, name.c_str(), error,
                    static_cast<double>(bytes) / static_cast<double>(kN * kK),
                    time_product(device, w, uploaded, m, x), right ? "ok" : "WRONG");
    }
    return good;
}

// Layers of models between 1 and 70 billion weights, and a shape of no model.
void print_shapes(gpu::Device &device) {
    struct Layer {
        size_t n, k;
    };
    constexpr Layer kLayers[] = {{2048, 2048},  {8192, 2048},  {4096, 4096},   {1024, 4096}, {14336, 4096},
                                 {4096, 14336}, {8192, 28672}, {128256, 4096}, {2050, 2560}};
    for (const auto &format : affine_formats())
        for (const Layer layer : kLayers)
            for (const size_t m : {1, 8, 64, 512}) {
                gpu::OneDnnUse use{};
                if (gpu::name_on_device(device, format.id, m, layer.n, layer.k, &use) != NYBL_OK) {
                    std::printf("%s\n", last_error());
                    return;
                }
                char plan[112];
                gpu::write_plan(use.plan, plan, sizeof plan);
                std::printf("%-8s %s: onednn:%s\n", format.name, plan, use.implementation);
            }
}

bool check_device(uint32_t index, const Options &options, bool *exists) {
    const OpenDevice device(options.variant ? &*options.variant : nullptr, index);
    *exists = device.status() == NYBL_OK;
    if (!*exists) {
        if (index == 0)
            std::printf("%s\n", last_error());
        return index != 0;
    }
    const gpu::Traits &traits = gpu::traits_of(*device);
    std::printf("device %u: %s, %s kernels, fp16 %s\n", index, traits.name, gpu::variant_name(traits.variant),
                traits.fp16 ? "yes" : "no");
    if (options.check)
        std::printf("%-8s %4s  %-34s %9s  %7s  %9s\n", "format", "m", "kernel", "nmse", "B/weight", "ms");
    if (options.list_shapes) {
        print_shapes(*device);
        return true;
    }
    bool good = true;
    for (const auto &format : affine_formats())
        good = check_format(*device, format, options) && good;
    return good;
}

// "NAME PREPARE PRODUCT OPTIONS" for what Intel GPUs compile: the widest tiles, where registers are short.
void print_programs() {
    constexpr gpu::Traits kIntel{gpu::Variant::Subgroup, true, true, 0, "", true};
    for (const auto &format : affine_formats())
        for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_INT8})
            for (const size_t m : {8, 64}) {
                const auto choice = dispatch::choose_gpu(
                    {format.id, NYBL_STORAGE_PACKED, compute, m, kN, kK, 1, NYBL_ISA_SCALAR, 1}, kIntel);
                char text[512];
                gpu::write_build_options(kIntel.variant, true, {format.id, choice.kernel, false}, text,
                                         sizeof text);
                const bool int8 = choice.kernel.x == gpu::Activations::Int8;
                std::printf("%s-%s-%s %s %s %s\n", format.name,
                            choice.kernel.op == gpu::Op::Gemv ? "gemv" : "gemm",
                            gpu::activations_name(choice.kernel.x), int8 ? "prepare_int8.cl" : "prepare.cl",
                            int8 ? "gemv_int8.cl" : "gemv.cl", text);
            }
}

bool parse(int argc, char **argv, Options *options) {
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--no-check") == 0) {
            options->check = false;
            continue;
        }
        if (std::strcmp(argv[i], "--shapes") == 0) {
            options->list_shapes = true;
            continue;
        }
        if (std::strcmp(argv[i], "--programs") == 0) {
            options->list_programs = true;
            continue;
        }
        bool known = false;
        for (const auto variant : {gpu::Variant::Vector, gpu::Variant::Lane, gpu::Variant::Subgroup})
            if (std::strncmp(argv[i], "--variant=", 10) == 0 &&
                std::strcmp(argv[i] + 10, gpu::variant_name(variant)) == 0) {
                options->variant = variant;
                known = true;
            }
        if (!known)
            return false;
    }
    return true;
}

} // namespace
} // namespace nybl::test

int main(int argc, char **argv) {
    using namespace nybl::test;
    Options options;
    if (!parse(argc, argv, &options)) {
        std::fprintf(stderr,
                     "usage: %s [--variant=vector|lane|subgroup] [--no-check] [--shapes] [--programs]\n",
                     argv[0]);
        return 2;
    }
    if (options.list_programs) {
        print_programs();
        return 0;
    }
    bool good = true, exists = true;
    for (uint32_t index = 0; exists; ++index)
        good = check_device(index, options, &exists) && good;
    return good ? 0 : 1;
}
