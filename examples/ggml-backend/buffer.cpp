// Buffers of the device: see buffer.h.
#include "buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nybl::plugin {
namespace {

constexpr size_t kAlign = 64;

// In packed mode a buffer is address space: the pages behind weights are never touched, or given back once
// the weights are packed. So a tensor has an address and its bytes are held once.
struct Buffer {
    uint8_t *base = nullptr;
    size_t size = 0;
    bool owned = false;
    std::mutex mutex;
    std::unordered_map<const void *, nybl::Weights> weights;
    std::unordered_map<const void *, size_t> arrived; // bytes, of tensors that come in pieces

    ~Buffer() {
        if (owned)
            munmap(base, size);
    }
};

Buffer *ours(ggml_backend_buffer_t buffer) noexcept;

Buffer *ours(const ggml_tensor *tensor) noexcept {
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return buffer ? ours(buffer) : nullptr;
}

nybl_weights_desc describe(const ggml_tensor *tensor, const void *data) noexcept {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = static_cast<nybl_format>(tensor->type);
    desc.k = static_cast<uint64_t>(tensor->ne[0]);
    desc.n = static_cast<uint64_t>(tensor->ne[1]);
    desc.n_experts = static_cast<uint64_t>(tensor->ne[2]);
    desc.data = data;
    desc.data_size = ggml_nbytes(tensor);
    desc.storage = device()->in_place ? NYBL_STORAGE_ORIGINAL : NYBL_STORAGE_PACKED;
    return desc;
}

bool is_weights(const ggml_tensor *tensor) noexcept {
    return device()->packable[tensor->type] && tensor->ne[3] == 1 && ggml_n_dims(tensor) >= 2 &&
           ggml_is_contiguous(tensor);
}

// Makes the handle. On failure (memory, for one) the tensor stays plain bytes, which the CPU backend serves.
bool make_weights(Buffer &buffer, const ggml_tensor *tensor, const void *data) {
    nybl_weights *handle = nullptr;
    const nybl_weights_desc desc = describe(tensor, data);
    if (nybl_weights_create(device()->ctx.get(), &desc, &handle) != NYBL_OK) {
        std::fprintf(stderr, "nybl: %s stays with the CPU backend: %s\n", tensor->name, nybl_last_error());
        return false;
    }
    buffer.weights.insert_or_assign(tensor->data, nybl::Weights(handle));
    return true;
}

void give_pages_back(const ggml_tensor *tensor) noexcept {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(tensor->data) + page - 1) / page * page;
    const auto end = (reinterpret_cast<uintptr_t>(tensor->data) + ggml_nbytes(tensor)) / page * page;
    if (begin < end)
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

void unpack(Buffer &buffer, const void *data) {
    const auto found = buffer.weights.find(data);
    if (found == buffer.weights.end())
        return;
    if (!device()->in_place)
        nybl_weights_unpack(found->second.get(), const_cast<void *>(data), 0);
    buffer.weights.erase(found);
}

void set_tensor(ggml_backend_buffer_t handle, ggml_tensor *tensor, const void *data, size_t offset,
                size_t size) {
    Buffer &buffer = *ours(handle);
    const std::lock_guard lock(buffer.mutex);
    const size_t bytes = ggml_nbytes(tensor);
    const bool pack = !device()->in_place && handle->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE &&
                      !tensor->view_src && is_weights(tensor);
    if (pack && offset == 0 && size == bytes && make_weights(buffer, tensor, data))
        return;
    unpack(buffer, tensor->data);
    std::memcpy(static_cast<uint8_t *>(tensor->data) + offset, data, size);
    if (!pack)
        return;
    size_t &arrived = buffer.arrived[tensor->data];
    arrived = offset == arrived ? offset + size : 0; // pieces come in order, or the tensor stays plain bytes
    if (arrived == bytes && make_weights(buffer, tensor, tensor->data))
        give_pages_back(tensor);
}

// Packed weights that are only read stay packed.
void get_tensor(ggml_backend_buffer_t handle, const ggml_tensor *tensor, void *data, size_t offset,
                size_t size) {
    Buffer &buffer = *ours(handle);
    const std::lock_guard lock(buffer.mutex);
    const ggml_tensor *root = tensor->view_src ? tensor->view_src : tensor;
    const auto found = buffer.weights.find(root->data);
    const auto *bytes = static_cast<const uint8_t *>(tensor->data);
    std::vector<uint8_t> unpacked;
    if (found != buffer.weights.end() && !device()->in_place) {
        unpacked.resize(ggml_nbytes(root));
        nybl_weights_unpack(found->second.get(), unpacked.data(), 0);
        bytes = unpacked.data() + (bytes - static_cast<const uint8_t *>(root->data));
    }
    std::memcpy(data, bytes + offset, size);
}

void memset_tensor(ggml_backend_buffer_t handle, ggml_tensor *tensor, uint8_t value, size_t offset,
                   size_t size) {
    Buffer &buffer = *ours(handle);
    const std::lock_guard lock(buffer.mutex);
    unpack(buffer, tensor->data);
    std::memset(static_cast<uint8_t *>(tensor->data) + offset, value, size);
}

bool copy_tensor(ggml_backend_buffer_t handle, const ggml_tensor *src, ggml_tensor *dst) {
    if (!ggml_backend_buffer_is_host(src->buffer))
        return false;
    set_tensor(handle, dst, src->data, 0, ggml_nbytes(src));
    return true;
}

void clear(ggml_backend_buffer_t handle, uint8_t value) {
    Buffer &buffer = *ours(handle);
    const std::lock_guard lock(buffer.mutex);
    buffer.weights.clear();
    buffer.arrived.clear();
    std::memset(buffer.base, value, buffer.size);
}

void *get_base(ggml_backend_buffer_t buffer) {
    return ours(buffer)->base;
}

void free_buffer(ggml_backend_buffer_t buffer) {
    delete static_cast<Buffer *>(buffer->context);
}

ggml_backend_buffer_i buffer_functions() noexcept {
    ggml_backend_buffer_i functions{};
    functions.free_buffer = free_buffer;
    functions.get_base = get_base;
    functions.memset_tensor = memset_tensor;
    functions.set_tensor = set_tensor;
    functions.get_tensor = get_tensor;
    functions.cpy_tensor = copy_tensor;
    functions.clear = clear;
    return functions;
}

Buffer *ours(ggml_backend_buffer_t buffer) noexcept {
    return buffer->iface.free_buffer == free_buffer ? static_cast<Buffer *>(buffer->context) : nullptr;
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    void *base =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nullptr;
    auto *buffer = new Buffer;
    buffer->base = static_cast<uint8_t *>(base);
    buffer->size = size;
    buffer->owned = true;
    return ggml_backend_buffer_init(type, buffer_functions(), buffer, size);
}

} // namespace

ggml_backend_buffer_type_t buffer_type() {
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made{};
        made.iface.get_name = [](ggml_backend_buffer_type_t) { return "NYBL"; };
        made.iface.alloc_buffer = allocate;
        made.iface.get_alignment = [](ggml_backend_buffer_type_t) { return kAlign; };
        made.iface.is_host = [](ggml_backend_buffer_type_t) { return device()->in_place; };
        made.device = device_handle();
        return made;
    }();
    return &type;
}

ggml_backend_buffer_t buffer_over(void *base, size_t size) {
    auto *buffer = new Buffer;
    buffer->base = static_cast<uint8_t *>(base);
    buffer->size = size;
    return ggml_backend_buffer_init(buffer_type(), buffer_functions(), buffer, size);
}

bool is_our_weights(const ggml_tensor *tensor) noexcept {
    return !tensor->view_src && tensor->buffer && tensor->buffer->buft == buffer_type() &&
           tensor->buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE;
}

bool may_be_packed(const ggml_tensor *tensor) noexcept {
    const ggml_tensor *root = tensor->view_src ? tensor->view_src : tensor;
    return root->buffer && root->buffer->buft == buffer_type() && !device()->in_place &&
           root->buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE && device()->packable[root->type];
}

const nybl_weights *find_weights(const ggml_tensor *tensor) {
    Buffer *buffer = tensor->view_src ? nullptr : ours(tensor);
    if (!buffer || !device()->packable[tensor->type])
        return nullptr;
    const std::lock_guard lock(buffer->mutex);
    const auto found = buffer->weights.find(tensor->data);
    if (found != buffer->weights.end())
        return found->second.get();
    // In place a handle is only an address and a shape: made when it is first wanted.
    if (!device()->in_place || tensor->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE ||
        !is_weights(tensor) || !make_weights(*buffer, tensor, tensor->data))
        return nullptr;
    return buffer->weights.at(tensor->data).get();
}

void restore(const ggml_tensor *tensor) {
    if (!may_be_packed(tensor))
        return;
    const ggml_tensor *root = tensor->view_src ? tensor->view_src : tensor;
    Buffer *buffer = ours(root);
    const std::lock_guard lock(buffer->mutex);
    unpack(*buffer, root->data);
}

} // namespace nybl::plugin
