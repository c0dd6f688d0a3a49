// nybl_matmul_id, _scratch_bytes and _part.
#include "job.h"

#include <cstring>

namespace nybl::capi {
namespace {

// Defaults and checks of the strides between slots and tokens; `shared`: one row serves all slots of a token.
nybl_status resolve_slots(void *base, nybl_format type, uint64_t columns, const nybl_matmul_id_args &args,
                          size_t token_stride, size_t slot_stride, bool shared, Check check,
                          const char *const names[3], cpu::Rows *rows) noexcept {
    const size_t element = element_bytes(type);
    const Checked row = Checked(columns) * element;
    const uint64_t slots = shared ? 1 : args.n_slots;
    size_t slot = 0, token = 0;
    if (const nybl_status status = resolve_stride(slot_stride, row, row, element, names[2], &slot);
        status != NYBL_OK)
        return status;
    if (const nybl_status status =
            resolve_stride(token_stride, Checked(slots) * slot, row, element, names[1], &token);
        status != NYBL_OK)
        return status;
    *rows = {static_cast<uint8_t *>(base), type, slots ? slots : 1, slot, token};
    const bool empty = args.n_tokens == 0 || slots == 0 || columns == 0;
    const Checked extent =
        empty ? Checked(0) : strided_bytes(args.n_tokens, token, strided_bytes(slots, slot, row));
    if (const nybl_status status = check_size(extent, names[0]); status != NYBL_OK)
        return status;
    return check == Check::ShapesOnly ? NYBL_OK : check_pointer(base, extent.value(), element, names[0]);
}

constexpr const char *kX[3] = {"args: x", "args: x_token_stride", "args: x_slot_stride"};
constexpr const char *kY[3] = {"args: y", "args: y_token_stride", "args: y_slot_stride"};

nybl_status check_ids(const cpu::Experts &experts) noexcept {
    if (experts.n_slots == 0) // of any number of tokens
        return NYBL_OK;
    for (size_t t = 0; t < experts.n_tokens; ++t)
        for (size_t s = 0; s < experts.n_slots; ++s) {
            const int64_t id = experts.id(t * experts.n_slots + s);
            if (id < -1 || id >= static_cast<int64_t>(experts.n_experts))
                return fail(NYBL_INVALID_ARGUMENT,
                            "args: ids: token %zu, slot %zu: expert %lld is not in -1 .. %zu", t, s,
                            static_cast<long long>(id), experts.n_experts - 1);
        }
    return NYBL_OK;
}

nybl_status prepare_ids(const nybl_matmul_id_args &args, size_t n_experts, Check check,
                        cpu::Experts *experts) noexcept {
    const Checked row = Checked(args.n_slots) * sizeof(int32_t);
    *experts = {};
    if (const nybl_status status = resolve_stride(args.ids_stride, row, row, sizeof(int32_t),
                                                  "args: ids_stride", &experts->ids_stride);
        status != NYBL_OK)
        return status;
    const Checked extent =
        args.n_slots == 0 ? Checked(0) : strided_bytes(args.n_tokens, experts->ids_stride, row);
    if (const nybl_status status = check_size(extent, "args: ids"); status != NYBL_OK)
        return status;
    experts->ids = reinterpret_cast<const uint8_t *>(args.ids);
    experts->n_tokens = args.n_tokens;
    experts->n_slots = args.n_slots;
    experts->n_experts = n_experts;
    experts->shared_x = args.x_slot_stride == 0;
    if (check == Check::ShapesOnly)
        return NYBL_OK;
    if (const nybl_status status = check_pointer(args.ids, extent.value(), sizeof(int32_t), "args: ids");
        status != NYBL_OK)
        return status;
    return check_ids(*experts);
}

// Rows are counted in 32 bits inside, and their quantised copies must fit 64 bits.
nybl_status check_rows(Checked rows, size_t k, size_t n_experts) noexcept {
    if (const nybl_status status = check_size(rows, "args: n_tokens * n_slots"); status != NYBL_OK)
        return status;
    if (rows.value() > INT32_MAX || n_experts > INT32_MAX)
        return fail(NYBL_UNSUPPORTED, "args: %zu slots in all and %zu experts; both must be below 2^31",
                    rows.value(), n_experts);
    return check_volume(rows, k, "args: n_tokens * n_slots * k");
}

} // namespace

nybl_status prepare_experts(const nybl_weights *w, const nybl_matmul_id_args *given, Check check,
                            Call *call) noexcept {
    if (!w)
        return null_argument("w");
    nybl_matmul_id_args args{};
    if (const nybl_status status = read_struct(given, "args", &args); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_types(args); status != NYBL_OK)
        return status;
    const cpu::Matrix &matrix = w->matrix;
    const Checked rows = Checked(args.n_tokens) * args.n_slots;
    if (const nybl_status status = check_rows(rows, matrix.k, w->n_experts); status != NYBL_OK)
        return status;
    const bool shared_x = args.x_slot_stride == 0;
    // With n = 0 or no slots nothing of x is read.
    const bool reads_x = matrix.n != 0 && rows.value() != 0;
    if (const nybl_status status = resolve_slots(const_cast<void *>(args.x), args.x_type, w->k, args,
                                                 args.x_token_stride, args.x_slot_stride, shared_x,
                                                 reads_x ? check : Check::ShapesOnly, kX, &call->job.x);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = resolve_slots(args.y, args.y_type, matrix.n, args, args.y_token_stride,
                                                 args.y_slot_stride, false, check, kY, &call->product.y);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = prepare_ids(args, w->n_experts, check, &call->experts); status != NYBL_OK)
        return status;

    call->set_product(*w, args.n_tokens, rows.value(), args.compute);
    call->job.m = shared_x ? args.n_tokens : rows.value();
    call->job.experts = &call->experts;
    return NYBL_OK;
}

} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_matmul_id(const nybl_weights *w, const nybl_matmul_id_args *args) {
    return guarded("nybl_matmul_id", [&] {
        Call call;
        const nybl_status status = prepare_experts(w, args, Check::Everything, &call);
        return status == NYBL_OK ? run_call(w->ctx, call) : status;
    });
}

nybl_status nybl_matmul_id_scratch_bytes(const nybl_weights *w, const nybl_matmul_id_args *args, uint32_t nth,
                                         size_t *bytes) {
    return guarded("nybl_matmul_id_scratch_bytes",
                   [&] { return plan_region<nybl_matmul_id_args>(prepare_experts, w, args, nth, bytes); });
}

nybl_status nybl_matmul_id_part(const nybl_weights *w, const nybl_matmul_id_args *args, uint32_t ith,
                                uint32_t nth, void *scratch, size_t scratch_size, void (*barrier)(void *user),
                                void *user) {
    return guarded("nybl_matmul_id_part", [&] {
        return join_region<nybl_matmul_id_args>(prepare_experts, w, args,
                                                {ith, nth, scratch, scratch_size, barrier, user});
    });
}
