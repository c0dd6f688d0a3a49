// Weights on a device: uploaded once, shared by every handle with the same bytes.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "base/status.h"
#include "gpu/device.h"

namespace nybl::gpu {
namespace {

// A quick fingerprint; equal ones are compared byte by byte before anything is shared.
uint64_t fingerprint(const uint8_t *data, size_t size) noexcept {
    uint64_t lanes[4] = {1, 2, 3, 4};
    size_t at = 0;
    for (; at + 32 <= size; at += 32)
        for (size_t i = 0; i < 4; ++i) {
            uint64_t word;
            std::memcpy(&word, data + at + 8 * i, 8);
            lanes[i] = (lanes[i] ^ word) * 0x9e3779b97f4a7c15u;
            lanes[i] ^= lanes[i] >> 29;
        }
    uint64_t hash = size;
    for (const uint64_t lane : lanes)
        hash = (hash ^ lane) * 0xbf58476d1ce4e5b9u;
    for (; at < size; ++at)
        hash = (hash ^ data[at]) * 0x100000001b3u;
    return hash;
}

// Bytes of scales and minima in all panels.
size_t param_bytes(const cpu::Matrix &packed, size_t n_experts) noexcept {
    const cpu::PanelLayout &layout = *packed.layout;
    return cpu::panel_count(packed.n) * n_experts * ((packed.k + layout.block_k - 1) / layout.block_k) *
           layout.quants_offset;
}

bool same_shape(const DeviceWeights &a, const DeviceWeights &b) noexcept {
    return a.hash == b.hash && a.format == b.format && a.n == b.n && a.k == b.k &&
           a.n_experts == b.n_experts && a.panel_stride == b.panel_stride &&
           a.expert_stride == b.expert_stride;
}

bool same_bytes(Device &device, const DeviceWeights &weights, const uint8_t *data, size_t size) noexcept {
    if (weights.panels.size != size)
        return false;
    cl_int error = CL_SUCCESS;
    void *mapped = device.cl.EnqueueMapBuffer(device.queue, weights.panels.mem, CL_TRUE, CL_MAP_READ, 0, size,
                                              0, nullptr, nullptr, &error);
    if (error != CL_SUCCESS)
        return false;
    const bool same = std::memcmp(mapped, data, size) == 0;
    device.cl.EnqueueUnmapMemObject(device.queue, weights.panels.mem, mapped, 0, nullptr, nullptr);
    return same;
}

nybl_status fill(Device &device, const uint8_t *data, size_t size, DeviceWeights *weights) noexcept {
    if (const nybl_status status = device.create_buffer(size, "weights", &weights->panels); status != NYBL_OK)
        return status;
    const cl_int error = device.cl.EnqueueWriteBuffer(device.queue, weights->panels.mem, CL_TRUE, 0, size,
                                                      data, 0, nullptr, nullptr);
    if (error == CL_SUCCESS)
        return NYBL_OK;
    device.free_buffer(&weights->panels);
    return fail_opencl(error, "copying weights to the device");
}

// The weights as oneDNN takes them; false, with the reason in the note, where it does not.
bool fill_onednn(Device &device, const cpu::Matrix &packed, cpu::Pool *pool,
                 DeviceWeights *weights) noexcept {
    if (!device.onednn) {
        std::memcpy(weights->note, device.onednn_note, sizeof weights->note);
        return false;
    }
    if (weights->n_experts > 1) {
        std::snprintf(weights->note, sizeof weights->note, "oneDNN multiplies no experts");
        return false;
    }
    if (upload_onednn(*device.onednn, packed, pool, &weights->affine) != NYBL_OK) {
        std::snprintf(weights->note, sizeof weights->note, "%s", last_error());
        return false;
    }
    weights->param_bytes = onednn_param_bytes(*weights->affine);
    return true;
}

bool holds(Device &device, const DeviceWeights &weights, const cpu::Matrix &packed, size_t bytes) noexcept {
    return weights.affine ? onednn_holds(*device.onednn, *weights.affine, packed)
                          : same_bytes(device, weights, packed.data, bytes);
}

} // namespace

nybl_status upload_weights(Device &device, const cpu::Matrix &packed, size_t n_experts, size_t bytes,
                           cpu::Pool *pool, DeviceWeights **out) noexcept {
    if (!device.usable())
        return fail(NYBL_DEVICE_ERROR,
                    "GPU: the context was created before a fork; the child needs one of its own");
    DeviceWeights wanted;
    wanted.hash = fingerprint(packed.data, bytes);
    wanted.format = packed.format->id;
    wanted.n = packed.n;
    wanted.k = packed.k;
    wanted.n_experts = n_experts;
    wanted.panel_stride = packed.stride;
    wanted.expert_stride = packed.expert_stride;
    wanted.param_bytes = param_bytes(packed, n_experts);
    const std::lock_guard guard(device.lock);
    for (DeviceWeights *have = device.weights; have; have = have->next)
        if (same_shape(*have, wanted) && holds(device, *have, packed, bytes)) {
            ++have->references;
            *out = have;
            return NYBL_OK;
        }
    void *storage = nullptr;
    if (const nybl_status status =
            device.memory.allocate(sizeof(DeviceWeights), alignof(DeviceWeights), "GPU weights", &storage);
        status != NYBL_OK)
        return status;
    if (!fill_onednn(device, packed, pool, &wanted))
        if (const nybl_status status = fill(device, packed.data, bytes, &wanted); status != NYBL_OK) {
            device.memory.deallocate(storage, sizeof(DeviceWeights));
            return status;
        }
    auto *made = ::new (storage) DeviceWeights(wanted);
    made->next = device.weights;
    device.weights = made;
    device.counted.param_bytes += made->param_bytes;
    *out = made;
    return NYBL_OK;
}

void release_weights(Device &device, DeviceWeights *weights) noexcept {
    if (!weights)
        return;
    // A forked child gives host memory back and leaves the device to its parent.
    const bool usable = device.usable();
    const std::lock_guard guard(device.lock);
    if (--weights->references != 0)
        return;
    DeviceWeights **link = &device.weights;
    while (*link != weights)
        link = &(*link)->next;
    *link = weights->next;
    device.counted.param_bytes -= weights->param_bytes;
    if (usable)
        device.free_buffer(&weights->panels);
    if (weights->affine)
        (usable ? release_onednn : abandon_onednn_weights)(*device.onednn, weights->affine);
    device.memory.deallocate(weights, sizeof(DeviceWeights));
}

Placement place_of(Device &device, const DeviceWeights &weights, size_t m, nybl_format x_type) noexcept {
    Placement place;
    if (!weights.affine) {
        std::memcpy(place.note, weights.note, sizeof place.note);
        return place;
    }
    place.onednn = true;
    const std::lock_guard guard(device.lock);
    place.served =
        device.usable() && describe_onednn(*device.onednn, *weights.affine, m, x_type, &place.use) == NYBL_OK;
    if (!place.served)
        std::snprintf(place.note, sizeof place.note, "%s",
                      device.usable() ? last_error() : "the context was created before a fork");
    return place;
}

nybl_status name_on_device(Device &device, nybl_format format, size_t m, size_t n, size_t k,
                           OneDnnUse *use) noexcept {
    const std::lock_guard guard(device.lock);
    if (!device.onednn)
        return fail(NYBL_UNSUPPORTED, "%s",
                    device.onednn_note[0] ? device.onednn_note : "oneDNN: no Intel GPU");
    return name_onednn(*device.onednn, format, m, n, k, use);
}

} // namespace nybl::gpu
