// Codecs over rows with strides: what the C API's quantize, dequantize and validate do between their argument
// checks.
//
// Rows are [begin, end) of a larger job, so that the caller may split it over threads and report progress;
// the rows in texts count from the start of the job. Strides are bytes (0: contiguous). Every function runs
// under default floating-point modes, allocates nothing and gives a status with a sentence (base/status.h).
#pragma once

#include "quant/format.h"

namespace nybl::quant {

// K must be a multiple of the block: an INVALID_ARGUMENT that names the multiple. Bytes of a row in *bytes.
nybl_status row_bytes(const Format &format, uint64_t k, size_t *bytes) noexcept;

// As row_bytes for a K that only has to be a multiple of 32: a last block that K does not fill counts whole.
nybl_status padded_row_bytes(const Format &format, uint64_t k, size_t *bytes) noexcept;

struct SourceRows {
    const float *data;
    size_t stride;
};
struct EncodedRows {
    uint8_t *data;
    size_t stride;
};
struct BlockRows {
    const uint8_t *data;
    size_t stride;
};
struct RowRange {
    uint64_t begin, end;
};

// Importance of one row of k elements: INVALID_DATA for a negative or non-finite weight. *effective is
// `importance`, or NULL where all of it is zero; pass that to the functions below.
nybl_status check_importance(uint64_t k, const float *importance, const float **effective) noexcept;

// Everything that quantize_rows could fail on: NaN or Inf in the source, a scale or minimum beyond the
// format. Run it over all rows first, so that a refused source leaves the destination untouched.
nybl_status check_source(const Format &format, RowRange rows, uint64_t k, SourceRows src) noexcept;

// Encodes checked rows. Where K ends inside a block (padded_row_bytes) its rest is encoded as zeros, of which
// the fit of the others sees nothing. `isa` is what the machine has: the bytes do not depend on it.
void quantize_rows(const Format &format, nybl_isa isa, nybl_level level, RowRange rows, uint64_t k,
                   SourceRows src, const float *importance, EncodedRows dst) noexcept;

void dequantize_rows(const Format &format, nybl_isa isa, RowRange rows, uint64_t k, BlockRows src, float *dst,
                     size_t dst_stride) noexcept;

// INVALID_DATA with row, block and field of the first block that is not valid.
nybl_status validate_rows(const Format &format, RowRange rows, uint64_t k, BlockRows src) noexcept;

} // namespace nybl::quant
