// Opening an engine, and its counted memory.
#include "gpu/onednn/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/status.h"

namespace nybl::gpu {

nybl_status fail_onednn(const char *what) noexcept {
    try {
        throw;
    } catch (const dnnl::error &error) {
        const nybl_status status = error.status == dnnl_out_of_memory   ? NYBL_OUT_OF_MEMORY
                                   : error.status == dnnl_unimplemented ? NYBL_UNSUPPORTED
                                                                        : NYBL_DEVICE_ERROR;
        return fail(status, "oneDNN: %s: %s (status %d)", what, error.what(), static_cast<int>(error.status));
    } catch (const std::bad_alloc &) {
        return fail(NYBL_OUT_OF_MEMORY, "oneDNN: %s: out of host memory", what);
    } catch (...) {
        return fail(NYBL_DEVICE_ERROR, "oneDNN: %s: its runtime failed", what);
    }
}

Mapped::~Mapped() {
    try {
        unmap();
    } catch (...) { // the call that unmaps by itself says so
    }
}

void Mapped::unmap() {
    if (uint8_t *data = std::exchange(data_, nullptr))
        mem_.unmap_data(data);
}

OneDnn::OneDnn(Memory &host_memory, DeviceMemory &counters, const OneDnnSettings &how)
    : memory(host_memory), counted(counters), settings(how),
      engine(how.cpu_engine ? dnnl::engine::kind::cpu : dnnl::engine::kind::gpu, how.index), stream(engine) {}

OneDnn::~OneDnn() {
    for (Allocation *allocation : {&scratch.x, &scratch.sums[0], &scratch.sums[1], &scratch.pad})
        release(allocation);
    for (Allocation &y : scratch.y)
        release(&y);
}

Allocation OneDnn::allocate(const dnnl::memory::desc &desc) {
    const size_t bytes = desc.get_size();
    if (bytes > settings.max_buffer_bytes)
        throw dnnl::error(dnnl_out_of_memory, "more bytes than the device allows in one buffer");
    Allocation made{dnnl::memory(desc, engine), bytes};
    counted.bytes += bytes;
    counted.peak_bytes = std::max(counted.peak_bytes, counted.bytes);
    return made;
}

void OneDnn::release(Allocation *allocation) noexcept {
    counted.bytes -= allocation->bytes;
    *allocation = {};
}

void OneDnn::grow(size_t bytes, Allocation *allocation) {
    if (bytes <= allocation->bytes)
        return;
    release(allocation);
    *allocation = allocate(
        {{static_cast<dnnl::memory::dim>(bytes)}, dnnl::memory::data_type::u8, dnnl::memory::dims{1}});
}

dnnl::memory OneDnn::view(const Allocation &allocation, const dnnl::memory::desc &desc) const {
    return {desc, engine, allocation.mem.get_data_handle()};
}

nybl_status open_onednn(Memory &memory, DeviceMemory &counted, const OneDnnSettings &settings,
                        OneDnn **opened) noexcept {
    void *storage = nullptr;
    if (const nybl_status status =
            memory.allocate(sizeof(OneDnn), alignof(OneDnn), "oneDNN engine", &storage);
        status != NYBL_OK)
        return status;
    try {
        const auto kind = settings.cpu_engine ? dnnl::engine::kind::cpu : dnnl::engine::kind::gpu;
        if (settings.index < dnnl::engine::get_count(kind)) {
            *opened = ::new (storage) OneDnn(memory, counted, settings);
            return NYBL_OK;
        }
        fail(NYBL_UNSUPPORTED_HARDWARE, "oneDNN: it has no engine for this device");
    } catch (...) {
        fail_onednn("opening an engine");
    }
    memory.deallocate(storage, sizeof(OneDnn));
    return NYBL_UNSUPPORTED_HARDWARE;
}

void close_onednn(OneDnn *dnn) noexcept {
    if (!dnn)
        return;
    Memory &memory = dnn->memory;
    dnn->~OneDnn();
    memory.deallocate(dnn, sizeof(OneDnn));
}

void abandon_onednn(OneDnn *dnn) noexcept {
    if (dnn)
        dnn->memory.deallocate(dnn, sizeof(OneDnn));
}

} // namespace nybl::gpu
