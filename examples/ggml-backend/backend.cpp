// Graphs: products of the library run as custom operations among the CPU backend's own, on its threads.
//
// An engine's graph alternates products with small operations. A device that took the products alone would
// hand the graph over twice per product, and its threads would wait where the host's spin. So this one takes
// whole graphs: for the time of a computation the nodes that the library serves are custom operations, which
// the CPU backend runs in its own parallel region, and every other node is the CPU backend's as before.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "buffer.h"

namespace nybl::plugin {
namespace {

constexpr int kDefaultThreads = 4; // the CPU backend's, until the host says another number
constexpr size_t kMaxTogether = 8; // products on the same activations that run as one

// Meets all threads of a region. They arrive within microseconds of each other, so waiting spins at first.
class Barrier {
  public:
    void wait(uint32_t nth) noexcept {
        const uint32_t generation = generation_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == nth) {
            arrived_.store(0, std::memory_order_relaxed);
            generation_.store(generation + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins)
            if (spins < kSpins)
                __builtin_ia32_pause();
            else
                std::this_thread::yield();
    }

  private:
    static constexpr int kSpins = 4000;
    alignas(64) std::atomic<uint32_t> arrived_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
};

// A range of bytes that a node reads or writes.
struct Range {
    const uint8_t *begin, *end;

    explicit Range(const ggml_tensor *tensor) noexcept
        : begin(static_cast<const uint8_t *>(tensor->data)), end(begin + ggml_nbytes(tensor)) {}
    bool overlaps(const Range &other) const noexcept { return begin < other.end && other.begin < end; }
};

struct Backend;

// Products that run as one custom operation, at the place of the first.
struct Group {
    Backend *backend;
    size_t count = 0;
    ggml_tensor *nodes[kMaxTogether];
    const nybl_weights *weights[kMaxTogether];
    nybl_matmul_args args[kMaxTogether];
    nybl_matmul_id_args experts; // of a MUL_MAT_ID, which runs alone

    bool is_experts() const noexcept { return nodes[0]->src[2] != nullptr; }
};

struct Saved {
    ggml_tensor *node;
    ggml_op op;
    int32_t params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    void *extra;
};

struct Backend {
    ggml_backend_t cpu;
    int n_threads = kDefaultThreads;
    Barrier barrier;
    std::vector<std::unique_ptr<Group>> groups;
    size_t used_groups = 0;
    std::vector<Saved> saved;
    std::vector<uint8_t> scratch;
    std::mutex failure_mutex;
    std::string failure;
    int32_t custom_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
};

bool is_empty(ggml_op op) noexcept {
    return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW || op == GGML_OP_PERMUTE ||
           op == GGML_OP_TRANSPOSE;
}

nybl_matmul_args describe_matmul(const ggml_tensor *node) noexcept {
    const ggml_tensor *x = node->src[1];
    auto args = nybl::make<nybl_matmul_args>();
    args.m = static_cast<uint64_t>(x->ne[1]);
    args.batch = static_cast<uint64_t>(x->ne[2] * x->ne[3]);
    args.x = x->data;
    args.x_stride = x->nb[1];
    args.x_batch_stride = x->nb[2];
    args.y = node->data;
    args.y_stride = node->nb[1];
    args.y_batch_stride = node->nb[2];
    return args;
}

nybl_matmul_id_args describe_experts(const ggml_tensor *node) noexcept {
    const ggml_tensor *x = node->src[1], *ids = node->src[2];
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = static_cast<uint64_t>(ids->ne[1]);
    args.n_slots = static_cast<uint64_t>(ids->ne[0]);
    args.ids = static_cast<const int32_t *>(ids->data);
    args.ids_stride = ids->nb[1];
    args.x = x->data;
    args.x_token_stride = x->nb[2];
    args.x_slot_stride = x->ne[1] == 1 ? 0 : x->nb[1];
    args.y = node->data;
    args.y_token_stride = node->nb[2];
    args.y_slot_stride = node->nb[1];
    return args;
}

// The custom operation, in every thread of the CPU backend.
void run_group(ggml_tensor *node, int ith, int nth, void *) {
    Group &group = *static_cast<Group *>(node->extra);
    Backend &backend = *group.backend;
    struct Meeting {
        Barrier &barrier;
        uint32_t nth;
    } meeting{backend.barrier, static_cast<uint32_t>(nth)};
    const auto wait = [](void *user) {
        auto &here = *static_cast<Meeting *>(user);
        here.barrier.wait(here.nth);
    };
    const auto i = static_cast<uint32_t>(ith);
    void *scratch = backend.scratch.data();
    const size_t size = backend.scratch.size();
    const nybl_status status =
        group.is_experts()
            ? nybl_matmul_id_part(group.weights[0], &group.experts, i, meeting.nth, scratch, size, wait,
                                  &meeting)
            : nybl_matmul_multi_part(static_cast<uint32_t>(group.count), group.weights, group.args, i,
                                     meeting.nth, scratch, size, wait, &meeting);
    if (status == NYBL_OK || ith != 0)
        return;
    const std::lock_guard lock(backend.failure_mutex);
    backend.failure = std::string(group.nodes[0]->name) + ": " + nybl_last_error();
}

// What the nodes since the start of a group have touched: a product joins it only if running it that early
// writes nothing which they still need.
class OpenGroup {
  public:
    void start(Group *group) {
        group_ = group;
        touched_.clear();
        touch(group->nodes[0]);
    }
    void pass(const ggml_tensor *node) {
        if (!group_)
            return;
        if (touched_.size() > kMaxTouched)
            group_ = nullptr;
        else
            touch(node);
    }
    bool can_join(const ggml_tensor *node) const noexcept {
        if (!group_ || group_->is_experts() || node->src[2] || group_->count == kMaxTogether ||
            group_->nodes[0]->src[1] != node->src[1])
            return false;
        const Range y(node);
        return std::none_of(touched_.begin(), touched_.end(), [&](const Range &r) { return r.overlaps(y); });
    }
    Group *group() const noexcept { return group_; }
    void touch(const ggml_tensor *node) {
        touched_.emplace_back(node);
        for (const ggml_tensor *src : node->src)
            if (src && src->data)
                touched_.emplace_back(src);
    }

  private:
    static constexpr size_t kMaxTouched = 64;
    Group *group_ = nullptr;
    std::vector<Range> touched_;
};

void replace(Backend &backend, ggml_tensor *node, Group *group) {
    Saved saved{node, node->op, {}, node->extra};
    std::memcpy(saved.params, node->op_params, sizeof saved.params);
    backend.saved.push_back(saved);
    node->op = group ? GGML_OP_CUSTOM : GGML_OP_NONE;
    if (group) {
        std::memcpy(node->op_params, backend.custom_params, sizeof backend.custom_params);
        node->extra = group;
    }
}

void restore_nodes(Backend &backend) noexcept {
    for (const Saved &saved : backend.saved) {
        saved.node->op = saved.op;
        std::memcpy(saved.node->op_params, saved.params, sizeof saved.params);
        saved.node->extra = saved.extra;
    }
    backend.saved.clear();
}

void add_to_group(Group &group, ggml_tensor *node, const nybl_weights *weights) noexcept {
    group.nodes[group.count] = node;
    group.weights[group.count] = weights;
    if (node->src[2])
        group.experts = describe_experts(node);
    else
        group.args[group.count] = describe_matmul(node);
    ++group.count;
}

Group &new_group(Backend &backend) {
    if (backend.used_groups == backend.groups.size())
        backend.groups.push_back(std::make_unique<Group>());
    Group &group = *backend.groups[backend.used_groups++];
    group.backend = &backend;
    group.count = 0;
    return group;
}

// The weights of a product that runs here, else NULL.
const nybl_weights *weights_of(const ggml_tensor *node) {
    if (!is_matmul(node) || !device()->packable[node->src[0]->type])
        return nullptr;
    Counters &counters = device()->counters;
    const auto products = static_cast<uint64_t>(ggml_nelements(node) * node->src[0]->ne[0]);
    counters.seen += products;
    ++counters.ops_seen;
    const nybl_weights *weights = can_multiply(node) ? find_weights(node->src[0]) : nullptr;
    if (weights) {
        counters.taken += products;
        ++counters.ops_taken;
    }
    return weights;
}

void plan(Backend &backend, ggml_cgraph *graph) {
    OpenGroup open;
    backend.used_groups = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor *node = ggml_graph_node(graph, i);
        if (is_empty(node->op) || ggml_is_empty(node) || !(node->flags & GGML_TENSOR_FLAG_COMPUTE))
            continue;
        const nybl_weights *weights = weights_of(node);
        if (!weights) {
            for (const ggml_tensor *src : node->src)
                if (src)
                    restore(src);
            open.pass(node);
            continue;
        }
        if (open.can_join(node)) {
            add_to_group(*open.group(), node, weights);
            open.touch(node);
            replace(backend, node, nullptr);
            continue;
        }
        Group &group = new_group(backend);
        add_to_group(group, node, weights);
        open.start(&group);
        replace(backend, node, &group);
    }
}

// Scratch for the largest group. False, with a reason, where a product cannot run.
bool prepare_scratch(Backend &backend) {
    size_t most = 0;
    const auto nth = static_cast<uint32_t>(backend.n_threads);
    for (size_t i = 0; i < backend.used_groups; ++i) {
        const Group &group = *backend.groups[i];
        size_t bytes = 0;
        const nybl_status status =
            group.is_experts() ? nybl_matmul_id_scratch_bytes(group.weights[0], &group.experts, nth, &bytes)
                               : nybl_matmul_multi_scratch_bytes(static_cast<uint32_t>(group.count),
                                                                 group.weights, group.args, nth, &bytes);
        if (status != NYBL_OK) {
            backend.failure = std::string(group.nodes[0]->name) + ": " + nybl_last_error();
            return false;
        }
        most = std::max(most, bytes);
    }
    if (backend.scratch.size() < most)
        backend.scratch.resize(most);
    return true;
}

ggml_status compute(ggml_backend_t handle, ggml_cgraph *graph) {
    Backend &backend = *static_cast<Backend *>(handle->context);
    backend.failure.clear();
    plan(backend, graph);
    ggml_status status = GGML_STATUS_FAILED;
    if (prepare_scratch(backend))
        status = ggml_backend_graph_compute(backend.cpu, graph);
    restore_nodes(backend);
    if (backend.failure.empty())
        return status;
    std::fprintf(stderr, "nybl: %s\n", backend.failure.c_str());
    return GGML_STATUS_FAILED;
}

void report() {
    const Counters &counters = device()->counters;
    const uint64_t seen = counters.seen, taken = counters.taken;
    const nybl_memory_stats memory = device()->ctx.memory();
    const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / 1048576.0; };
    std::fprintf(
        stderr,
        "nybl: ran %.2f %% of the multiply-adds in MUL_MATs of its formats (%llu of %llu operations); "
        "%.1f MiB held, %.1f MiB at most\n",
        seen ? 100.0 * static_cast<double>(taken) / static_cast<double>(seen) : 100.0,
        static_cast<unsigned long long>(counters.ops_taken),
        static_cast<unsigned long long>(counters.ops_seen), mib(memory.host_bytes),
        mib(memory.host_peak_bytes));
}

void free_backend(ggml_backend_t handle) {
    if (device()->report)
        report();
    auto *backend = static_cast<Backend *>(handle->context);
    ggml_backend_free(backend->cpu);
    delete backend;
    delete handle;
}

// The public way to a custom operation: one is made, and its parameters serve for all.
void take_custom_params(Backend &backend) {
    ggml_init_params params{2 * ggml_tensor_overhead(), nullptr, true};
    ggml_context *ctx = ggml_init(params);
    const ggml_tensor *custom =
        ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run_group, GGML_N_TASKS_MAX, nullptr);
    std::memcpy(backend.custom_params, custom->op_params, sizeof backend.custom_params);
    ggml_free(ctx);
}

template <class Function>
Function cpu_function(const char *name) noexcept {
    return reinterpret_cast<Function>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device()->cpu), name));
}

} // namespace

bool is_matmul(const ggml_tensor *op) noexcept {
    return op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID;
}

bool can_multiply(const ggml_tensor *op) noexcept {
    const ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    if (!device()->packable[w->type] || w->ne[3] != 1 || !ggml_is_contiguous(w) || x->type != GGML_TYPE_F32 ||
        x->nb[0] != sizeof(float) || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float))
        return false;
    if (op->op == GGML_OP_MUL_MAT_ID)
        return x->ne[3] == 1 && ids->nb[0] == sizeof(int32_t);
    return w->ne[2] == 1 && (x->ne[3] == 1 || x->nb[3] == x->nb[2] * static_cast<size_t>(x->ne[2]));
}

ggml_backend_t make_backend() {
    static ggml_guid guid = {0x6e, 0x79, 0x62, 0x6c, 0x9d, 0x31, 0x4c, 0x0a,
                             0x8e, 0x57, 0x21, 0xd8, 0x5b, 0x70, 0xc3, 0x1f};
    auto backend = std::make_unique<Backend>();
    backend->cpu = ggml_backend_dev_init(device()->cpu, nullptr);
    if (!backend->cpu)
        return nullptr;
    take_custom_params(*backend);
    auto *handle = new ggml_backend{};
    handle->guid = &guid;
    handle->iface.get_name = [](ggml_backend_t) { return "NYBL"; };
    handle->iface.free = free_backend;
    handle->iface.graph_compute = compute;
    handle->device = device_handle();
    handle->context = backend.release();
    set_n_threads(handle, kDefaultThreads);
    return handle;
}

void set_n_threads(ggml_backend_t handle, int n_threads) {
    Backend &backend = *static_cast<Backend *>(handle->context);
    backend.n_threads = n_threads;
    if (const auto set = cpu_function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads"))
        set(backend.cpu, n_threads);
}

void set_abort_callback(ggml_backend_t handle, ggml_abort_callback callback, void *data) {
    if (const auto set = cpu_function<ggml_backend_set_abort_callback_t>("ggml_backend_set_abort_callback"))
        set(static_cast<Backend *>(handle->context)->cpu, callback, data);
}

} // namespace nybl::plugin
