// nybl_vec_dot and nybl_get_vec_dot.
#include "cpu/vec_dot.h"

#include "checks.h"
#include "cpu/isa.h"
#include "quant/codec.h"

using namespace nybl;
using namespace nybl::capi;

namespace {

nybl_status find(nybl_format id, const quant::Format **format, nybl_vec_dot_fn *fn) noexcept {
    if (const nybl_status status = get_weight_format(id, format); status != NYBL_OK)
        return status;
    *fn = cpu::find_vec_dot(id, cpu::effective_isa(NYBL_ISA_BEST));
    return *fn ? NYBL_OK
               : fail(NYBL_UNSUPPORTED, "format %s has no block-level dot product", (*format)->name);
}

} // namespace

nybl_status nybl_vec_dot(nybl_format id, uint64_t k, const void *w_row, const void *a_row, float *out) {
    const quant::Format *format = nullptr;
    nybl_vec_dot_fn fn = nullptr;
    if (const nybl_status status = find(id, &format, &fn); status != NYBL_OK)
        return status;
    size_t bytes = 0;
    if (const nybl_status status = quant::row_bytes(*format, k, &bytes); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(w_row, bytes, 1, "w_row"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(a_row, bytes, 1, "a_row"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_pointer(out, sizeof *out, alignof(float), "out"); status != NYBL_OK)
        return status;
    fn(k, w_row, a_row, out);
    return NYBL_OK;
}

nybl_status nybl_get_vec_dot(nybl_format id, nybl_vec_dot_fn *fn) {
    if (!fn)
        return null_argument("fn");
    const quant::Format *format = nullptr;
    nybl_vec_dot_fn found = nullptr;
    const nybl_status status = find(id, &format, &found);
    if (status == NYBL_OK)
        *fn = found;
    return status;
}
