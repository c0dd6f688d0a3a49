// The plugin's entry: registry, device, and which operations it takes. See docs/engine.md for its use.
#include "device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "buffer.h"

namespace nybl::plugin {
namespace {

bool environment_is(const char *name, const char *value) noexcept {
    const char *set = std::getenv(name);
    return set && std::strcmp(set, value) == 0;
}

bool storage_in_place() noexcept {
    const char *storage = std::getenv("NYBL_GGML_STORAGE");
    if (storage && *storage && std::strcmp(storage, "original") != 0 && std::strcmp(storage, "packed") != 0)
        std::fprintf(stderr,
                     "nybl: NYBL_GGML_STORAGE is \"%s\", neither original nor packed: weights are packed\n",
                     storage);
    return environment_is("NYBL_GGML_STORAGE", "original");
}

// Asked of the library, so that the plugin need not know which formats a build has kernels for: those with a
// packed layout. Others are served by the plain reference, which is no use in an engine.
bool has_kernels(nybl_context *ctx, ggml_type type) noexcept {
    if (!ggml_is_quantized(type))
        return false;
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = static_cast<nybl_format>(type); // both use the numbers of GGUF files
    desc.n = 1;
    desc.k = static_cast<uint64_t>(ggml_blck_size(type));
    size_t bytes = 0;
    return nybl_weights_bytes(ctx, &desc, &bytes) == NYBL_OK;
}

ggml_backend_reg_t registry();

const char *get_name(ggml_backend_dev_t) {
    return "NYBL";
}

const char *get_description(ggml_backend_dev_t) {
    return "Nybl kernels for quantized weights";
}

void get_memory(ggml_backend_dev_t, size_t *free, size_t *total) {
    ggml_backend_dev_memory(device()->cpu, free, total);
}

enum ggml_backend_dev_type get_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

void get_props(ggml_backend_dev_t dev, ggml_backend_dev_props *props) {
    props->name = get_name(dev);
    props->description = get_description(dev);
    props->type = get_type(dev);
    get_memory(dev, &props->memory_free, &props->memory_total);
    props->caps.buffer_from_host_ptr = device()->in_place;
    props->caps.mmap_support = true;
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor *op) {
    // Weights that are no use here belong into a buffer type of the CPU backend that repacks them.
    if (is_matmul(op) && is_our_weights(op->src[0]))
        return can_multiply(op);
    for (const ggml_tensor *src : op->src)
        if (src && may_be_packed(src))
            return false;
    return ggml_backend_dev_supports_op(device()->cpu, op);
}

bool supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return type == buffer_type() || ggml_backend_buft_is_host(type);
}

ggml_backend_device make_device() noexcept {
    ggml_backend_device made{};
    made.iface.get_name = get_name;
    made.iface.get_description = get_description;
    made.iface.get_memory = get_memory;
    made.iface.get_type = get_type;
    made.iface.get_props = get_props;
    made.iface.init_backend = [](ggml_backend_dev_t, const char *) { return make_backend(); };
    made.iface.get_buffer_type = [](ggml_backend_dev_t) { return buffer_type(); };
    made.iface.buffer_from_host_ptr = [](ggml_backend_dev_t, void *base, size_t size, size_t) {
        return buffer_over(base, size);
    };
    made.iface.supports_op = supports_op;
    made.iface.supports_buft = supports_buft;
    made.reg = registry();
    return made;
}

void get_counters(uint64_t *seen, uint64_t *taken) {
    *seen = device()->counters.seen;
    *taken = device()->counters.taken;
}

bool serves(ggml_type type) {
    return device()->packable[type];
}

void *get_proc_address(ggml_backend_reg_t, const char *name) {
    const auto is = [&](const char *other) { return std::strcmp(name, other) == 0; };
    if (is("ggml_backend_set_n_threads"))
        return reinterpret_cast<void *>(set_n_threads);
    if (is("ggml_backend_set_abort_callback"))
        return reinterpret_cast<void *>(set_abort_callback);
    if (is("nybl_serves"))
        return reinterpret_cast<void *>(serves);
    if (is("nybl_get_counters"))
        return reinterpret_cast<void *>(get_counters);
    return nullptr;
}

ggml_backend_reg_t registry() {
    static ggml_backend_reg made = [] {
        ggml_backend_reg reg{};
        reg.api_version = GGML_BACKEND_API_VERSION;
        reg.iface.get_name = [](ggml_backend_reg_t) { return "NYBL"; };
        reg.iface.get_device_count = [](ggml_backend_reg_t) { return size_t(device() ? 1 : 0); };
        reg.iface.get_device = [](ggml_backend_reg_t, size_t) { return device_handle(); };
        reg.iface.get_proc_address = get_proc_address;
        return reg;
    }();
    return &made;
}

} // namespace

Device::Device()
    : cpu(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)), in_place(storage_in_place()),
      report(environment_is("NYBL_GGML_REPORT", "1")) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type)
        packable[type] = has_kernels(ctx.get(), static_cast<ggml_type>(type));
}

Device *device() {
    // Not destroyed: the host may free buffers after this library's statics.
    static Device *const made = []() -> Device * {
        try {
            return new Device;
        } catch (const nybl::Error &error) {
            std::fprintf(stderr, "nybl: no device: %s\n", error.what());
            return nullptr;
        }
    }();
    return made;
}

ggml_backend_dev_t device_handle() {
    static ggml_backend_device made = make_device();
    return &made;
}

} // namespace nybl::plugin

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
    return nybl::plugin::registry();
}
