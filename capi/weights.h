// The weights handle, and the checks that its functions share.
#pragma once

#include <algorithm>
#include <atomic>
#include <nybl/nybl.h>

#include "base/checked.h"
#include "context.h"
#include "cpu/matmul.h"
#include "cpu/panel.h"

struct nybl_weights {
    nybl_context *ctx; // held
    nybl::cpu::Matrix matrix;
    size_t n_experts;
    size_t row_bytes;  // of one original row
    void *owned;       // packed bytes that this handle frees; NULL: the caller's bytes are used
    size_t data_bytes; // packed: bytes behind matrix.data
};

namespace nybl::capi {

// A weights description with every default filled in and every size checked.
struct WeightsShape {
    const quant::Format *format = nullptr;
    const cpu::PanelLayout *layout = nullptr; // NULL for NYBL_STORAGE_ORIGINAL
    nybl_weights_desc desc{};                 // n_experts >= 1
    size_t row_bytes = 0;
    size_t panel_bytes = 0, packed_bytes = 0;

    size_t panels_per_expert() const noexcept { return cpu::panel_count(desc.n); }
    size_t panels() const noexcept { return panels_per_expert() * desc.n_experts; }
    size_t rows() const noexcept { return desc.n * desc.n_experts; }
};

// Everything that does not depend on data: format, k, sizes, storage.
nybl_status check_weights_desc(const nybl_weights_desc *given, WeightsShape *shape) noexcept;
// data, data_size and the two strides of original blocks.
nybl_status check_weights_data(WeightsShape *shape) noexcept;

// A handle on `data` (panels or original rows); owned: the handle frees it. Takes nothing over on failure.
nybl_status make_weights(nybl_context *ctx, const WeightsShape &shape, const void *data, void *owned,
                         nybl_weights **w) noexcept;

// Panels of all experts as one range: its expert, first row and number of rows.
struct PanelPlace {
    size_t expert, row, rows;
};
constexpr PanelPlace place_panel(size_t panel, size_t panels_per_expert, size_t n) noexcept {
    const size_t row = panel % panels_per_expert * cpu::kPanelRows;
    return {panel / panels_per_expert, row, n - row < cpu::kPanelRows ? n - row : cpu::kPanelRows};
}

// Runs body(thread, panel) for every panel: a contiguous range on each of the context's threads.
inline uint32_t panel_threads(const nybl_context *ctx, size_t panels) noexcept {
    return static_cast<uint32_t>(std::min<size_t>(ctx->pool.n_threads(), panels));
}
template <class Body>
void for_each_panel(nybl_context *ctx, size_t panels, const Body &body) noexcept {
    const uint32_t threads = panel_threads(ctx, panels);
    parallel_for(ctx, threads, [&](uint32_t thread) {
        const Range range = share(panels, thread, threads);
        for (size_t panel = range.begin; panel < range.end; ++panel)
            body(thread, panel);
    });
}

// Where the first invalid block is, over rows in ascending order.
class FirstInvalid {
  public:
    void report(size_t row) noexcept { // from any thread
        size_t seen = row_.load(std::memory_order_relaxed);
        while (row < seen && !row_.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
        }
    }
    bool found() const noexcept { return row_.load(std::memory_order_relaxed) != kNone; }
    size_t row() const noexcept { return row_.load(std::memory_order_relaxed); }

  private:
    static constexpr size_t kNone = SIZE_MAX;
    std::atomic<size_t> row_{kNone};
};

// Fails with "expert 2, row 3, block 17: scale d is not finite" for the first bad block of a row that has
// one.
nybl_status fail_invalid_block(const WeightsShape &shape, size_t expert, size_t row,
                               const uint8_t *row_data) noexcept;

} // namespace nybl::capi
