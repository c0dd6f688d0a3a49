// Blocks of a product through the scalar reference, from either storage.
#include <algorithm>

#include "cpu/block.h"
#include "cpu/convert.h"
#include "cpu/reference.h"

namespace nybl::cpu {
namespace {

size_t row_bytes(const Product &product) noexcept {
    return quant::row_size(*product.w.format, product.w.k / product.w.format->block_size);
}

// The original rows of panel `panel`: where they lie, or unpacked into the workspace.
struct OriginalRows {
    const uint8_t *first;
    size_t stride, count;
};
OriginalRows original_rows(const Block &block, size_t panel, uint8_t *buffer) noexcept {
    const Matrix &w = block.product->w;
    const size_t count = std::min(kPanelRows, w.n - panel * kPanelRows);
    if (w.storage == NYBL_STORAGE_ORIGINAL)
        return {block.weights + panel * kPanelRows * w.stride, w.stride, count};
    const size_t bytes = row_bytes(*block.product);
    unpack_panel(*w.layout, w.k, count, block.weights + panel * w.stride, buffer, bytes);
    return {buffer, bytes, count};
}

// Calls dot(weight row, segment row i) for every output of the block and stores the results.
template <class Dot>
void for_each_output(const Block &block, uint8_t *buffer, const Dot &dot) noexcept {
    for (size_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
        const OriginalRows rows = original_rows(block, panel, buffer);
        for (size_t i = block.row_begin; i < block.row_end; ++i) {
            float acc[kPanelRows];
            for (size_t r = 0; r < rows.count; ++r)
                acc[r] = dot(rows.first + r * rows.stride, i);
            store_sums(block, block.output_row(i), panel * kPanelRows, rows.count, acc);
        }
    }
}

} // namespace

size_t reference_workspace_bytes(const Product &product) noexcept {
    return kPanelRows * row_bytes(product) + 4 * product.w.k;
}

void run_reference(const Block &block) noexcept {
    const Product &product = *block.product;
    for_each_output(block, block.workspace, [&](const uint8_t *w_row, size_t i) {
        return dot_reference(*product.w.format, w_row, block.row(i), product.w.k);
    });
}

void run_f32_reference(const Block &block) noexcept {
    const Product &product = *block.product;
    const Job &job = *block.job;
    uint8_t *buffer = block.workspace + 4 * product.w.k;
    auto *x = reinterpret_cast<float *>(block.workspace);
    for (size_t i = block.row_begin; i < block.row_end; ++i) {
        const size_t output = block.output_row(i);
        const size_t row = job.experts && job.experts->shared_x ? output / job.experts->n_slots : output;
        const size_t in_x = std::min(product.w.k, job.k - job.pad);
        load_row(job.x.type, job.x.row(row), 0, in_x, x);
        std::fill(x + in_x, x + product.w.k, 0.0f);
        Block one = block;
        one.row_begin = i;
        one.row_end = i + 1;
        for_each_output(one, buffer, [&](const uint8_t *w_row, size_t) {
            return dot_f32_reference(*product.w.format, w_row, x, product.w.k);
        });
    }
}

} // namespace nybl::cpu
