// What quantizing to blocks and quantizing to panels share: options, checks of the source, progress.
#pragma once

#include <nybl/nybl.h>

#include "base/status.h"
#include "context.h"
#include "quant/codec.h"

namespace nybl::capi {

// NULL: all defaults.
nybl_status read_options(const nybl_codec_options *given, nybl_codec_options *options) noexcept;

// The instruction set of a context, or for NULL of the machine.
nybl_isa codec_isa(const nybl_context *ctx) noexcept;

// Everything that quantizing these rows could fail on, before anything is written. *effective: the importance
// to pass on.
nybl_status check_quantize(nybl_context *ctx, const quant::Format &format, uint64_t rows, uint64_t k,
                           quant::SourceRows src, const float *importance, const float **effective) noexcept;

// Runs body(thread, item) for all items, each of `elements` numbers, and reports progress between runs of
// them; rows_done(i) is how many of all `rows` the first i items hold.
template <class Body, class RowsDone>
nybl_status for_each_with_progress(nybl_context *ctx, const nybl_codec_options &options, size_t items,
                                   size_t elements, uint64_t rows, const RowsDone &rows_done,
                                   const Body &body) {
    // A run keeps a thread busy for some milliseconds, so that reporting costs nothing.
    constexpr size_t kElementsPerRun = 256 << 10;
    const size_t per_thread = 1 + kElementsPerRun / (elements + 1);
    const size_t run = options.progress ? per_thread * threads_for(ctx, items) : items;
    for (size_t begin = 0; begin < items;) {
        const size_t end = begin + std::min(run, items - begin);
        for_each(ctx, begin, end, body);
        const uint64_t done = rows_done(end);
        if (options.progress && options.progress(options.user, done, rows) != 0)
            return fail(NYBL_CANCELLED, "cancelled by the progress callback after %llu of %llu rows",
                        static_cast<unsigned long long>(done), static_cast<unsigned long long>(rows));
        begin = end;
    }
    return NYBL_OK;
}

} // namespace nybl::capi
