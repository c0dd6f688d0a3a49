// Compiles the kernels of src/gpu/kernels for a format, a variant and a tile.
#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "gpu/device.h"
#include "gpu/kernel_sources.h"

namespace nybl::gpu {
namespace {

constexpr nybl_format kPanelFormats[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_1, NYBL_Q4_K, NYBL_Q5_K,
                                         NYBL_IQ4_NL, NYBL_Q5_0, NYBL_Q8_0, NYBL_Q6_K};
constexpr uint32_t kGemvTokens[] = {1, 2, 4, 8};
constexpr size_t kActivations = 3;

// Where the slot of a key is; gemm, which has one tile per device, comes after the gemv tiles.
size_t slot_of(const KernelKey &key) noexcept {
    const size_t format =
        std::find(std::begin(kPanelFormats), std::end(kPanelFormats), key.format) - std::begin(kPanelFormats);
    const size_t shape = key.kernel.op == Op::Gemm
                             ? std::size(kGemvTokens)
                             : std::find(std::begin(kGemvTokens), std::end(kGemvTokens), key.kernel.tokens) -
                                   std::begin(kGemvTokens);
    return ((format * (std::size(kGemvTokens) + 1) + shape) * 2 + key.experts) * kActivations +
           static_cast<size_t>(key.kernel.x);
}

nybl_status fail_build(const Device &device, cl_program program, cl_int error) noexcept {
    char log[256] = "";
    device.cl.GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, nullptr);
    return fail(NYBL_DEVICE_ERROR, "GPU: %s does not compile the kernels (OpenCL error %d): %s",
                device.traits.name, error, log);
}

} // namespace

nybl_status Device::find_kernels(const KernelKey &key, Kernels *kernels) noexcept {
    static_assert(std::size(kPanelFormats) == kFormats && std::size(kGemvTokens) + 1 == kShapes);
    Kernels &slot = kernels_[slot_of(key)];
    if (!slot.product)
        if (const nybl_status status = compile(key, &slot); status != NYBL_OK)
            return status;
    *kernels = slot;
    return NYBL_OK;
}

nybl_status Device::compile(const KernelKey &key, Kernels *kernels) noexcept {
    const bool tiled = is_tiled(traits.variant, key.kernel);
    const bool int8 = key.kernel.x == Activations::Int8;
    const char *product = int8 ? kGemvInt8Source : tiled ? kGemmSource : kGemvSource;
    const char *sources[] = {kPanelSource, kRowsSource, int8 ? kPrepareInt8Source : kPrepareSource,
                             kFinishSource, product};
    cl_int error = CL_SUCCESS;
    const cl_program program =
        cl.CreateProgramWithSource(context, std::size(sources), sources, nullptr, &error);
    if (error != CL_SUCCESS)
        return fail_opencl(error, "creating a program");
    char options[512];
    write_build_options(traits.variant, traits.integer_dot, key, options, sizeof options);
    nybl_status status = NYBL_OK;
    Kernels made;
    if (error = cl.BuildProgram(program, 1, &id, options, nullptr, nullptr); error != CL_SUCCESS) {
        status = fail_build(*this, program, error);
    } else if (made.prepare = cl.CreateKernel(program, "prepare", &error); error != CL_SUCCESS) {
        status = fail_opencl(error, "creating kernel prepare");
    } else if (made.product = cl.CreateKernel(program, tiled ? "gemm" : "gemv", &error);
               error != CL_SUCCESS) {
        cl.ReleaseKernel(made.prepare);
        status = fail_opencl(error, "creating a product kernel");
    } else {
        *kernels = made;
    }
    cl.ReleaseProgram(program);
    return status;
}

Device::~Device() {
    memory.deallocate(counts_, counts_size_);
    if (!usable()) {
        abandon_onednn(onednn);
        return;
    }
    close_onednn(onednn);
    for (Kernels &kernels : kernels_)
        if (kernels.product) {
            cl.ReleaseKernel(kernels.prepare);
            cl.ReleaseKernel(kernels.product);
        }
    for (Buffer *buffer : {&scratch.x, &scratch.prepared, &scratch.sums, &scratch.y, &scratch.bias,
                           &scratch.tiles, &scratch.map})
        free_buffer(buffer);
    if (queue)
        cl.ReleaseCommandQueue(queue);
    if (context)
        cl.ReleaseContext(context);
}

} // namespace nybl::gpu
