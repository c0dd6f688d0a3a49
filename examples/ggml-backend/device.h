// What the parts of the plugin share: the library's context, the CPU backend beside it, settings and
// counters.
#pragma once

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <nybl/nybl.hpp>

namespace nybl::plugin {

// Multiply-adds of MUL_MAT and MUL_MAT_ID with weights in a format that the library has kernels for.
struct Counters {
    std::atomic<uint64_t> seen{0}, taken{0}; // multiply-adds
    std::atomic<uint64_t> ops_seen{0}, ops_taken{0};
};

struct Device {
    nybl::Context ctx;
    ggml_backend_dev_t cpu; // runs every other operation, on the same threads
    bool in_place;          // NYBL_GGML_STORAGE=original
    bool report;            // NYBL_GGML_REPORT=1: the counters when a backend is freed
    bool packable[GGML_TYPE_COUNT];
    Counters counters;

    Device();
};

// The one device. NULL where the library or the host's CPU backend cannot be had: a reason is logged.
Device *device();
ggml_backend_dev_t device_handle();

bool is_matmul(const ggml_tensor *op) noexcept;
// Whether the library can run a MUL_MAT or MUL_MAT_ID as to types and shapes.
bool can_multiply(const ggml_tensor *op) noexcept;

ggml_backend_t make_backend();
void set_n_threads(ggml_backend_t backend, int n_threads);
void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data);

} // namespace nybl::plugin
