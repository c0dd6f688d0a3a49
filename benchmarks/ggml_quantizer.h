// ggml's encoders as the other side of comparisons: its shared library, loaded at run time where there is
// one.
#pragma once

#include <cstdint>
#include <nybl/nybl.h>
#include <string>

namespace nybl::bench {

class GgmlQuantizer {
  public:
    // From `path` (libggml-base.so, as the package ggml-python has it), or where that is empty from NYBL_GGML
    // in the environment. NULL where neither is given; throws ApiError where the library cannot be used. The
    // first call decides.
    static const GgmlQuantizer *find(const std::string &path);

    // rows x k elements into contiguous blocks; importance (k weights) may be NULL. On the calling thread.
    void quantize(nybl_format format, const float *src, const float *importance, void *dst, uint64_t rows,
                  uint64_t k) const {
        chunk_(static_cast<int>(format), src, dst, 0, static_cast<int64_t>(rows), static_cast<int64_t>(k),
               importance);
    }

  private:
    using ChunkFn = size_t (*)(int type, const float *src, void *dst, int64_t start, int64_t rows,
                               int64_t row_size, const float *importance);

    explicit GgmlQuantizer(ChunkFn chunk) : chunk_(chunk) {}

    ChunkFn chunk_;
};

} // namespace nybl::bench
