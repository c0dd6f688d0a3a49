// Packs a source once and copies the packed bytes: packing every copy would take longer than the measurement.
#include "weights.h"

#include <cstring>
#include <fmt/format.h>

namespace nybl::bench {
namespace {
constexpr size_t kAlignment = 64, kMostCopies = 4096;
}

void require(nybl_status status, const char *what) {
    if (status != NYBL_OK)
        throw ApiError{status,
                       fmt::format("{}: {}: {}", what, nybl_status_string(status), nybl_last_error())};
}

nybl_weights_desc describe(const Source &source, std::span<const uint8_t> data, nybl_storage storage) {
    nybl_weights_desc desc{};
    desc.struct_size = sizeof desc;
    desc.format = source.format;
    desc.n = source.n;
    desc.k = source.k;
    desc.n_experts = source.experts > 1 ? source.experts : 0;
    desc.data = data.data();
    desc.data_size = data.size();
    desc.storage = storage;
    return desc;
}

WeightsHandle create_weights(nybl_context *context, const nybl_weights_desc &desc) {
    nybl_weights *weights = nullptr;
    require(nybl_weights_create(context, &desc, &weights), "nybl_weights_create");
    return WeightsHandle(weights);
}

nybl_context *Contexts::get(nybl_isa max_isa, unsigned threads) {
    ContextHandle &slot = contexts_[{max_isa, threads}];
    if (!slot) {
        nybl_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.max_isa = max_isa;
        desc.n_threads = threads;
        nybl_context *context = nullptr;
        require(nybl_context_create(&desc, &context), "nybl_context_create");
        slot.reset(context);
    }
    return slot.get();
}

nybl_context *Contexts::get_gpu(uint32_t index, unsigned threads) {
    Gpu &gpu = gpus_[index];
    ContextHandle &slot = gpu.contexts[threads];
    if (!slot) {
        nybl_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.device = NYBL_DEVICE_GPU;
        desc.device_index = index;
        desc.n_threads = threads;
        // "context: instruction set avx2, 2 threads, GPU NAME"
        desc.log = [](void *name, int, const char *message) {
            if (const char *found = std::strstr(message, "GPU ");
                found && static_cast<std::string *>(name)->empty())
                *static_cast<std::string *>(name) = found + 4;
        };
        desc.log_user = &gpu.name;
        nybl_context *context = nullptr;
        require(nybl_context_create(&desc, &context), "nybl_context_create");
        slot.reset(context);
    }
    return slot.get();
}

const std::string &Contexts::gpu_name(uint32_t index) {
    get_gpu(index, 1);
    return gpus_[index].name;
}

void WeightPool::clear() {
    handles_.clear();
    copies_.clear();
    source_.reset();
    context_ = nullptr;
    used_ = 0;
}

void WeightPool::copy_round(const std::vector<std::span<const uint8_t>> &blocks, size_t limit) {
    copies_.clear();
    used_ = 0;
    const size_t most = limit != 0 ? limit : kMostCopies;
    while (copies_.size() < most) {
        const std::span<const uint8_t> block = blocks[copies_.size() % blocks.size()];
        if (used_ + block.size() > arena_.size())
            break;
        std::memcpy(arena_.data() + used_, block.data(), block.size());
        copies_.push_back(arena_.subspan(used_, block.size()));
        used_ = std::min(arena_.size(), (used_ + block.size() + kAlignment - 1) / kAlignment * kAlignment);
    }
    if (copies_.empty())
        throw ApiError{NYBL_OUT_OF_MEMORY,
                       fmt::format("weights of {} bytes do not fit in the arena of {}: raise --arena",
                                   blocks.front().size(), arena_.size())};
}

void WeightPool::copy_packed(const Source &source, nybl_context *context, size_t limit) {
    std::vector<WeightsHandle> packed;
    std::vector<std::span<const uint8_t>> blocks;
    for (const std::span<const uint8_t> tensor : source.tensors) {
        packed.push_back(create_weights(context, describe(source, tensor, NYBL_STORAGE_PACKED)));
        const void *bytes = nullptr;
        size_t size = 0;
        require(nybl_weights_packed(packed.back().get(), &bytes, &size, &layout_id_), "nybl_weights_packed");
        blocks.emplace_back(static_cast<const uint8_t *>(bytes), size);
    }
    copy_round(blocks, limit);
}

void WeightPool::lay_out(const std::shared_ptr<const Source> &source, nybl_storage storage,
                         nybl_context *context, size_t limit) {
    if (source_ == source && storage_ == storage && limit_ == limit)
        return;
    clear();
    if (storage == NYBL_STORAGE_PACKED)
        copy_packed(*source, context, limit);
    else
        copy_round(source->tensors, limit);
    source_ = source;
    storage_ = storage;
    limit_ = limit;
}

const std::vector<std::span<const uint8_t>> &
WeightPool::originals(const std::shared_ptr<const Source> &source, size_t limit) {
    lay_out(source, NYBL_STORAGE_ORIGINAL, nullptr, limit);
    return copies_;
}

const std::vector<WeightsHandle> &WeightPool::handles(const std::shared_ptr<const Source> &source,
                                                      nybl_storage storage, nybl_context *context,
                                                      size_t limit) {
    lay_out(source, storage, context, limit);
    if (context_ == context)
        return handles_;
    handles_.clear();
    context_ = nullptr; // until all handles are there
    for (const std::span<const uint8_t> copy : copies_) {
        nybl_weights_desc desc = describe(*source, copy, storage);
        nybl_weights *weights = nullptr;
        if (storage == NYBL_STORAGE_PACKED) {
            desc.data = nullptr;
            desc.data_size = 0;
            require(nybl_weights_from_packed(context, &desc, copy.data(), copy.size(), layout_id_, &weights),
                    "nybl_weights_from_packed");
        } else {
            require(nybl_weights_create(context, &desc, &weights), "nybl_weights_create");
        }
        handles_.emplace_back(weights);
    }
    context_ = context;
    return handles_;
}

} // namespace nybl::bench
