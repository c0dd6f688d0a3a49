// nybl_matmul_explain.
#include <cstring>

#include "job.h"

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_matmul_explain(const nybl_weights *w, uint64_t m, nybl_kernel_info *info) {
    if (!w)
        return null_argument("w");
    if (const nybl_status status = check_struct(info, sizeof *info, "info"); status != NYBL_OK)
        return status;
    const dispatch::Choice choice = choose_kernel(*w, m, NYBL_COMPUTE_DEFAULT);
    nybl_kernel_info value{};
    static_assert(sizeof value.name == sizeof choice.name && sizeof value.reason == sizeof choice.reason);
    std::memcpy(value.name, choice.name, sizeof value.name);
    std::memcpy(value.reason, choice.reason, sizeof value.reason);
    value.isa = choice.kernel.isa;
    value.mr = choice.kernel.mr;
    value.nr = choice.kernel.nr;
    value.device = NYBL_DEVICE_CPU;
    value.storage = w->matrix.storage;
    write_struct(value, info);
    return NYBL_OK;
}
