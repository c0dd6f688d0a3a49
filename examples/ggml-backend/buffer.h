// The device's memory: weights turn into handles of the library as they arrive, all else is plain memory.
#pragma once

#include "device.h"

namespace nybl::plugin {

ggml_backend_buffer_type_t buffer_type();

// A buffer over memory that the host has mapped (weights used in place).
ggml_backend_buffer_t buffer_over(void *base, size_t size);

// Whether a tensor lies, or would lie, in the device's memory for weights.
bool is_our_weights(const ggml_tensor *tensor) noexcept;

// Whether a tensor's bytes may be held as packed weights, so that only our products can read them.
bool may_be_packed(const ggml_tensor *tensor) noexcept;

// The library's handle for the weights in `tensor`; NULL where there is none.
const nybl_weights *find_weights(const ggml_tensor *tensor);

// Puts packed weights back as the plain bytes that other operations read.
void restore(const ggml_tensor *tensor);

} // namespace nybl::plugin
