// Rows of activations or outputs in the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::cpu {

// Row i lies at base + (i / inner) * outer_stride + (i % inner) * inner_stride: batches, or the slots of a
// token.
struct Rows {
    uint8_t *base = nullptr; // read only where it is an input
    nybl_format type = NYBL_F32;
    size_t inner = 1; // >= 1
    size_t inner_stride = 0, outer_stride = 0;

    uint8_t *row(size_t i) const noexcept {
        if (i < inner) // every row but of a batch: no division
            return base + i * inner_stride;
        return base + (i / inner) * outer_stride + (i % inner) * inner_stride;
    }
};

} // namespace nybl::cpu
