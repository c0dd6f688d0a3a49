// The bytes of a file of packed weights, as nybl-pack writes and nybl_pack_open reads them:
// docs/packed-models.md.
//
//   Header | tensor data, each at a multiple of kDataAlign | metadata | table: Record[count], then names
//
// Little-endian. The header comes last in writing, so that nothing unfinished looks like a file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nybl::pack {

constexpr char kMagic[8] = {'N', 'Y', 'B', 'L', 'P', 'A', 'C', 'K'};
constexpr uint32_t kVersion = 1;
constexpr size_t kDataAlign = 64;

struct Section {
    uint64_t offset, bytes, checksum; // XXH64 of the bytes
};

struct Header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes;
    uint64_t count; // of records
    Section metadata, table;
    uint64_t reserved[4];
    uint64_t checksum; // of the bytes before it
};
static_assert(sizeof(Header) == 120);

// Records are in ascending order of their names' bytes.
struct Record {
    Section data;
    uint64_t name_offset; // from the end of the records; ends with a zero byte
    uint64_t n, k, n_experts;
    uint64_t layout_id; // 0: original bytes
    uint32_t format, reserved;
};
static_assert(sizeof(Record) == 72);

} // namespace nybl::pack
