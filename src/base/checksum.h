// XXH64 with seed 0: a checksum that other tools can compute too, at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nybl {

uint64_t checksum(const void *bytes, size_t size) noexcept;

} // namespace nybl
