// Finds libOpenCL and its functions.
#include "gpu/opencl.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

#include "base/environment.h"
#include "base/status.h"

namespace nybl::gpu {
namespace {

struct Loaded {
    OpenCl functions{};
    const char *missing = nullptr; // a function that the library lacks
    bool found = false;
};

template <class Function>
void resolve(void *library, const char *name, Function *function, Loaded *loaded) noexcept {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (!*function)
        loaded->missing = name;
}

const char *library_name() noexcept {
    const char *named = environment("NYBL_OPENCL_LIBRARY");
    return named && *named ? named : "libOpenCL.so.1";
}

Loaded load() noexcept {
    Loaded loaded;
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return loaded;
    loaded.found = true;
    OpenCl &cl = loaded.functions;
    resolve(library, "clGetPlatformIDs", &cl.GetPlatformIDs, &loaded);
    resolve(library, "clGetDeviceIDs", &cl.GetDeviceIDs, &loaded);
    resolve(library, "clGetDeviceInfo", &cl.GetDeviceInfo, &loaded);
    resolve(library, "clCreateContext", &cl.CreateContext, &loaded);
    resolve(library, "clReleaseContext", &cl.ReleaseContext, &loaded);
    resolve(library, "clRetainContext", &cl.RetainContext, &loaded);
    resolve(library, "clCreateCommandQueue", &cl.CreateCommandQueue, &loaded);
    resolve(library, "clGetCommandQueueInfo", &cl.GetCommandQueueInfo, &loaded);
    resolve(library, "clRetainCommandQueue", &cl.RetainCommandQueue, &loaded);
    resolve(library, "clReleaseCommandQueue", &cl.ReleaseCommandQueue, &loaded);
    resolve(library, "clCreateBuffer", &cl.CreateBuffer, &loaded);
    resolve(library, "clReleaseMemObject", &cl.ReleaseMemObject, &loaded);
    resolve(library, "clCreateProgramWithSource", &cl.CreateProgramWithSource, &loaded);
    resolve(library, "clBuildProgram", &cl.BuildProgram, &loaded);
    resolve(library, "clGetProgramBuildInfo", &cl.GetProgramBuildInfo, &loaded);
    resolve(library, "clReleaseProgram", &cl.ReleaseProgram, &loaded);
    resolve(library, "clCreateKernel", &cl.CreateKernel, &loaded);
    resolve(library, "clReleaseKernel", &cl.ReleaseKernel, &loaded);
    resolve(library, "clSetKernelArg", &cl.SetKernelArg, &loaded);
    resolve(library, "clEnqueueNDRangeKernel", &cl.EnqueueNDRangeKernel, &loaded);
    resolve(library, "clEnqueueWriteBuffer", &cl.EnqueueWriteBuffer, &loaded);
    resolve(library, "clEnqueueReadBuffer", &cl.EnqueueReadBuffer, &loaded);
    resolve(library, "clEnqueueFillBuffer", &cl.EnqueueFillBuffer, &loaded);
    resolve(library, "clEnqueueMapBuffer", &cl.EnqueueMapBuffer, &loaded);
    resolve(library, "clEnqueueUnmapMemObject", &cl.EnqueueUnmapMemObject, &loaded);
    resolve(library, "clFinish", &cl.Finish, &loaded);
    return loaded;
}

} // namespace

nybl_status load_opencl(const OpenCl **cl) noexcept {
    static const Loaded loaded = load();
    if (!loaded.found)
        return fail(NYBL_UNSUPPORTED_HARDWARE,
                    "GPU: %s cannot be loaded; install an OpenCL loader (Debian: ocl-icd-libopencl1)",
                    library_name());
    if (loaded.missing)
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %s has no %s; OpenCL 1.2 or newer is needed",
                    library_name(), loaded.missing);
    *cl = &loaded.functions;
    return NYBL_OK;
}

nybl_status fail_opencl(cl_int error, const char *what) noexcept {
    const bool memory = error == CL_OUT_OF_HOST_MEMORY || error == CL_OUT_OF_RESOURCES ||
                        error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_INVALID_BUFFER_SIZE;
    return fail(memory ? NYBL_OUT_OF_MEMORY : NYBL_DEVICE_ERROR, "GPU: %s: OpenCL error %d%s", what, error,
                memory ? " (the device is out of memory)" : "");
}

} // namespace nybl::gpu
