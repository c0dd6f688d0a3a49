// What a build without oneDNN has in its place.
#include "base/status.h"
#include "gpu/onednn.h"

namespace nybl::gpu {

nybl_status open_onednn(Memory &, DeviceMemory &, const OneDnnSettings &, OneDnn **) noexcept {
    return fail(NYBL_UNSUPPORTED, "oneDNN: this build has none (NYBL_ONEDNN)");
}

// No engine was ever opened, so that nothing below is called.
void close_onednn(OneDnn *) noexcept {}
void abandon_onednn(OneDnn *) noexcept {}
nybl_status upload_onednn(OneDnn &, const cpu::Matrix &, cpu::Pool *, OneDnnWeights **) noexcept {
    return NYBL_UNSUPPORTED;
}
void release_onednn(OneDnn &, OneDnnWeights *) noexcept {}
void abandon_onednn_weights(OneDnn &, OneDnnWeights *) noexcept {}
bool onednn_holds(OneDnn &, const OneDnnWeights &, const cpu::Matrix &) noexcept {
    return false;
}
size_t onednn_param_bytes(const OneDnnWeights &) noexcept {
    return 0;
}
nybl_status describe_onednn(OneDnn &, const OneDnnWeights &, size_t, nybl_format, OneDnnUse *) noexcept {
    return NYBL_UNSUPPORTED;
}
nybl_status name_onednn(const OneDnn &, nybl_format, size_t, size_t, size_t, OneDnnUse *) noexcept {
    return NYBL_UNSUPPORTED;
}
nybl_status run_onednn(OneDnn &, const cpu::Job &, const OneDnnProduct *, size_t) noexcept {
    return NYBL_UNSUPPORTED;
}

} // namespace nybl::gpu
