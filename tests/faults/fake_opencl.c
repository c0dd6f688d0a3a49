/* An OpenCL library with one device that computes nothing (outputs stay zero), counts its objects, and fails
 * on request: what a driver without memory or a lost device looks like to its caller. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

#include "fake_opencl.h"

#define EXPORT __attribute__((visibility("default")))

fake_refuse_fn fake_refuse EXPORT;
fake_end_fn fake_end EXPORT;
fake_live_fn fake_live EXPORT;

static unsigned calls, first_refused, refusals;
static cl_int refusal;
static const char *refused_function;
static int live;

void fake_refuse(unsigned first, unsigned count, int error) {
    calls = 0;
    first_refused = first;
    refusals = count;
    refusal = error;
    refused_function = NULL;
}
const char *fake_end(void) {
    refusals = 0;
    return refused_function;
}
int fake_live(void) {
    return live;
}

static cl_int step(const char *function) {
    const unsigned call = calls++;
    if (call < first_refused || call - first_refused >= refusals)
        return CL_SUCCESS;
    refused_function = function;
    return refusal;
}

/* Every object is one block: a reference count and, for a buffer, its bytes. */
struct object {
    unsigned references;
    unsigned char *bytes;
};

static void *make(const char *function, size_t size, cl_int *error) {
    struct object *made = NULL;
    cl_int status = step(function);
    if (status == CL_SUCCESS) {
        made = calloc(1, sizeof *made);
        made->references = 1;
        made->bytes = size ? calloc(1, size) : NULL;
        ++live;
    }
    if (error)
        *error = status;
    return made;
}
static cl_int retain(void *object) {
    ++((struct object *)object)->references;
    return CL_SUCCESS;
}
static cl_int release(void *object) {
    struct object *held = object;
    if (--held->references == 0) {
        free(held->bytes);
        free(held);
        --live;
    }
    return CL_SUCCESS;
}
static unsigned char *bytes_of(cl_mem mem) {
    return ((struct object *)mem)->bytes;
}

static int the_platform, the_device;

EXPORT cl_int clGetPlatformIDs(cl_uint entries, cl_platform_id *platforms, cl_uint *found) {
    if (entries && platforms)
        platforms[0] = (cl_platform_id)&the_platform;
    if (found)
        *found = 1;
    return step("clGetPlatformIDs");
}
EXPORT cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint entries,
                             cl_device_id *devices, cl_uint *found) {
    (void)platform;
    if (!(type & CL_DEVICE_TYPE_GPU))
        return CL_DEVICE_NOT_FOUND;
    if (entries && devices)
        devices[0] = (cl_device_id)&the_device;
    if (found)
        *found = 1;
    return step("clGetDeviceIDs");
}

static cl_int answer(const void *value, size_t bytes, size_t size, void *to, size_t *needed) {
    if (needed)
        *needed = bytes;
    if (!to)
        return CL_SUCCESS;
    if (size < bytes)
        return CL_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CL_SUCCESS;
}
EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *to,
                              size_t *needed) {
    static const char name[] = "fake device", version[] = "OpenCL 1.2 fake", extensions[] = "cl_khr_fp16";
    const cl_bool yes = CL_TRUE;
    const size_t group = 256;
    const cl_ulong most = (cl_ulong)1 << 30;
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    (void)device;
    switch (what) {
    case CL_DEVICE_NAME:
        return answer(name, sizeof name, size, to, needed);
    case CL_DEVICE_VERSION:
        return answer(version, sizeof version, size, to, needed);
    case CL_DEVICE_EXTENSIONS:
        return answer(extensions, sizeof extensions, size, to, needed);
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE:
        return answer(&yes, sizeof yes, size, to, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return answer(&group, sizeof group, size, to, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return answer(&most, sizeof most, size, to, needed);
    case CL_DEVICE_TYPE:
        return answer(&type, sizeof type, size, to, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

EXPORT cl_context clCreateContext(const cl_context_properties *properties, cl_uint n,
                                  const cl_device_id *devices,
                                  void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                  void *user, cl_int *error) {
    (void)properties, (void)n, (void)devices, (void)notify, (void)user;
    return make("clCreateContext", 0, error);
}
EXPORT cl_int clRetainContext(cl_context context) {
    return retain(context);
}
EXPORT cl_int clReleaseContext(cl_context context) {
    return release(context);
}
EXPORT cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                             cl_command_queue_properties properties, cl_int *error) {
    (void)context, (void)device, (void)properties;
    return make("clCreateCommandQueue", 0, error);
}
EXPORT cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what, size_t size, void *to,
                                    size_t *needed) {
    const cl_command_queue_properties in_order = 0;
    (void)queue, (void)what;
    answer(&in_order, sizeof in_order, size, to, needed);
    return step("clGetCommandQueueInfo");
}
EXPORT cl_int clRetainCommandQueue(cl_command_queue queue) {
    return retain(queue);
}
EXPORT cl_int clReleaseCommandQueue(cl_command_queue queue) {
    return release(queue);
}
EXPORT cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *error) {
    (void)context, (void)flags, (void)host;
    return make("clCreateBuffer", size, error);
}
EXPORT cl_int clReleaseMemObject(cl_mem mem) {
    return release(mem);
}
EXPORT cl_program clCreateProgramWithSource(cl_context context, cl_uint n, const char **sources,
                                            const size_t *lengths, cl_int *error) {
    (void)context, (void)n, (void)sources, (void)lengths;
    return make("clCreateProgramWithSource", 0, error);
}
EXPORT cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                             void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
    (void)program, (void)n, (void)devices, (void)options, (void)notify, (void)user;
    return step("clBuildProgram");
}
EXPORT cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info what,
                                    size_t size, void *to, size_t *needed) {
    static const char log[] = "the fake compiler has nothing to say";
    (void)program, (void)device, (void)what;
    return answer(log, sizeof log, size, to, needed);
}
EXPORT cl_int clReleaseProgram(cl_program program) {
    return release(program);
}
EXPORT cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error) {
    (void)program, (void)name;
    return make("clCreateKernel", 0, error);
}
EXPORT cl_int clReleaseKernel(cl_kernel kernel) {
    return release(kernel);
}
EXPORT cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    (void)kernel, (void)index, (void)size, (void)value;
    return step("clSetKernelArg");
}

/* Commands are done when their call returns; an event is the kernel of nothing: an object to release. */
EXPORT cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                     const size_t *offset, const size_t *global, const size_t *local,
                                     cl_uint n_wait, const cl_event *wait, cl_event *event) {
    (void)queue, (void)kernel, (void)dimensions, (void)offset, (void)global, (void)local, (void)n_wait;
    (void)wait, (void)event;
    return step("clEnqueueNDRangeKernel");
}
EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                   size_t size, const void *from, cl_uint n_wait, const cl_event *wait,
                                   cl_event *event) {
    (void)queue, (void)blocking, (void)n_wait, (void)wait, (void)event;
    memcpy(bytes_of(mem) + offset, from, size);
    return step("clEnqueueWriteBuffer");
}
EXPORT cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                  size_t size, void *to, cl_uint n_wait, const cl_event *wait,
                                  cl_event *event) {
    (void)queue, (void)blocking, (void)n_wait, (void)wait, (void)event;
    memcpy(to, bytes_of(mem) + offset, size);
    return step("clEnqueueReadBuffer");
}
EXPORT cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem mem, const void *pattern,
                                  size_t pattern_size, size_t offset, size_t size, cl_uint n_wait,
                                  const cl_event *wait, cl_event *event) {
    (void)queue, (void)n_wait, (void)wait, (void)event;
    for (size_t at = 0; at < size; at += pattern_size)
        memcpy(bytes_of(mem) + offset + at, pattern, pattern_size);
    return step("clEnqueueFillBuffer");
}
EXPORT void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_map_flags flags,
                                size_t offset, size_t size, cl_uint n_wait, const cl_event *wait,
                                cl_event *event, cl_int *error) {
    (void)queue, (void)blocking, (void)flags, (void)size, (void)n_wait, (void)wait, (void)event;
    *error = step("clEnqueueMapBuffer");
    if (*error != CL_SUCCESS)
        return NULL;
    ++live;
    return bytes_of(mem) + offset;
}
EXPORT cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *mapped, cl_uint n_wait,
                                      const cl_event *wait, cl_event *event) {
    (void)queue, (void)mem, (void)mapped, (void)n_wait, (void)wait, (void)event;
    --live;
    return step("clEnqueueUnmapMemObject");
}
EXPORT cl_int clFinish(cl_command_queue queue) {
    (void)queue;
    return step("clFinish");
}
