// libOpenCL, loaded at run time: the library must not need it to be there.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <nybl/nybl.h>

namespace nybl::gpu {

// The functions that this library calls, by their names in OpenCL.
struct OpenCl {
    decltype(&::clGetPlatformIDs) GetPlatformIDs;
    decltype(&::clGetDeviceIDs) GetDeviceIDs;
    decltype(&::clGetDeviceInfo) GetDeviceInfo;
    decltype(&::clCreateContext) CreateContext;
    decltype(&::clReleaseContext) ReleaseContext;
    decltype(&::clRetainContext) RetainContext;
    decltype(&::clCreateCommandQueue) CreateCommandQueue;
    decltype(&::clGetCommandQueueInfo) GetCommandQueueInfo;
    decltype(&::clRetainCommandQueue) RetainCommandQueue;
    decltype(&::clReleaseCommandQueue) ReleaseCommandQueue;
    decltype(&::clCreateBuffer) CreateBuffer;
    decltype(&::clReleaseMemObject) ReleaseMemObject;
    decltype(&::clCreateProgramWithSource) CreateProgramWithSource;
    decltype(&::clBuildProgram) BuildProgram;
    decltype(&::clGetProgramBuildInfo) GetProgramBuildInfo;
    decltype(&::clReleaseProgram) ReleaseProgram;
    decltype(&::clCreateKernel) CreateKernel;
    decltype(&::clReleaseKernel) ReleaseKernel;
    decltype(&::clSetKernelArg) SetKernelArg;
    decltype(&::clEnqueueNDRangeKernel) EnqueueNDRangeKernel;
    decltype(&::clEnqueueWriteBuffer) EnqueueWriteBuffer;
    decltype(&::clEnqueueReadBuffer) EnqueueReadBuffer;
    decltype(&::clEnqueueFillBuffer) EnqueueFillBuffer;
    decltype(&::clEnqueueMapBuffer) EnqueueMapBuffer;
    decltype(&::clEnqueueUnmapMemObject) EnqueueUnmapMemObject;
    decltype(&::clFinish) Finish;
};

// The loaded library, or NYBL_UNSUPPORTED_HARDWARE in words. Loaded once and never unloaded: drivers do not
// survive that. NYBL_OPENCL_LIBRARY in the environment names another file than libOpenCL.so.1.
nybl_status load_opencl(const OpenCl **cl) noexcept;

// A failure of an OpenCL call as a status: out of memory, or a device error with OpenCL's number.
nybl_status fail_opencl(cl_int error, const char *what) noexcept;

} // namespace nybl::gpu
