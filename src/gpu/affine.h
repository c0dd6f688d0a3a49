// The affine view of a weight tensor, w = scale * code - zero: codes, scales and scaled zero points as matrix
// libraries and the OpenCL kernels want them, written straight into their final layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

#include "quant/format.h"

namespace nybl::gpu {

enum class CodeType : uint8_t { S4, U4, U8, S8 };

// Bytes of a scale or a zero point.
constexpr size_t affine_param_bytes(nybl_format type) noexcept {
    return type == NYBL_F32 ? 4 : 2;
}

constexpr size_t code_bits(CodeType type) noexcept {
    return type == CodeType::S4 || type == CodeType::U4 ? 4 : 8;
}

// What the codes of a format are; false where the format has no affine view.
bool affine_code_type(nybl_format format, CodeType *type) noexcept;

// One export, resolved and checked: what the parts of a threaded export share.
struct AffinePlan {
    const quant::Format *format;
    CodeType codes;
    nybl_format param_type;
    nybl_param_layout layout;
    bool codes_k_major;
    size_t n, k;
    size_t codes_size, scales_size, zeros_size; // bytes

    size_t group_size() const noexcept { return format->group_size; }
    size_t groups() const noexcept { return k / group_size(); }
};

// Checks format, shape and layout, and computes the sizes.
nybl_status plan_affine(nybl_format format, uint64_t n, uint64_t k, nybl_format param_type,
                        nybl_param_layout layout, bool codes_k_major, AffinePlan *plan) noexcept;

struct AffineSource {
    const uint8_t *data; // of first_row
    size_t stride;       // bytes between rows
    size_t first_row = 0;

    const uint8_t *row(size_t n) const noexcept { return data + (n - first_row) * stride; }
};

struct AffineTarget {
    uint8_t *codes, *scales, *zeros; // any alignment; zeros is not used by a format without a minimum
};

// Fails with the row and block of the first parameter in rows [begin, end) that is not finite, or that
// param_type cannot hold. An export must be preceded by this over all rows: it writes nothing, the export
// then cannot fail.
nybl_status check_affine(const AffinePlan &plan, const AffineSource &source, size_t begin,
                         size_t end) noexcept;

// An export is cut into items that write disjoint bytes, so that threads may share it: tiles of this many
// rows, or columns of blocks where two rows share a byte (4-bit [K, N] codes of an odd N).
constexpr size_t kAffineTileRows = 64; // even: no byte of 4-bit codes is shared by two tiles unless N is odd
size_t affine_items(const AffinePlan &plan) noexcept;

// Exports items [begin, end). Returns the largest relative rounding error of a parameter among them.
float export_affine(const AffinePlan &plan, const AffineSource &source, const AffineTarget &target,
                    size_t begin, size_t end) noexcept;

} // namespace nybl::gpu
