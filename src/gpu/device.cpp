// Choosing and opening a device, and its counted memory.
#include "base/environment.h"
#include "gpu/opencl_host.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/status.h"

namespace nybl::gpu {
namespace {

constexpr cl_uint kMaxPlatforms = 16, kMaxDevices = 64;

struct DeviceList {
    cl_device_id ids[kMaxDevices];
    uint32_t count = 0;

    void append(const OpenCl &cl, cl_platform_id platform, cl_device_type type) noexcept {
        cl_uint found = 0;
        if (cl.GetDeviceIDs(platform, type, kMaxDevices - count, ids + count, &found) == CL_SUCCESS)
            count += std::min(found, kMaxDevices - count);
    }
};

nybl_status list_devices(const OpenCl &cl, DeviceList *list) noexcept {
    cl_platform_id platforms[kMaxPlatforms];
    cl_uint found = 0;
    if (cl.GetPlatformIDs(kMaxPlatforms, platforms, &found) != CL_SUCCESS || found == 0)
        return fail(NYBL_UNSUPPORTED_HARDWARE,
                    "GPU: the OpenCL loader knows no driver; install one for your device "
                    "(Debian: intel-opencl-icd, or pocl-opencl-icd for the CPU)");
    found = std::min(found, kMaxPlatforms);
    for (const cl_device_type type : {CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU})
        for (cl_uint i = 0; i < found && list->count < kMaxDevices; ++i)
            list->append(cl, platforms[i], type);
    if (list->count == 0)
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %u OpenCL driver(s) are there, but no device", found);
    return NYBL_OK;
}

template <class T>
T device_info(const OpenCl &cl, cl_device_id id, cl_device_info what) noexcept {
    T value{};
    cl.GetDeviceInfo(id, what, sizeof value, &value, nullptr);
    return value;
}

bool has_word(const char *text, const char *word) noexcept {
    const size_t length = std::strlen(word);
    for (const char *at = text; (at = std::strstr(at, word)); at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

// Sub-groups of 16 exist, and the kernel language can ask for them.
bool has_subgroups_of_16(const OpenCl &cl, cl_device_id id, const char *extensions) noexcept {
    constexpr cl_device_info kSubGroupSizesIntel = 0x4108;
    size_t sizes[16] = {}, bytes = 0;
    if (!has_word(extensions, "cl_intel_required_subgroup_size") ||
        !has_word(extensions, "cl_intel_subgroups") ||
        cl.GetDeviceInfo(id, kSubGroupSizesIntel, sizeof sizes, sizes, &bytes) != CL_SUCCESS)
        return false;
    return std::find(sizes, sizes + bytes / sizeof *sizes, size_t{16}) != sizes + bytes / sizeof *sizes;
}

nybl_status read_traits(const OpenCl &cl, cl_device_id id, const Variant *override_variant,
                        Traits *out) noexcept {
    Traits traits{};
    cl.GetDeviceInfo(id, CL_DEVICE_NAME, sizeof traits.name - 1, traits.name, nullptr);
    char version[128] = "", extensions[8192] = "";
    cl.GetDeviceInfo(id, CL_DEVICE_VERSION, sizeof version - 1, version, nullptr);
    cl.GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, nullptr);
    int major = 0, minor = 0;
    if (std::sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %s has \"%s\"; OpenCL 1.2 or newer is needed",
                    traits.name, version);
    if (!device_info<cl_bool>(cl, id, CL_DEVICE_AVAILABLE) ||
        !device_info<cl_bool>(cl, id, CL_DEVICE_COMPILER_AVAILABLE))
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %s is not available, or its driver has no compiler",
                    traits.name);
    if (!device_info<cl_bool>(cl, id, CL_DEVICE_ENDIAN_LITTLE) ||
        device_info<size_t>(cl, id, CL_DEVICE_MAX_WORK_GROUP_SIZE) < 128)
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %s is big-endian, or has work-groups below 128",
                    traits.name);
    const bool subgroups = has_subgroups_of_16(cl, id, extensions);
    const bool is_cpu = device_info<cl_device_type>(cl, id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU;
    traits.variant = is_cpu ? Variant::Vector : subgroups ? Variant::Subgroup : Variant::Lane;
    if (override_variant)
        traits.variant = *override_variant;
    if (traits.variant == Variant::Subgroup && !subgroups)
        return fail(NYBL_UNSUPPORTED_HARDWARE, "GPU: %s has no sub-groups of 16", traits.name);
    traits.fp16 = has_word(extensions, "cl_khr_fp16");
    traits.matrix_engine = has_word(extensions, "cl_intel_subgroup_matrix_multiply_accumulate");
    traits.integer_dot = major >= 3 && has_word(extensions, "cl_khr_integer_dot_product");
    traits.max_buffer_bytes = device_info<cl_ulong>(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (const char *cap = environment("NYBL_OPENCL_MAX_BUFFER"))
        traits.max_buffer_bytes = std::min<size_t>(traits.max_buffer_bytes, std::strtoull(cap, nullptr, 10));
    *out = traits;
    return NYBL_OK;
}

bool is_intel_gpu(const OpenCl &cl, cl_device_id id) noexcept {
    constexpr cl_uint kIntel = 0x8086;
    return device_info<cl_uint>(cl, id, CL_DEVICE_VENDOR_ID) == kIntel &&
           (device_info<cl_device_type>(cl, id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0;
}

// oneDNN counts Intel's GPUs alone, in the driver's order.
void look_for_onednn(const DeviceList &list, uint32_t index, Device *device) noexcept {
    if (!is_intel_gpu(device->cl, device->id))
        return;
    OneDnnSettings settings;
    for (uint32_t i = 0; i < index; ++i)
        settings.index += is_intel_gpu(device->cl, list.ids[i]);
    settings.matrix_engine = device->traits.matrix_engine;
    settings.max_buffer_bytes = device->traits.max_buffer_bytes;
    if (attach_onednn(*device, settings) != NYBL_OK)
        std::snprintf(device->onednn_note, sizeof device->onednn_note, "%s", last_error());
}

nybl_status start(Device *device) noexcept {
    const OpenCl &cl = device->cl;
    cl_int error = CL_SUCCESS;
    device->context = cl.CreateContext(nullptr, 1, &device->id, nullptr, nullptr, &error);
    if (error != CL_SUCCESS)
        return fail_opencl(error, "creating an OpenCL context");
    device->queue = cl.CreateCommandQueue(device->context, device->id, 0, &error);
    if (error != CL_SUCCESS)
        return fail_opencl(error, "creating a command queue");
    return NYBL_OK;
}

// A Device that has its traits, and neither context nor queue yet.
nybl_status make_device(Memory &memory, const OpenCl &cl, cl_device_id id, const Variant *override_variant,
                        Device **device) noexcept {
    Traits traits;
    if (const nybl_status status = read_traits(cl, id, override_variant, &traits); status != NYBL_OK)
        return status;
    void *storage = nullptr;
    if (const nybl_status status = memory.allocate(sizeof(Device), alignof(Device), "GPU device", &storage);
        status != NYBL_OK)
        return status;
    *device = ::new (storage) Device(memory, cl);
    (*device)->traits = traits;
    (*device)->id = id;
    return NYBL_OK;
}

} // namespace

nybl_status open_device(Memory &memory, uint32_t index, const Variant *override_variant,
                        Device **device) noexcept {
    const OpenCl *cl = nullptr;
    if (const nybl_status status = load_opencl(&cl); status != NYBL_OK)
        return status;
    DeviceList list;
    if (const nybl_status status = list_devices(*cl, &list); status != NYBL_OK)
        return status;
    if (index >= list.count)
        return fail(NYBL_UNSUPPORTED_HARDWARE,
                    "GPU: there is no device %" PRIu32 "; OpenCL offers %" PRIu32 " (they count from 0)",
                    index, list.count);
    Device *made = nullptr;
    if (const nybl_status status = make_device(memory, *cl, list.ids[index], override_variant, &made);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = start(made); status != NYBL_OK) {
        close_device(made);
        return status;
    }
    if (!override_variant)
        look_for_onednn(list, index, made);
    *device = made;
    return NYBL_OK;
}

nybl_status attach_onednn(Device &device, const OneDnnSettings &settings) noexcept {
    return open_onednn(device.memory, device.counted, settings, &device.onednn);
}

nybl_status adopt_device(Memory &memory, cl_device_id id, cl_context context, cl_command_queue queue,
                         Device **device) noexcept {
    const OpenCl *cl = nullptr;
    if (const nybl_status status = load_opencl(&cl); status != NYBL_OK)
        return status;
    cl_command_queue_properties properties = 0;
    const cl_int error =
        cl->GetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr);
    if (error != CL_SUCCESS)
        return fail(NYBL_INVALID_ARGUMENT, "opencl: queue: OpenCL error %d", error);
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return fail(NYBL_INVALID_ARGUMENT,
                    "opencl: the queue runs out of order; give one that runs in order");
    Device *made = nullptr;
    if (const nybl_status status = make_device(memory, *cl, id, nullptr, &made); status != NYBL_OK)
        return status;
    cl->RetainContext(context);
    cl->RetainCommandQueue(queue);
    made->context = context;
    made->queue = queue;
    *device = made;
    return NYBL_OK;
}

void close_device(Device *device) noexcept {
    if (!device)
        return;
    Memory &memory = device->memory;
    device->~Device();
    memory.deallocate(device, sizeof(Device));
}

const Traits &traits_of(const Device &device) noexcept {
    return device.traits;
}

DeviceMemory device_memory(const Device &device) noexcept {
    Device &mutable_device = const_cast<Device &>(device);
    const std::lock_guard guard(mutable_device.lock);
    return device.counted;
}

nybl_status Device::create_buffer(size_t size, const char *what, Buffer *buffer) noexcept {
    if (size > traits.max_buffer_bytes)
        return fail(NYBL_OUT_OF_MEMORY,
                    "GPU: %s: %zu bytes are more than the %zu that %s allows in one buffer", what, size,
                    traits.max_buffer_bytes, traits.name);
    cl_int error = CL_SUCCESS;
    const cl_mem mem = cl.CreateBuffer(context, CL_MEM_READ_WRITE, size, nullptr, &error);
    if (error != CL_SUCCESS)
        return fail_opencl(error, what);
    *buffer = {mem, size};
    counted.bytes += size;
    counted.peak_bytes = std::max(counted.peak_bytes, counted.bytes);
    return NYBL_OK;
}

nybl_status Device::grow_buffer(size_t size, const char *what, Buffer *buffer) noexcept {
    if (size <= buffer->size && buffer->mem)
        return NYBL_OK;
    free_buffer(buffer);
    return create_buffer(std::max<size_t>(size, 64), what, buffer);
}

nybl_status Device::expert_counts(size_t n_experts, uint32_t **counts) noexcept {
    const size_t size = n_experts * sizeof *counts_;
    if (size > counts_size_) {
        memory.deallocate(counts_, counts_size_);
        counts_ = nullptr;
        counts_size_ = 0;
        void *grown = nullptr;
        if (const nybl_status status = memory.allocate(size, alignof(uint32_t), "expert counts", &grown);
            status != NYBL_OK)
            return status;
        counts_ = static_cast<uint32_t *>(grown);
        counts_size_ = size;
    }
    *counts = counts_;
    return NYBL_OK;
}

void Device::free_buffer(Buffer *buffer) noexcept {
    if (buffer->mem)
        cl.ReleaseMemObject(buffer->mem);
    counted.bytes -= buffer->size;
    *buffer = {};
}

} // namespace nybl::gpu
