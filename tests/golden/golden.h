// The golden tensors of golden.bin (made by make_golden.py): "DISTRIBUTION.f32", ".imatrix", ".FORMAT",
// ".FORMAT.im" and
// ".act_q8_0" are bytes, ".FORMAT.deq" and ".FORMAT.im.deq" are one hash of the dequantised floats per row.
//
//   "NYBLGOLD"  u32 tensors  u32 bytes of a directory entry  then the entries:
//   char name[40]  u32 format (0 for F32, 0xFFFFFFFF for hashes)  u32 rows  u32 k  u32 offset  u32 bytes
//   then the data, each tensor at `offset` from the end of the directory
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace golden {

struct Tensor {
    uint32_t format = 0;
    size_t rows = 0, k = 0; // k: elements of a row
    const uint8_t *data = nullptr;
    size_t bytes = 0;

    size_t row_bytes() const { return bytes / rows; }
    const uint8_t *row(size_t r) const { return data + r * row_bytes(); }
    std::vector<float> floats() const;
    std::vector<uint64_t> hashes() const;
};

// Throws std::runtime_error for a name that is not there.
const Tensor &tensor(const std::string &name);

// The nine distributions.
const std::vector<std::string> &distributions();

// FNV-1a over the bytes of n floats, as the file's hashes are.
uint64_t hash(const float *values, size_t n);

} // namespace golden
