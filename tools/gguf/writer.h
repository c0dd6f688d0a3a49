// Builds the head of a GGUF file (version 3): entries and tensor descriptions. The data follows it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf.h"

namespace nybl::gguf {

class Writer {
  public:
    static constexpr uint64_t kAlignment = 32;

    // value: as Entry has it, of a string its characters alone.
    void entry(std::string_view key, ValueType type, std::span<const uint8_t> value);
    void text(std::string_view key, std::string_view value);
    // Tensors follow one another in this order, each padded to kAlignment. dims[0] runs fastest.
    void tensor(std::string_view name, const std::vector<uint64_t> &dims, uint32_t type, uint64_t bytes);

    // All but the data: padded to kAlignment where there are tensors.
    std::vector<uint8_t> head() const;

  private:
    std::vector<uint8_t> entries_, tensors_;
    uint64_t n_entries_ = 0, n_tensors_ = 0, data_bytes_ = 0;
};

constexpr uint64_t padded(uint64_t bytes) {
    return (bytes + Writer::kAlignment - 1) / Writer::kAlignment * Writer::kAlignment;
}

} // namespace nybl::gguf
