// A counting sort of rows by expert, straight into mapped device buffers.
#include "gpu/tiles.h"

#include <cstring>

#include "base/status.h"

namespace nybl::gpu {
namespace {

// A buffer mapped for writing, for the life of an object.
class Mapped {
  public:
    Mapped(Device &device, const Buffer &buffer, size_t bytes) noexcept : device_(device), mem_(buffer.mem) {
        data_ = static_cast<cl_uint *>(device.cl.EnqueueMapBuffer(device.queue, mem_, CL_TRUE,
                                                                  CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes, 0,
                                                                  nullptr, nullptr, &error_));
    }
    ~Mapped() {
        if (error_ == CL_SUCCESS)
            device_.cl.EnqueueUnmapMemObject(device_.queue, mem_, data_, 0, nullptr, nullptr);
    }
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    cl_int error() const noexcept { return error_; }
    cl_uint *data() const noexcept { return data_; }

  private:
    Device &device_;
    cl_mem mem_;
    cl_int error_ = CL_SUCCESS;
    cl_uint *data_;
};

// Rows of each expert, in device.counts; returns the number of rows that have one.
size_t count_rows(const cpu::Experts &experts, uint32_t *counts) noexcept {
    std::memset(counts, 0, experts.n_experts * sizeof *counts);
    size_t rows = 0;
    for (size_t row = 0; row < experts.n_tokens * experts.n_slots; ++row)
        if (const int32_t id = experts.id(row); id >= 0) {
            ++counts[id];
            ++rows;
        }
    return rows;
}

// Turns counts into the first place of each expert; with `out`, also writes its tiles.
size_t cut_tiles(size_t n_experts, size_t tile_tokens, uint32_t *counts, cl_uint *out) noexcept {
    size_t tiles = 0;
    uint32_t first = 0;
    for (size_t expert = 0; expert < n_experts; ++expert) {
        const uint32_t count = counts[expert];
        for (uint32_t at = 0; at < count; at += static_cast<uint32_t>(tile_tokens), ++tiles) {
            if (!out)
                continue;
            const uint32_t left = count - at;
            const cl_uint tile[4] = {static_cast<cl_uint>(expert), first + at,
                                     left < tile_tokens ? left : static_cast<cl_uint>(tile_tokens), 0};
            std::memcpy(out + 4 * tiles, tile, sizeof tile);
        }
        if (out)
            counts[expert] = first;
        first += count;
    }
    return tiles;
}

void write_map(const cpu::Experts &experts, uint32_t *next, cl_uint *out) noexcept {
    for (size_t row = 0; row < experts.n_tokens * experts.n_slots; ++row)
        if (const int32_t id = experts.id(row); id >= 0) {
            const uint32_t at = next[id]++;
            out[2 * at] = static_cast<cl_uint>(experts.shared_x ? row / experts.n_slots : row);
            out[2 * at + 1] = static_cast<cl_uint>(row);
        }
}

} // namespace

nybl_status write_tiles(Device &device, const cpu::Experts &experts, size_t tile_tokens,
                        Tiles *tiles) noexcept {
    uint32_t *counts = nullptr;
    if (const nybl_status status = device.expert_counts(experts.n_experts, &counts); status != NYBL_OK)
        return status;
    const size_t rows = count_rows(experts, counts);
    *tiles = {cut_tiles(experts.n_experts, tile_tokens, counts, nullptr),
              rows != experts.n_tokens * experts.n_slots};
    if (tiles->count == 0)
        return NYBL_OK;
    Scratch &scratch = device.scratch;
    const size_t tile_bytes = tiles->count * 4 * sizeof(cl_uint), map_bytes = rows * 2 * sizeof(cl_uint);
    if (const nybl_status status = device.grow_buffer(tile_bytes, "tiles of experts", &scratch.tiles);
        status != NYBL_OK)
        return status;
    if (const nybl_status status = device.grow_buffer(map_bytes, "rows of experts", &scratch.map);
        status != NYBL_OK)
        return status;
    const Mapped tile_list(device, scratch.tiles, tile_bytes), map(device, scratch.map, map_bytes);
    if (tile_list.error() != CL_SUCCESS || map.error() != CL_SUCCESS)
        return fail_opencl(tile_list.error() != CL_SUCCESS ? tile_list.error() : map.error(),
                           "mapping tiles");
    cut_tiles(experts.n_experts, tile_tokens, counts, tile_list.data());
    write_map(experts, counts, map.data());
    return NYBL_OK;
}

} // namespace nybl::gpu
