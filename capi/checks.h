// Argument checks that every function shares: structs that grow, element types, strides, alignment.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <nybl/nybl.h>

#include "base/checked.h"
#include "base/float_environment.h"
#include "base/status.h"
#include "quant/format.h"

namespace nybl::capi {

// Every function that computes or allocates runs inside this: the caller's floating-point environment is set
// aside, and no exception (a host's hook may throw one) crosses the C boundary.
template <class Body>
nybl_status guarded(const char *function, Body &&body) noexcept {
    const FloatEnvironment environment;
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fail(NYBL_OUT_OF_MEMORY, "%s: out of memory", function);
    } catch (...) {
        return fail(NYBL_INTERNAL, "%s: an exception came out of a callback", function);
    }
}

// No struct of this API will be larger: a struct_size above it was never set.
constexpr size_t kMaxStructSize = 4096;

// The rules for struct_size, on bytes: at least itself, and zero where this build knows no member.
nybl_status check_struct(const void *bytes, size_t known_size, const char *name) noexcept;

// Copies a caller's struct: members past its struct_size are zero (their default).
template <class T>
nybl_status read_struct(const T *in, const char *name, T *out) noexcept {
    if (const nybl_status status = check_struct(in, sizeof(T), name); status != NYBL_OK)
        return status;
    T copy{};
    std::memcpy(&copy, in, in->struct_size < sizeof(T) ? in->struct_size : sizeof(T));
    copy.struct_size = sizeof(T);
    *out = copy;
    return NYBL_OK;
}

// Fills the members that the caller's struct has room for (checked by check_struct before); struct_size
// stays.
template <class T>
void write_struct(const T &value, T *out) noexcept {
    const size_t size = out->struct_size < sizeof(T) ? out->struct_size : sizeof(T);
    std::memcpy(reinterpret_cast<char *>(out) + sizeof(size_t),
                reinterpret_cast<const char *>(&value) + sizeof(size_t), size - sizeof(size_t));
}

nybl_status null_argument(const char *what) noexcept; // fails: "WHAT is NULL"

// Bytes of an element of a plain type; 0 for any other format.
size_t element_bytes(nybl_format type) noexcept;
const char *type_name(nybl_format type) noexcept; // of F32, F16, BF16; NULL otherwise

// F32, F16 or BF16, or a failure that names the argument.
nybl_status check_element_type(nybl_format type, const char *what) noexcept;

// A format that may hold weights.
nybl_status get_weight_format(nybl_format id, const quant::Format **format) noexcept;

// Resolves a stride: 0 becomes `contiguous`; below `row_bytes` or not a multiple of `element` is refused.
nybl_status resolve_stride(size_t given, Checked contiguous, Checked row_bytes, size_t element,
                           const char *what, size_t *stride) noexcept;

nybl_status check_size(Checked size, const char *what) noexcept; // refused where it does not fit 64 bits

// Refused where the scratch of a product with that many rows of x may not fit 64 bits. Rows of x and y may
// overlap, so that their own extents say nothing of it.
nybl_status check_volume(Checked rows, uint64_t k, const char *what) noexcept;

// Not NULL where `bytes` is not 0, and aligned to `alignment`.
nybl_status check_pointer(const void *ptr, size_t bytes, size_t alignment, const char *what) noexcept;

} // namespace nybl::capi
