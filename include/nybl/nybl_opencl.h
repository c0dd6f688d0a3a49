/* nybl_opencl.h: products on a host's own OpenCL objects, for hosts whose activations are on the device
 * already. Builds without the GPU path (docs/gpu.md) have neither the functions nor, installed, this header.
 * Statuses, structs and threads: as in nybl.h. */
#ifndef NYBL_OPENCL_H
#define NYBL_OPENCL_H
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <nybl/nybl.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nybl_opencl_desc {
    size_t struct_size;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue; /* in order */
} nybl_opencl_desc;

/* A GPU context on the host's objects, which it retains. desc may be NULL; its device and device_index are
 * ignored. The library's commands go to `queue`: a host thread that uses the queue at the same time orders
 * its own commands against them. NYBL_INVALID_ARGUMENT: NULL, or an out-of-order queue.
 * NYBL_UNSUPPORTED_HARDWARE: as nybl_context_create. */
NYBL_API nybl_status nybl_opencl_context_create(const nybl_opencl_desc *opencl, const nybl_context_desc *desc,
                                                nybl_context **ctx);

/* y[m, n] = x[m, k] * W^T (+ bias[n]) on buffers of the context. Offsets and strides are bytes, multiples of
 * the element; stride 0: contiguous. x and y may lie in one buffer, but not overlap. */
typedef struct nybl_opencl_matmul_args {
    size_t struct_size;
    uint64_t m;
    cl_mem x;
    nybl_format x_type; /* F32, F16 or BF16 */
    size_t x_offset, x_stride;
    cl_mem y;
    nybl_format y_type;
    size_t y_offset, y_stride;
    cl_mem bias; /* n f32 values from its start, or NULL */
    nybl_compute compute;
    cl_uint n_wait; /* events to wait for */
    const cl_event *wait;
    cl_event *event; /* out, unless NULL: the product is done; the caller releases it. Untouched where m or n
                        is 0 */
} nybl_opencl_matmul_args;

/* Enqueues and returns. There is no way back to the CPU: NYBL_UNSUPPORTED where no GPU kernel serves the
 * weights, with the reason that nybl_matmul_explain gives. After a failure, y may hold anything if the device
 * failed, and is unchanged otherwise. */
NYBL_API nybl_status nybl_opencl_matmul(const nybl_weights *w, const nybl_opencl_matmul_args *args);

#ifdef __cplusplus
}
#endif
#endif
