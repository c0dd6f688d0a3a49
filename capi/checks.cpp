// The shared argument checks.
#include "checks.h"

namespace nybl::capi {

nybl_status check_struct(const void *bytes, size_t known_size, const char *name) noexcept {
    if (!bytes)
        return null_argument(name);
    size_t size = 0;
    std::memcpy(&size, bytes, sizeof size);
    if (size < sizeof(size_t) || size > kMaxStructSize)
        return fail(NYBL_INVALID_ARGUMENT, "%s: struct_size is %zu; set it to the sizeof of the struct", name,
                    size);
    const auto *data = static_cast<const unsigned char *>(bytes);
    for (size_t i = known_size; i < size; ++i)
        if (data[i] != 0)
            return fail(
                NYBL_INVALID_ARGUMENT,
                "%s: byte %zu, past the %zu bytes that this version knows, is not zero: the caller asks for "
                "something newer than this library",
                name, i, known_size);
    return NYBL_OK;
}

nybl_status null_argument(const char *what) noexcept {
    return fail(NYBL_INVALID_ARGUMENT, "%s is NULL", what);
}

size_t element_bytes(nybl_format type) noexcept {
    return type == NYBL_F32 ? 4 : type == NYBL_F16 || type == NYBL_BF16 ? 2 : 0;
}

const char *type_name(nybl_format type) noexcept {
    return type == NYBL_F32 ? "F32" : type == NYBL_F16 ? "F16" : type == NYBL_BF16 ? "BF16" : nullptr;
}

nybl_status check_element_type(nybl_format type, const char *what) noexcept {
    if (element_bytes(type) != 0)
        return NYBL_OK;
    return fail(NYBL_INVALID_ARGUMENT, "%s is format %d; it must be F32, F16 or BF16", what,
                static_cast<int>(type));
}

nybl_status get_weight_format(nybl_format id, const quant::Format **format) noexcept {
    const quant::Format *found = nullptr;
    if (const nybl_status status = quant::get_format(id, &found); status != NYBL_OK)
        return status;
    if (!found->is_weight)
        return fail(NYBL_INVALID_ARGUMENT, "format %s holds activations, not weights", found->name);
    *format = found;
    return NYBL_OK;
}

nybl_status resolve_stride(size_t given, Checked contiguous, Checked row_bytes, size_t element,
                           const char *what, size_t *stride) noexcept {
    if (given == 0) {
        if (const nybl_status status = check_size(contiguous, what); status != NYBL_OK)
            return status;
        *stride = contiguous.value();
        return NYBL_OK;
    }
    if (!row_bytes.valid() || given < row_bytes.value())
        return fail(NYBL_INVALID_ARGUMENT, "%s is %zu bytes, less than a row (%zu)", what, given,
                    row_bytes.value());
    if (given % element != 0)
        return fail(NYBL_INVALID_ARGUMENT, "%s is %zu bytes, not a multiple of the element (%zu)", what,
                    given, element);
    *stride = given;
    return NYBL_OK;
}

nybl_status check_size(Checked size, const char *what) noexcept {
    return size.valid() ? NYBL_OK : fail(NYBL_INVALID_ARGUMENT, "%s: the size does not fit 64 bits", what);
}

nybl_status check_volume(Checked rows, uint64_t k, const char *what) noexcept {
    // At most 8 bytes an element of x, and 128 an element of one row for each thread (cpu::scratch_bytes),
    // both with a tile's padding.
    constexpr uint64_t kMaxThreads = 1 << 16, kPadding = 1 << 16;
    return check_size(
        (rows + kPadding) * (Checked(k) + kPadding) * 8 + (Checked(k) + kPadding) * 128 * kMaxThreads, what);
}

nybl_status check_pointer(const void *ptr, size_t bytes, size_t alignment, const char *what) noexcept {
    if (bytes == 0)
        return NYBL_OK;
    if (!ptr)
        return null_argument(what);
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    if (address % alignment != 0)
        return fail(NYBL_INVALID_ARGUMENT, "%s is not aligned to its element (%zu bytes)", what, alignment);
    // No object is larger than a difference of pointers can say: a stride of that size is a negative one.
    if (bytes > PTRDIFF_MAX || UINTPTR_MAX - address < bytes - 1)
        return fail(NYBL_INVALID_ARGUMENT, "%s: %zu bytes from there do not fit the address space", what,
                    bytes);
    return NYBL_OK;
}

} // namespace nybl::capi
