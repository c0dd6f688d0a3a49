// The table of formats and its look-up. A new format is one line here and one file.
#include "quant/format.h"

#include "base/status.h"
#include "quant/block_format.h"

namespace nybl::quant {
namespace {

constexpr const Format *kTable[] = {
    &kFormatQ4_0, &kFormatQ4_1, &kFormatQ5_0, &kFormatQ5_1, &kFormatQ8_0,   &kFormatQ8_1,
    &kFormatQ4_K, &kFormatQ5_K, &kFormatQ6_K, &kFormatQ8_K, &kFormatIQ4_NL, &kFormatIQ4_NL_ROW,
};

const char *plain_type_name(nybl_format id) noexcept {
    switch (id) {
    case NYBL_F32:
        return "F32";
    case NYBL_F16:
        return "F16";
    case NYBL_BF16:
        return "BF16";
    default:
        return nullptr;
    }
}

} // namespace

const Format *find_format(nybl_format id) noexcept {
    for (const Format *format : kTable)
        if (format->id == id)
            return format;
    return nullptr;
}

nybl_status get_format(nybl_format id, const Format **format) noexcept {
    if (const Format *found = find_format(id)) {
        *format = found;
        return NYBL_OK;
    }
    if (const char *name = plain_type_name(id))
        return fail(NYBL_UNSUPPORTED,
                    "%s is a plain element type: a block format such as Q4_0 is needed here", name);
    return fail(NYBL_INVALID_ARGUMENT, "format number %d is not one that this library knows",
                static_cast<int>(id));
}

} // namespace nybl::quant
