// From a strategy to the functions that run it.
#include "cpu/block.h"

namespace nybl::cpu {

size_t block_workspace_bytes(const Product &product) noexcept {
    return reference_workspace_bytes(product);
}

size_t rows_per_block(const Product &, Strategy, size_t rows) noexcept {
    return rows;
}

void run_block(const Block &block, Strategy strategy) noexcept {
    if (strategy == Strategy::F32)
        run_f32_reference(block);
    else
        run_reference(block);
}

} // namespace nybl::cpu
