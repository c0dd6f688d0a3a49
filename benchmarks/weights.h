// Weights as the library sees them, in so many copies that going round them leaves the last-level cache.
#pragma once

#include <map>
#include <memory>
#include <nybl/nybl.h>
#include <span>
#include <string>
#include <vector>

#include "data.h"

namespace nybl::bench {

struct DestroyContext {
    void operator()(nybl_context *context) const { nybl_context_destroy(context); }
};
struct DestroyWeights {
    void operator()(nybl_weights *weights) const { nybl_weights_destroy(weights); }
};
using ContextHandle = std::unique_ptr<nybl_context, DestroyContext>;
using WeightsHandle = std::unique_ptr<nybl_weights, DestroyWeights>;

// A failed call of the library: the status decides whether it is "not in this build" or a fault.
struct ApiError {
    nybl_status status;
    std::string text;
};
void require(nybl_status status, const char *what); // throws ApiError

nybl_weights_desc describe(const Source &source, std::span<const uint8_t> data, nybl_storage storage);
WeightsHandle create_weights(nybl_context *context, const nybl_weights_desc &desc);

// Contexts, made once per instruction set and thread count.
class Contexts {
  public:
    nybl_context *get(nybl_isa max_isa, unsigned threads);

    // On a GPU, and the name of that; throws ApiError where there is none.
    nybl_context *get_gpu(uint32_t index, unsigned threads);
    const std::string &gpu_name(uint32_t index);

  private:
    struct Gpu {
        std::string name;
        std::map<unsigned, ContextHandle> contexts; // by threads
    };
    std::map<uint32_t, Gpu> gpus_;
    std::map<std::pair<nybl_isa, unsigned>, ContextHandle> contexts_;
};

// Lays one source at a time into the arena: packed by the library, or in its original blocks.
class WeightPool {
  public:
    explicit WeightPool(std::span<uint8_t> arena) : arena_(arena) {}

    // Handles on packed or original copies, for this context; at most `limit` (0: as many as fit). Copy i
    // holds source.tensors[i % size]. Valid until the next call of either function.
    const std::vector<WeightsHandle> &handles(const std::shared_ptr<const Source> &source,
                                              nybl_storage storage, nybl_context *context, size_t limit);
    // The original blocks alone.
    const std::vector<std::span<const uint8_t>> &originals(const std::shared_ptr<const Source> &source,
                                                           size_t limit);
    // The part of the arena that the copies lie in.
    std::span<const uint8_t> used() const { return arena_.first(used_); }
    void clear();

  private:
    void lay_out(const std::shared_ptr<const Source> &source, nybl_storage storage, nybl_context *context,
                 size_t limit);
    void copy_packed(const Source &source, nybl_context *context, size_t limit);
    void copy_round(const std::vector<std::span<const uint8_t>> &blocks, size_t limit);

    std::span<uint8_t> arena_;
    size_t used_ = 0;
    uint64_t layout_id_ = 0;
    std::vector<std::span<const uint8_t>> copies_;
    std::vector<WeightsHandle> handles_;
    std::shared_ptr<const Source> source_;
    nybl_storage storage_ = NYBL_STORAGE_PACKED;
    nybl_context *context_ = nullptr;
    size_t limit_ = 0;
};

} // namespace nybl::bench
