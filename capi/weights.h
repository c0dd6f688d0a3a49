// The weights handle, and the checks that its functions share.
#pragma once

#include <algorithm>
#include <atomic>
#include <nybl/nybl_pack.h>

#include "base/checked.h"
#include "context.h"
#include "cpu/matmul.h"
#include "cpu/panel.h"

struct nybl_weights {
    nybl_context *ctx; // held
    nybl::cpu::Matrix matrix;
    size_t n_experts;
    size_t k;          // columns of x; matrix.k counts the padding of a last super-block too
    size_t row_bytes;  // of one original row
    void *owned;       // packed bytes that this handle frees; NULL: the caller's bytes are used
    size_t data_bytes; // packed: bytes behind matrix.data
    nybl::gpu::DeviceWeights *device_weights; // on the context's device; NULL: the CPU serves them
    nybl_status device_status;                // why not
    nybl_pack *pack;                          // the file that data lies in, held; NULL: none
};

namespace nybl::capi {

// A weights description with every default filled in and every size checked.
struct WeightsShape {
    const quant::Format *format = nullptr;
    const cpu::PanelLayout *layout = nullptr; // NULL for NYBL_STORAGE_ORIGINAL
    nybl_weights_desc desc{};                 // n_experts >= 1
    size_t padded_k = 0;                      // desc.k up to a whole block
    size_t row_bytes = 0;
    size_t panel_bytes = 0, packed_bytes = 0;

    size_t panels_per_expert() const noexcept { return cpu::panel_count(desc.n); }
    size_t panels() const noexcept { return panels_per_expert() * desc.n_experts; }
    size_t rows() const noexcept { return desc.n * desc.n_experts; }
};

// Whether k may end inside a block: any multiple of 32 then, in packed weights.
enum class LastBlock : uint8_t { Whole, Padded };
// Everything that does not depend on data: format, k, sizes, storage.
nybl_status check_weights_desc(const nybl_weights_desc *given, LastBlock last, WeightsShape *shape) noexcept;
// data, data_size and the two strides of original blocks.
nybl_status check_weights_data(WeightsShape *shape) noexcept;

// A handle on `data` (panels or original rows); owned: the handle frees it. Takes nothing over on failure.
nybl_status make_weights(nybl_context *ctx, const WeightsShape &shape, const void *data, void *owned,
                         nybl_weights **w) noexcept;

// Names a format's packed bytes in this version; see nybl_weights_packed.
uint64_t packed_layout_id(nybl_format format) noexcept;

// Gives up a weights handle's hold on the file that its data lies in.
void release(nybl_pack *pack) noexcept;

// Packed bytes that are freed unless a handle takes them.
class PackedMemory {
  public:
    PackedMemory(nybl_context *ctx, size_t bytes) noexcept : ctx_(ctx), bytes_(bytes) {}
    ~PackedMemory() { ctx_->memory.deallocate(data_, bytes_); }
    PackedMemory(const PackedMemory &) = delete;
    PackedMemory &operator=(const PackedMemory &) = delete;

    nybl_status allocate() noexcept {
        return ctx_->memory.allocate(bytes_, cpu::kPanelAlign, "packed weights", &data_);
    }
    uint8_t *data() const noexcept { return static_cast<uint8_t *>(data_); }
    nybl_status hand_over(const WeightsShape &shape, nybl_weights **w) noexcept {
        const nybl_status status = make_weights(ctx_, shape, data_, data_, w);
        if (status == NYBL_OK)
            data_ = nullptr;
        return status;
    }

  private:
    nybl_context *ctx_;
    size_t bytes_;
    void *data_ = nullptr;
};

// Panels of all experts as one range: its expert, first row and number of rows.
struct PanelPlace {
    size_t expert, row, rows;
};
constexpr PanelPlace place_panel(size_t panel, size_t panels_per_expert, size_t n) noexcept {
    const size_t row = panel % panels_per_expert * cpu::kPanelRows;
    return {panel / panels_per_expert, row, n - row < cpu::kPanelRows ? n - row : cpu::kPanelRows};
}

// Fails with "expert 2, row 3, block 17: scale d is not finite" for the first bad block of a row that has
// one.
nybl_status fail_invalid_block(const WeightsShape &shape, size_t expert, size_t row,
                               const uint8_t *row_data) noexcept;

} // namespace nybl::capi
