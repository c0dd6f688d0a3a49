// Kernel arguments and grids.
#include "gpu/launch.h"

#include "base/status.h"

namespace nybl::gpu {
namespace {

// One kernel launch: arguments in order, then the grid.
class Launch {
  public:
    Launch(Device &device, cl_kernel kernel) noexcept : device_(device), kernel_(kernel) {}

    template <class T>
    Launch &operator<<(const T &value) noexcept {
        if (error_ == CL_SUCCESS)
            error_ = device_.cl.SetKernelArg(kernel_, next_, sizeof value, &value);
        ++next_;
        return *this;
    }

    nybl_status run(const char *what, size_t x, size_t y, size_t z, const size_t *local,
                    const Events &events) noexcept {
        const size_t global[3] = {x, y, z};
        if (error_ == CL_SUCCESS)
            error_ = device_.cl.EnqueueNDRangeKernel(device_.queue, kernel_, 3, nullptr, global, local,
                                                     events.n_wait, events.n_wait ? events.wait : nullptr,
                                                     events.done);
        return error_ == CL_SUCCESS ? NYBL_OK : fail_opencl(error_, what);
    }

  private:
    Device &device_;
    cl_kernel kernel_;
    cl_uint next_ = 0;
    cl_int error_ = CL_SUCCESS;
};

} // namespace

nybl_status prepare_rows(Device &device, cl_kernel kernel, const View &x, size_t rows, size_t groups,
                         const Events &events) noexcept {
    Launch launch(device, kernel);
    launch << x.mem << static_cast<cl_uint>(x.type) << cl_ulong{x.offset} << cl_ulong{x.stride}
           << static_cast<cl_uint>(groups) << device.scratch.prepared.mem << device.scratch.sums.mem;
    return launch.run("preparing activations", groups, rows, 1, nullptr, events);
}

nybl_status multiply_rows(Device &device, cl_kernel kernel, const DeviceWeights &weights,
                          const KernelChoice &choice, size_t rows, const TileList &tiles, cl_mem bias,
                          const View &y, const Events &events) noexcept {
    const Scratch &scratch = device.scratch;
    // Kernels read neither tiles and map without experts nor a bias that is not there, but get a buffer: some
    // drivers refuse none.
    const cl_mem unused = scratch.sums.mem;
    Launch launch(device, kernel);
    launch << weights.panels.mem << cl_ulong{weights.panel_stride} << cl_ulong{weights.expert_stride}
           << static_cast<cl_uint>(weights.n) << static_cast<cl_uint>(weights.k / quant::kGroup)
           << scratch.prepared.mem << scratch.sums.mem << (tiles.tiles ? tiles.tiles : unused)
           << (tiles.tiles ? tiles.map : unused) << static_cast<cl_uint>(rows) << (bias ? bias : unused)
           << cl_uint{bias != nullptr} << y.mem << static_cast<cl_uint>(y.type) << cl_ulong{y.offset}
           << cl_ulong{y.stride};
    const WorkGroup group = work_group(device.traits.variant, choice);
    const size_t local[3] = {group.lanes, group.rows, 1};
    return launch.run("a product", cpu::panel_count(weights.n) * group.lanes, group.rows, tiles.count, local,
                      events);
}

} // namespace nybl::gpu
