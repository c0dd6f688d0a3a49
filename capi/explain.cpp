// nybl_matmul_explain.
#include <cstring>

#include "gpu_path.h"

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_matmul_explain(const nybl_weights *w, uint64_t m, nybl_kernel_info *info) {
    if (!w)
        return null_argument("w");
    if (const nybl_status status = check_struct(info, sizeof *info, "info"); status != NYBL_OK)
        return status;
    const dispatch::Choice choice = dispatch::choose(describe_shape(*w, m, NYBL_COMPUTE_DEFAULT));
    nybl_kernel_info value{};
    static_assert(sizeof value.name == sizeof choice.name && sizeof value.reason == sizeof choice.reason);
    std::memcpy(value.name, choice.name, sizeof value.name);
    std::memcpy(value.reason, choice.reason, sizeof value.reason);
    value.isa = choice.kernel.isa;
    value.mr = choice.kernel.mr;
    value.nr = choice.kernel.nr;
    value.device = NYBL_DEVICE_CPU;
    value.storage = w->matrix.storage;
    const dispatch::GpuChoice gpu_choice = choose_gpu_kernel(*w, m, NYBL_COMPUTE_DEFAULT, NYBL_F32);
    static_assert(sizeof value.name == sizeof gpu_choice.name &&
                  sizeof value.reason == sizeof gpu_choice.reason);
    if (gpu_choice.reason[0] != '\0') // on a GPU context, also where the CPU has to serve
        std::memcpy(value.reason, gpu_choice.reason, sizeof value.reason);
    if (gpu_choice.served) {
        std::memcpy(value.name, gpu_choice.name, sizeof value.name);
        value.device = NYBL_DEVICE_GPU;
        value.mr = gpu_choice.tile_rows;
        value.nr = cpu::kPanelRows;
    }
    write_struct(value, info);
    return NYBL_OK;
}
