/* How tests steer fake_opencl.c, which they load as the OpenCL library. */
#ifndef NYBL_TEST_FAKE_OPENCL_H
#define NYBL_TEST_FAKE_OPENCL_H

/* From now on, `count` of the calls that can fail do so with this OpenCL error, beginning with call `first`
 * (from 0). */
typedef void fake_refuse_fn(unsigned first, unsigned count, int error);
/* Ends that; the name of the last function that failed, NULL where none did. */
typedef const char *fake_end_fn(void);
/* Objects that are alive (contexts, queues, buffers, programs, kernels) and regions that are mapped. */
typedef int fake_live_fn(void);

#endif
