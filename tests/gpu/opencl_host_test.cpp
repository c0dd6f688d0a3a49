// Products on a host's own OpenCL context, queue and buffers.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nybl/nybl.hpp>
#include <nybl/nybl_opencl.h>

#include "gpu/device_case.h"
#include "gpu/opencl.h"
#include "gpu/skip.h"

namespace nybl::test {
namespace {

// A host's OpenCL objects; empty where there is no device.
class Host {
  public:
    Host() {
        cl_platform_id platform = nullptr;
        if (gpu::load_opencl(&cl) != NYBL_OK || cl->GetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS ||
            cl->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &objects.device, nullptr) != CL_SUCCESS)
            return;
        objects.struct_size = sizeof objects;
        objects.context = cl->CreateContext(nullptr, 1, &objects.device, nullptr, nullptr, nullptr);
        objects.queue = cl->CreateCommandQueue(objects.context, objects.device, 0, nullptr);
    }
    ~Host() {
        if (!objects.queue)
            return;
        cl->ReleaseCommandQueue(objects.queue);
        cl->ReleaseContext(objects.context);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    cl_mem buffer(size_t bytes, const void *data) const {
        const cl_mem mem = cl->CreateBuffer(objects.context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
        REQUIRE(mem);
        if (data)
            REQUIRE(cl->EnqueueWriteBuffer(objects.queue, mem, CL_TRUE, 0, bytes, data, 0, nullptr,
                                           nullptr) == CL_SUCCESS);
        return mem;
    }

    const gpu::OpenCl *cl = nullptr;
    nybl_opencl_desc objects{};
};

} // namespace

TEST_CASE("opencl host: from buffer to buffer, with offsets and strides", "[gpu][opencl]") {
    skip_under_sanitizers();
    const Host host;
    if (!host.objects.queue)
        SKIP("GPU: the OpenCL loader knows no driver, or cannot be loaded");
    nybl_context *made = nullptr;
    REQUIRE(nybl_opencl_context_create(&host.objects, nullptr, &made) == NYBL_OK);
    const DeviceWeightsCase w(affine_formats()[3], 40, 512, 1, 1); // Q4_K
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = w.format.id, desc.n = w.n, desc.k = w.k, desc.data = w.blocks.data();
    nybl_weights *weights = nullptr;
    REQUIRE(nybl_weights_create(made, &desc, &weights) == NYBL_OK);

    constexpr size_t m = 3, x_gap = 4, y_gap = 2, offset = 5;
    const auto x = random_activations(m * w.k, 3), bias = random_activations(w.n, 4);
    std::vector<float> spread(offset + m * (w.k + x_gap));
    for (size_t t = 0; t < m; ++t)
        std::copy_n(&x[t * w.k], w.k, &spread[offset + t * (w.k + x_gap)]);
    std::vector<float> out(offset + m * (w.n + y_gap), 77.0f);
    auto args = nybl::make<nybl_opencl_matmul_args>();
    args.m = m;
    args.x = host.buffer(4 * spread.size(), spread.data()), args.x_type = NYBL_F32;
    args.x_offset = 4 * offset, args.x_stride = 4 * (w.k + x_gap);
    args.y = host.buffer(4 * out.size(), out.data()), args.y_type = NYBL_F32;
    args.y_offset = 4 * offset, args.y_stride = 4 * (w.n + y_gap);
    args.bias = host.buffer(4 * bias.size(), bias.data());
    args.compute = NYBL_COMPUTE_F32;
    CHECK(nybl_opencl_matmul(nullptr, &args) == NYBL_INVALID_ARGUMENT);
    REQUIRE(nybl_opencl_matmul(weights, &args) == NYBL_OK);
    REQUIRE(host.cl->EnqueueReadBuffer(host.objects.queue, args.y, CL_TRUE, 0, 4 * out.size(), out.data(), 0,
                                       nullptr, nullptr) == CL_SUCCESS);
    std::vector<float> y;
    for (size_t t = 0; t < m; ++t) {
        float *row = &out[offset + t * (w.n + y_gap)];
        y.insert(y.end(), row, row + w.n);
        std::fill_n(row, w.n, 77.0f);
    }
    CHECK(nmse(y, multiply_exactly(w, m, x, bias.data())) < 1e-11);
    CHECK(static_cast<size_t>(std::count(out.begin(), out.end(), 77.0f)) ==
          out.size()); // nothing between the rows

    args.x_offset = 3;
    CHECK(nybl_opencl_matmul(weights, &args) == NYBL_INVALID_ARGUMENT);
    nybl_opencl_desc broken = host.objects;
    broken.queue = nullptr;
    nybl_context *none = nullptr;
    CHECK(nybl_opencl_context_create(&broken, nullptr, &none) == NYBL_INVALID_ARGUMENT);
    for (const cl_mem mem : {args.x, args.y, args.bias})
        host.cl->ReleaseMemObject(mem);
    nybl_weights_destroy(weights);
    nybl_context_destroy(made);
}

} // namespace nybl::test
