// nybl_format_get_info and nybl_row_bytes.
#include "checks.h"
#include "quant/codec.h"

using namespace nybl;
using namespace nybl::capi;

namespace {

// Plain types have no blocks: one element each, and no dot product of blocks.
nybl_format_info scalar_info(nybl_format type) noexcept {
    const auto bytes = static_cast<uint32_t>(element_bytes(type));
    return {sizeof(nybl_format_info), type_name(type), 1, bytes, 1, 0, type, 0};
}

nybl_format_info block_info(const quant::Format &format) noexcept {
    return {sizeof(nybl_format_info), format.name,    format.block_size,   format.block_bytes,
            format.group_size,        format.has_min, format.vec_dot_type, format.row_factor_bytes};
}

nybl_status get_info(nybl_format id, nybl_format_info *info) noexcept {
    if (type_name(id)) {
        *info = scalar_info(id);
        return NYBL_OK;
    }
    const quant::Format *format = nullptr;
    const nybl_status status = quant::get_format(id, &format);
    if (status == NYBL_OK)
        *info = block_info(*format);
    return status;
}

} // namespace

nybl_status nybl_format_get_info(nybl_format format, nybl_format_info *info) {
    if (const nybl_status status = check_struct(info, sizeof *info, "info"); status != NYBL_OK)
        return status;
    nybl_format_info value{};
    const nybl_status status = get_info(format, &value);
    if (status == NYBL_OK)
        write_struct(value, info);
    return status;
}

nybl_status nybl_row_bytes(nybl_format id, uint64_t k, size_t *bytes) {
    if (!bytes)
        return null_argument("bytes");
    if (type_name(id)) {
        const Checked size = Checked(k) * element_bytes(id);
        if (const nybl_status status = check_size(size, "a row"); status != NYBL_OK)
            return status;
        *bytes = size.value();
        return NYBL_OK;
    }
    const quant::Format *format = nullptr;
    if (const nybl_status status = quant::get_format(id, &format); status != NYBL_OK)
        return status;
    return quant::row_bytes(*format, k, bytes);
}
