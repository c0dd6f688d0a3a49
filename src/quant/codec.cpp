// Row loops of the codecs, and the checks that keep a refused source from touching the destination.
#include "quant/codec.h"

#include "base/float_environment.h"
#include "base/status.h"
#include "quant/block_io.h"
#include "quant/block_kernels.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace nybl::quant {
namespace {

constexpr size_t kLargestBlock = 256;

// The last one may be a padded one.
size_t blocks_per_row(const Format &format, uint64_t k) noexcept {
    return static_cast<size_t>(k / format.block_size + (k % format.block_size != 0));
}

// Block b of a row and its importance: in place, or where K ends inside it, copies filled up with zeros. A
// group of zeros gets a zero scale and minimum, so that the groups beside it are encoded as if it were not
// there.
class SourceBlock {
  public:
    SourceBlock(const Format &format, uint64_t k, size_t b, const float *row,
                const float *importance) noexcept
        : x(row + b * format.block_size), weights(importance ? importance + b * format.block_size : nullptr) {
        const uint64_t left = k - b * format.block_size;
        if (left >= format.block_size)
            return;
        x = pad(x, left, padded_x_);
        if (weights)
            weights = pad(weights, left, padded_weights_);
    }
    SourceBlock(const SourceBlock &) = delete;
    SourceBlock &operator=(const SourceBlock &) = delete;

    const float *x, *weights;

  private:
    using Buffer = float[kLargestBlock];

    static const float *pad(const float *values, uint64_t n, Buffer &buffer) noexcept {
        std::fill(std::copy_n(values, n, buffer), std::end(buffer), 0.0f);
        return buffer;
    }

    Buffer padded_x_, padded_weights_; // filled where needed: most blocks are whole
};

size_t stride_or(size_t stride, size_t contiguous) noexcept {
    return stride ? stride : contiguous;
}

template <class Byte>
Byte *at(Byte *data, uint64_t row, size_t stride) noexcept {
    return data + row * stride;
}

const float *source_row(SourceRows src, uint64_t row, uint64_t k) noexcept {
    const auto *bytes = reinterpret_cast<const uint8_t *>(src.data);
    const size_t stride = stride_or(src.stride, static_cast<size_t>(k) * sizeof(float));
    return reinterpret_cast<const float *>(at(bytes, row, stride));
}

nybl_status check_block(const Format &format, uint64_t row, size_t block, const float *x) noexcept {
    // No scale or minimum of any format is larger than the elements, so that one comparison of bits clears
    // nearly all blocks.
    constexpr auto kLargest = std::bit_cast<int32_t>(kLargestF16);
    int32_t large = 0;
    for (size_t i = 0; i < format.block_size; ++i)
        large |= (std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF) > kLargest;
    if (!large)
        return NYBL_OK;
    for (size_t i = 0; i < format.block_size; ++i)
        if (!f32_is_finite(x[i]))
            return fail(NYBL_INVALID_DATA, "row %llu, block %llu: element %llu of the row is not finite",
                        static_cast<unsigned long long>(row), static_cast<unsigned long long>(block),
                        static_cast<unsigned long long>(block) * format.block_size + i);
    if (!format.fits(x))
        return fail(
            NYBL_INVALID_DATA, "row %llu, block %llu: its scale or minimum is beyond what f16 holds (%s)",
            static_cast<unsigned long long>(row), static_cast<unsigned long long>(block), format.name);
    return NYBL_OK;
}

void multiply(float *values, size_t n, float factor) noexcept {
    for (size_t i = 0; i < n; ++i)
        values[i] *= factor;
}

} // namespace

nybl_status row_bytes(const Format &format, uint64_t k, size_t *bytes) noexcept {
    if (k % format.block_size != 0)
        return fail(NYBL_INVALID_ARGUMENT, "K = %llu is not a multiple of %u, the block of %s",
                    static_cast<unsigned long long>(k), format.block_size, format.name);
    return padded_row_bytes(format, k, bytes);
}

nybl_status padded_row_bytes(const Format &format, uint64_t k, size_t *bytes) noexcept {
    if (k % kGroup != 0)
        return fail(NYBL_INVALID_ARGUMENT, "K = %llu is not a multiple of 32, the group of %s",
                    static_cast<unsigned long long>(k), format.name);
    const size_t blocks = blocks_per_row(format, k);
    if (blocks > (SIZE_MAX - format.row_factor_bytes) / format.block_bytes)
        return fail(NYBL_INVALID_ARGUMENT, "K = %llu: the bytes of a row of %s do not fit 64 bits",
                    static_cast<unsigned long long>(k), format.name);
    *bytes = row_size(format, blocks);
    return NYBL_OK;
}

nybl_status check_importance(uint64_t k, const float *importance, const float **effective) noexcept {
    bool any = false;
    for (uint64_t i = 0; importance && i < k; ++i) {
        if (!f32_is_finite(importance[i]) || importance[i] < 0)
            return fail(NYBL_INVALID_DATA, "importance %llu is negative or not finite",
                        static_cast<unsigned long long>(i));
        any |= importance[i] > 0;
    }
    *effective = any ? importance : nullptr;
    return NYBL_OK;
}

nybl_status check_source(const Format &format, RowRange rows, uint64_t k, SourceRows src) noexcept {
    const FloatEnvironment environment;
    for (uint64_t row = rows.begin; row < rows.end; ++row)
        for (size_t b = 0; b < blocks_per_row(format, k); ++b) {
            const SourceBlock block(format, k, b, source_row(src, row, k), nullptr);
            const nybl_status status = check_block(format, row, b, block.x);
            if (status != NYBL_OK)
                return status;
        }
    return NYBL_OK;
}

void quantize_rows(const Format &format, nybl_isa isa, nybl_level level, RowRange rows, uint64_t k,
                   SourceRows src, const float *importance, EncodedRows dst) noexcept {
    const FloatEnvironment environment;
    const BlockKernels &kernels = block_kernels(isa);
    const size_t whole = static_cast<size_t>(k / format.block_size), blocks = blocks_per_row(format, k);
    const size_t stride = stride_or(dst.stride, row_size(format, blocks));
    for (uint64_t row = rows.begin; row < rows.end; ++row) {
        const float *x = source_row(src, row, k);
        uint8_t *out = at(dst.data, row, stride);
        format.quantize(kernels, level, x, importance, out, whole);
        if (whole < blocks) {
            const SourceBlock last(format, k, whole, x, importance);
            format.quantize(kernels, level, last.x, last.weights, out + whole * format.block_bytes, 1);
        }
    }
}

void dequantize_rows(const Format &format, nybl_isa isa, RowRange rows, uint64_t k, BlockRows src, float *dst,
                     size_t dst_stride) noexcept {
    const FloatEnvironment environment;
    const size_t blocks = blocks_per_row(format, k), stride = stride_or(src.stride, row_size(format, blocks));
    const BlockKernels &kernels = block_kernels(isa);
    const DequantizeFn quick = kernels.find_dequantize ? kernels.find_dequantize(format.id) : nullptr,
                       dequantize = quick ? quick : format.dequantize;
    const size_t out_stride = stride_or(dst_stride, static_cast<size_t>(k) * sizeof(float));
    for (uint64_t row = rows.begin; row < rows.end; ++row) {
        auto *out = reinterpret_cast<float *>(at(reinterpret_cast<uint8_t *>(dst), row, out_stride));
        const uint8_t *from = at(src.data, row, stride);
        dequantize(from, out, blocks);
        if (!quick && format.row_factor_bytes && blocks)
            multiply(out, blocks * format.block_size, load<float>(from + blocks * format.block_bytes));
    }
}

nybl_status validate_rows(const Format &format, RowRange rows, uint64_t k, BlockRows src) noexcept {
    const size_t blocks = blocks_per_row(format, k), stride = stride_or(src.stride, row_size(format, blocks));
    for (uint64_t row = rows.begin; row < rows.end; ++row) {
        const char *field = "";
        const size_t bad = format.find_invalid(at(src.data, row, stride), blocks, &field);
        if (bad != blocks)
            return fail(NYBL_INVALID_DATA, "row %llu, block %llu: %s is not finite (%s)",
                        static_cast<unsigned long long>(row), static_cast<unsigned long long>(bad), field,
                        format.name);
    }
    return NYBL_OK;
}

} // namespace nybl::quant
