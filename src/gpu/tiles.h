// Experts: the rows of a call, sorted by expert and cut into tiles, in device memory.
#pragma once

#include "gpu/device.h"

namespace nybl::gpu {

struct Tiles {
    size_t count;
    bool has_gaps; // some slots have no expert: their rows must be zero
};

// Writes scratch.tiles and scratch.map for tiles of at most `tile_tokens` rows.
nybl_status write_tiles(Device &device, const cpu::Experts &experts, size_t tile_tokens,
                        Tiles *tiles) noexcept;

} // namespace nybl::gpu
