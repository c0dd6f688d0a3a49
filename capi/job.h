// From checked arguments to a cpu::Job, and running one on a context's threads or inside a host's parallel
// region.
#pragma once

#include <nybl/nybl.h>

#include "checks.h"
#include "cpu/matmul.h"
#include "dispatch/choose.h"
#include "weights.h"

namespace nybl::capi {

// What there is to do, once arguments are known to be right.
enum class Work {
    Nothing, // no output elements
    Fill,    // k is 0: zeros, or the bias
    Product,
};

// One product, ready to run. The job points into this object: it stays where it is.
struct Call {
    Work work = Work::Nothing;
    const nybl_weights *weights = nullptr;
    nybl_compute compute = NYBL_COMPUTE_DEFAULT;
    size_t output_rows = 0;
    uint32_t max_threads = 0; // 0: the context's
    cpu::Job job;
    cpu::Product product;
    cpu::Experts experts;

    // The product of these weights for `tokens` rows of activations (what dispatch counts) and `rows` rows of
    // outputs; the rows themselves are left to the caller.
    void set_product(const nybl_weights &w, size_t tokens, size_t rows, nybl_compute mode) noexcept;

    Call() = default;
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
};

// Planning needs shapes only: pointers may be NULL, and ids are not read.
enum class Check { Everything, ShapesOnly };

nybl_status prepare_matmul(const nybl_weights *w, const nybl_matmul_args *given, Check check,
                           Call *call) noexcept;
nybl_status prepare_experts(const nybl_weights *w, const nybl_matmul_id_args *given, Check check,
                            Call *call) noexcept;

nybl_status check_compute(nybl_compute compute) noexcept;

// What x and y are made of, and the arithmetic: the same members in every kind of arguments.
template <class Args>
nybl_status check_types(const Args &args) noexcept {
    if (const nybl_status status = check_element_type(args.x_type, "args: x_type"); status != NYBL_OK)
        return status;
    if (const nybl_status status = check_element_type(args.y_type, "args: y_type"); status != NYBL_OK)
        return status;
    return check_compute(args.compute);
}

// What dispatch decides from.
dispatch::Shape describe_shape(const nybl_weights &w, size_t m, nybl_compute compute) noexcept;

// Runs a call on the context's device, or on its threads.
nybl_status run_call(nybl_context *ctx, const Call &call) noexcept;

// The two steps of it: how many threads pay, at most `limit` of them (0: all), and running with scratch for
// those.
uint32_t useful_threads(const nybl_context *ctx, const cpu::Job &job, uint32_t limit) noexcept;
void run_job(nybl_context *ctx, const cpu::Job &job, uint32_t nth, void *scratch) noexcept;

// Rows of a product without terms: its share for thread ith of nth.
void fill_rows(const cpu::Product &product, size_t rows, uint32_t ith, uint32_t nth) noexcept;
void fill_jobs(const cpu::Job *jobs, size_t count, size_t rows, uint32_t ith, uint32_t nth) noexcept;

// Running inside a host's parallel region.
struct Region {
    uint32_t ith, nth;
    void *scratch;
    size_t scratch_size;
    void (*barrier)(void *user);
    void *user;
};
nybl_status check_threads(uint32_t ith, uint32_t nth) noexcept;
size_t region_scratch_bytes(const Call &call, uint32_t nth) noexcept;
nybl_status run_in_region(const Call &call, const Region &region);
// Jobs on the same activations, with the same barriers for all of them.
size_t region_scratch_bytes(const cpu::Job *jobs, size_t count, uint32_t nth) noexcept;
nybl_status run_in_region(const cpu::Job *jobs, size_t count, size_t output_rows, const Region &region);

// The public functions for regions are the same for every kind of arguments but for how a call is prepared.
template <class Args>
using Prepare = nybl_status (*)(const nybl_weights *, const Args *, Check, Call *) noexcept;

template <class Args>
nybl_status plan_region(Prepare<Args> prepare, const nybl_weights *w, const Args *args, uint32_t nth,
                        size_t *bytes) noexcept {
    if (!bytes)
        return null_argument("bytes");
    if (const nybl_status status = check_threads(0, nth); status != NYBL_OK)
        return status;
    Call call;
    const nybl_status status = prepare(w, args, Check::ShapesOnly, &call);
    if (status == NYBL_OK)
        *bytes = region_scratch_bytes(call, nth);
    return status;
}

template <class Args>
nybl_status join_region(Prepare<Args> prepare, const nybl_weights *w, const Args *args,
                        const Region &region) {
    if (const nybl_status status = check_threads(region.ith, region.nth); status != NYBL_OK)
        return status;
    Call call;
    const nybl_status status = prepare(w, args, Check::Everything, &call);
    return status == NYBL_OK ? run_in_region(call, region) : status;
}

} // namespace nybl::capi
