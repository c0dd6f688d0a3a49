// Runs products on a device: activations in, one launch per product, outputs back.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/checked.h"
#include "base/status.h"
#include "gpu/launch.h"
#include "gpu/tiles.h"

namespace nybl::gpu {
namespace {

// Output rows of a job: of X, or one per token and slot.
size_t output_rows(const cpu::Job &job) noexcept {
    return job.experts ? job.experts->n_tokens * job.experts->n_slots : job.m;
}

// The outputs of product i lie one after the other, each at a multiple of this.
constexpr size_t kOutputAlign = 64;
Checked output_bytes(const cpu::Job &job, const Product &product) noexcept {
    const Checked bytes =
        Checked(output_rows(job)) * product.product->w.n * element_bytes(product.product->y.type);
    return bytes.valid() ? Checked(bytes.value() / kOutputAlign + 1) * kOutputAlign : bytes;
}

class Run {
  public:
    Run(Device &device, const cpu::Job &job, const Product *products, size_t count) noexcept
        : device_(device), job_(job), products_(products), count_(count) {}

    nybl_status all() noexcept {
        if (const nybl_status status = check(); status != NYBL_OK)
            return status;
        if (const nybl_status status = allocate(); status != NYBL_OK)
            return status;
        if (const nybl_status status = write_x(); status != NYBL_OK)
            return status;
        size_t offset = 0;
        for (size_t i = 0; i < count_; ++i) {
            if (const nybl_status status = launch(products_[i], i == 0, offset); status != NYBL_OK)
                return status;
            offset += output_bytes(job_, products_[i]).value();
        }
        return read_y(offset);
    }

  private:
    size_t groups() const noexcept { return job_.k / quant::kGroup; }

    nybl_status check() const noexcept {
        Checked x = Checked(job_.m) * job_.k * 4, y(0);
        for (size_t i = 0; i < count_; ++i) {
            y = y + output_bytes(job_, products_[i]);
            if (products_[i].product->w.n > INT32_MAX)
                return fail(NYBL_UNSUPPORTED, "GPU: n = %zu is beyond 2^31", products_[i].product->w.n);
        }
        if (job_.m > INT32_MAX || output_rows(job_) > INT32_MAX || job_.k > INT32_MAX || !x.valid() ||
            !y.valid())
            return fail(NYBL_UNSUPPORTED, "GPU: m = %zu, k = %zu are beyond what the kernels count", job_.m,
                        job_.k);
        return NYBL_OK;
    }

    nybl_status allocate() noexcept {
        Scratch &scratch = device_.scratch;
        size_t y_bytes = 0, bias_bytes = 0;
        for (size_t i = 0; i < count_; ++i) {
            y_bytes += output_bytes(job_, products_[i]).value();
            if (products_[i].product->bias)
                bias_bytes = std::max(bias_bytes, 4 * products_[i].product->w.n);
        }
        const size_t elements = job_.m * job_.k;
        const GroupBytes prepared = prepared_group(products_[0].kernel.x);
        struct Need {
            size_t bytes;
            const char *what;
            Buffer *buffer;
        };
        const Need needs[] = {
            {elements * element_bytes(job_.x.type), "activations", &scratch.x},
            {job_.m * groups() * prepared.values, "prepared activations", &scratch.prepared},
            {job_.m * groups() * prepared.sums, "sums of activations", &scratch.sums},
            {y_bytes, "outputs", &scratch.y},
            {bias_bytes, "bias", &scratch.bias},
        };
        for (const Need &need : needs)
            if (const nybl_status status = device_.grow_buffer(need.bytes, need.what, need.buffer);
                status != NYBL_OK)
                return status;
        return NYBL_OK;
    }

    nybl_status write_x() noexcept {
        const size_t row_bytes = job_.k * element_bytes(job_.x.type);
        cl_int error = CL_SUCCESS;
        auto *to = static_cast<uint8_t *>(device_.cl.EnqueueMapBuffer(
            device_.queue, device_.scratch.x.mem, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0,
            job_.m * row_bytes, 0, nullptr, nullptr, &error));
        if (error != CL_SUCCESS)
            return fail_opencl(error, "mapping activations");
        for (size_t i = 0; i < job_.m; ++i)
            std::memcpy(to + i * row_bytes, job_.x.row(i), row_bytes);
        error =
            device_.cl.EnqueueUnmapMemObject(device_.queue, device_.scratch.x.mem, to, 0, nullptr, nullptr);
        return error == CL_SUCCESS ? NYBL_OK : fail_opencl(error, "copying activations");
    }

    nybl_status launch(const Product &product, bool first, size_t offset) noexcept {
        const KernelKey key{product.weights->format, product.kernel, job_.experts != nullptr};
        const cpu::Product &args = *product.product;
        Kernels kernels;
        if (const nybl_status status = device_.find_kernels(key, &kernels); status != NYBL_OK)
            return status;
        if (first)
            if (const nybl_status status =
                    prepare_rows(device_, kernels.prepare, {device_.scratch.x.mem, job_.x.type, 0, job_.k},
                                 job_.m, groups(), {});
                status != NYBL_OK)
                return status;
        Tiles tiles{(output_rows(job_) - 1) / tile_tokens(device_.traits.variant, product.kernel) + 1, false};
        if (job_.experts)
            if (const nybl_status status = write_tiles(
                    device_, *job_.experts, tile_tokens(device_.traits.variant, product.kernel), &tiles);
                status != NYBL_OK)
                return status;
        if (const nybl_status status = write_bias(args, offset, tiles.has_gaps); status != NYBL_OK)
            return status;
        return tiles.count == 0 ? NYBL_OK : multiply(product, kernels.product, tiles.count, offset);
    }

    // What the kernel finds: the bias, and zeros where no expert writes.
    nybl_status write_bias(const cpu::Product &args, size_t offset, bool has_gaps) noexcept {
        cl_int error = CL_SUCCESS;
        if (args.bias)
            error = device_.cl.EnqueueWriteBuffer(device_.queue, device_.scratch.bias.mem, CL_TRUE, 0,
                                                  4 * args.w.n, args.bias, 0, nullptr, nullptr);
        if (error == CL_SUCCESS && has_gaps) {
            const cl_uint zero = 0;
            const size_t bytes = output_rows(job_) * args.w.n * element_bytes(args.y.type);
            error = device_.cl.EnqueueFillBuffer(device_.queue, device_.scratch.y.mem, &zero, sizeof zero,
                                                 offset, (bytes + 3) / 4 * 4, 0, nullptr, nullptr);
        }
        return error == CL_SUCCESS ? NYBL_OK : fail_opencl(error, "copying the bias");
    }

    nybl_status multiply(const Product &product, cl_kernel kernel, size_t n_tiles, size_t offset) noexcept {
        const Scratch &scratch = device_.scratch;
        const cpu::Product &args = *product.product;
        const View y{scratch.y.mem, args.y.type, offset / element_bytes(args.y.type), args.w.n};
        const TileList tiles{n_tiles, job_.experts ? scratch.tiles.mem : nullptr, scratch.map.mem};
        return multiply_rows(device_, kernel, *product.weights, product.kernel, output_rows(job_), tiles,
                             args.bias ? scratch.bias.mem : nullptr, y, {});
    }

    nybl_status read_y(size_t bytes) noexcept {
        cl_int error = CL_SUCCESS;
        const cl_mem mem = device_.scratch.y.mem;
        auto *from = static_cast<const uint8_t *>(device_.cl.EnqueueMapBuffer(
            device_.queue, mem, CL_TRUE, CL_MAP_READ, 0, bytes, 0, nullptr, nullptr, &error));
        if (error != CL_SUCCESS)
            return fail_opencl(error, "running a product");
        size_t offset = 0;
        for (size_t i = 0; i < count_; ++i) {
            const cpu::Product &args = *products_[i].product;
            const size_t row_bytes = args.w.n * element_bytes(args.y.type);
            for (size_t row = 0; row < output_rows(job_); ++row)
                std::memcpy(args.y.row(row), from + offset + row * row_bytes, row_bytes);
            offset += output_bytes(job_, products_[i]).value();
        }
        device_.cl.EnqueueUnmapMemObject(device_.queue, mem, const_cast<uint8_t *>(from), 0, nullptr,
                                         nullptr);
        return NYBL_OK;
    }

    Device &device_;
    const cpu::Job &job_;
    const Product *products_;
    size_t count_;
};

nybl_status run_in_onednn(Device &device, const cpu::Job &job, const Product *products,
                          size_t count) noexcept {
    OneDnnProduct in_onednn[kMaxOneDnnProducts];
    for (size_t i = 0; i < count; ++i)
        in_onednn[i] = {products[i].weights->affine, products[i].product};
    return run_onednn(*device.onednn, job, in_onednn, count);
}

} // namespace

nybl_status run_products(Device &device, const cpu::Job &job, const Product *products,
                         size_t count) noexcept {
    if (!device.usable())
        return fail(NYBL_DEVICE_ERROR,
                    "GPU: the context was created before a fork; the child needs one of its own");
    const std::lock_guard guard(device.lock);
    const auto in_onednn = [](const Product &product) { return product.weights->affine != nullptr; };
    if (std::none_of(products, products + count, in_onednn))
        return Run(device, job, products, count).all();
    // What cannot share its prepared activations runs by itself.
    if (count <= kMaxOneDnnProducts && std::all_of(products, products + count, in_onednn))
        if (const nybl_status status = run_in_onednn(device, job, products, count);
            count == 1 || status != NYBL_UNSUPPORTED)
            return status;
    for (size_t i = 0; i < count; ++i)
        if (const nybl_status status = in_onednn(products[i]) ? run_in_onednn(device, job, products + i, 1)
                                                              : Run(device, job, products + i, 1).all();
            status != NYBL_OK)
            return status;
    return NYBL_OK;
}

} // namespace nybl::gpu
