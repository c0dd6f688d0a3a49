// What a build without OpenCL's headers has in place of a device.
#include "base/status.h"
#include "gpu/gpu.h"

namespace nybl::gpu {

nybl_status open_device(Memory &, uint32_t, const Variant *, Device **) noexcept {
    return fail(
        NYBL_UNSUPPORTED_HARDWARE,
        "GPU: this build has no GPU path: it was configured without OpenCL's headers, or with NYBL_GPU=OFF");
}

// No device was ever opened, so that nothing below is called.
void close_device(Device *) noexcept {}
const Traits &traits_of(const Device &) noexcept {
    static constexpr Traits kNone{};
    return kNone;
}
nybl_status attach_onednn(Device &, const OneDnnSettings &) noexcept {
    return NYBL_UNSUPPORTED;
}
DeviceMemory device_memory(const Device &) noexcept {
    return {};
}
nybl_status upload_weights(Device &, const cpu::Matrix &, size_t, size_t, cpu::Pool *,
                           DeviceWeights **) noexcept {
    return NYBL_UNSUPPORTED;
}
void release_weights(Device &, DeviceWeights *) noexcept {}
Placement place_of(Device &, const DeviceWeights &, size_t, nybl_format) noexcept {
    return {};
}
nybl_status run_products(Device &, const cpu::Job &, const Product *, size_t) noexcept {
    return NYBL_UNSUPPORTED;
}

} // namespace nybl::gpu
