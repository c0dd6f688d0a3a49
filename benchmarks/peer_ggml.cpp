// ggml by its functions' names: no header of it is needed to build this, and the library is the user's
// choice.
#include "peer_ggml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "cases.h"

namespace nybl::bench {
namespace {

struct Tensor;
struct Graph;
struct ContextMemory; // ggml_context
struct Backend;
struct Buffer;
struct BufferType;
struct Device;
struct Registry;

struct InitParams {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

// The functions used, by their C signatures.
struct Api {
    void *library;
    ContextMemory *(*ggml_init)(InitParams);
    void (*ggml_free)(ContextMemory *);
    size_t (*ggml_tensor_overhead)();
    size_t (*ggml_graph_overhead_custom)(size_t, bool);
    Tensor *(*ggml_new_tensor_2d)(ContextMemory *, int, int64_t, int64_t);
    Tensor *(*ggml_mul_mat)(ContextMemory *, Tensor *, Tensor *);
    Graph *(*ggml_new_graph_custom)(ContextMemory *, size_t, bool);
    void (*ggml_build_forward_expand)(Graph *, Tensor *);
    Backend *(*ggml_backend_cpu_init)();
    void (*ggml_backend_cpu_set_n_threads)(Backend *, int);
    void (*ggml_backend_free)(Backend *);
    int (*ggml_backend_graph_compute)(Backend *, Graph *);
    bool (*ggml_backend_supports_op)(Backend *, const Tensor *);
    BufferType *(*ggml_backend_get_default_buffer_type)(Backend *);
    Buffer *(*ggml_backend_buft_alloc_buffer)(BufferType *, size_t);
    size_t (*ggml_backend_buft_get_alloc_size)(BufferType *, const Tensor *);
    const char *(*ggml_backend_buft_name)(BufferType *);
    void *(*ggml_backend_buffer_get_base)(Buffer *);
    void (*ggml_backend_buffer_free)(Buffer *);
    int (*ggml_backend_tensor_alloc)(Buffer *, Tensor *, void *);
    void (*ggml_backend_tensor_set)(Tensor *, const void *, size_t, size_t);
    void (*ggml_backend_tensor_get)(const Tensor *, void *, size_t, size_t);
    Device *(*ggml_backend_get_device)(Backend *);
    void (*ggml_log_set)(void (*)(int, const char *, void *), void *);
    Registry *(*ggml_backend_dev_backend_reg)(Device *);
    void *(*ggml_backend_reg_get_proc_address)(Registry *, const char *);

    explicit Api(const std::string &path) : library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (library == nullptr)
            throw std::runtime_error(fmt::format("--peer ggml: {} (./dev engine builds it)", dlerror()));
        const auto find = [&](const char *name, auto &function) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
            if (function == nullptr)
                throw std::runtime_error(fmt::format("--peer ggml: {} has no {}", path, name));
        };
        find("ggml_init", ggml_init);
        find("ggml_free", ggml_free);
        find("ggml_tensor_overhead", ggml_tensor_overhead);
        find("ggml_graph_overhead_custom", ggml_graph_overhead_custom);
        find("ggml_new_tensor_2d", ggml_new_tensor_2d);
        find("ggml_mul_mat", ggml_mul_mat);
        find("ggml_new_graph_custom", ggml_new_graph_custom);
        find("ggml_build_forward_expand", ggml_build_forward_expand);
        find("ggml_backend_cpu_init", ggml_backend_cpu_init);
        find("ggml_backend_cpu_set_n_threads", ggml_backend_cpu_set_n_threads);
        find("ggml_backend_free", ggml_backend_free);
        find("ggml_backend_graph_compute", ggml_backend_graph_compute);
        find("ggml_backend_supports_op", ggml_backend_supports_op);
        find("ggml_backend_get_default_buffer_type", ggml_backend_get_default_buffer_type);
        find("ggml_backend_buft_alloc_buffer", ggml_backend_buft_alloc_buffer);
        find("ggml_backend_buft_get_alloc_size", ggml_backend_buft_get_alloc_size);
        find("ggml_backend_buft_name", ggml_backend_buft_name);
        find("ggml_backend_buffer_get_base", ggml_backend_buffer_get_base);
        find("ggml_backend_buffer_free", ggml_backend_buffer_free);
        find("ggml_backend_tensor_alloc", ggml_backend_tensor_alloc);
        find("ggml_backend_tensor_set", ggml_backend_tensor_set);
        find("ggml_backend_tensor_get", ggml_backend_tensor_get);
        find("ggml_backend_get_device", ggml_backend_get_device);
        find("ggml_log_set", ggml_log_set);
        find("ggml_backend_dev_backend_reg", ggml_backend_dev_backend_reg);
        find("ggml_backend_reg_get_proc_address", ggml_backend_reg_get_proc_address);
    }
};

constexpr int kF32 = 0; // ggml's number, and GGUF's
constexpr size_t kGraphNodes = 8;

// Weights in one buffer type, and a graph for every copy of them.
struct Path {
    const Api &api;
    Backend *backend;
    ContextMemory *ctx = nullptr;
    std::vector<Buffer *> buffers;
    std::vector<Graph *> graphs;
    Tensor *first_y = nullptr;
    Buffer *y_buffer = nullptr; // all outputs lie in one place, as an engine's allocator would have them
    size_t next = 0;

    Path(const Api &functions, Backend *on, size_t copies) : api(functions), backend(on) {
        const size_t graph_bytes = api.ggml_graph_overhead_custom(kGraphNodes, false);
        ctx = api.ggml_init(
            {(2 * copies + 2) * api.ggml_tensor_overhead() + copies * graph_bytes, nullptr, true});
    }
    ~Path() {
        for (Buffer *buffer : buffers)
            api.ggml_backend_buffer_free(buffer);
        api.ggml_free(ctx);
    }
    Path(const Path &) = delete;
    Path &operator=(const Path &) = delete;

    // A tensor in a buffer of `type` of its own, on large pages where those are asked for.
    void place(Tensor *tensor, BufferType *type, Pages pages) {
        Buffer *buffer =
            api.ggml_backend_buft_alloc_buffer(type, api.ggml_backend_buft_get_alloc_size(type, tensor));
        if (buffer == nullptr)
            throw std::runtime_error("--peer ggml: out of memory");
        buffers.push_back(buffer);
        void *base = api.ggml_backend_buffer_get_base(buffer);
        constexpr uintptr_t kPage = 4096;
        const uintptr_t begin = (reinterpret_cast<uintptr_t>(base) + kPage - 1) / kPage * kPage;
        const size_t size = api.ggml_backend_buft_get_alloc_size(type, tensor);
        if (pages == Pages::kHuge && size > 2 * kPage)
            madvise(reinterpret_cast<void *>(begin), (size - kPage) / kPage * kPage, MADV_HUGEPAGE);
        api.ggml_backend_tensor_alloc(buffer, tensor, base);
    }
    bool run() {
        const int status = api.ggml_backend_graph_compute(backend, graphs[next]);
        next = next + 1 < graphs.size() ? next + 1 : 0;
        return status == 0;
    }
};

double relative_error(std::span<const float> values, std::span<const float> expected) {
    double error = 0, power = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double difference = double(values[i]) - double(expected[i]);
        error += difference * difference;
        power += double(expected[i]) * double(expected[i]);
    }
    return error / power;
}

} // namespace

struct GgmlPeer::State {
    Api api;
    Backend *backend;
    std::vector<BufferType *> types; // the plain one first

    explicit State(const std::string &library) : api(library), backend(api.ggml_backend_cpu_init()) {
        api.ggml_log_set([](int, const char *, void *) {}, nullptr); // a line per repacked tensor
        types = {api.ggml_backend_get_default_buffer_type(backend)};
        Device *device = api.ggml_backend_get_device(backend);
        const auto extra = reinterpret_cast<BufferType **(*)(Device *)>(api.ggml_backend_reg_get_proc_address(
            api.ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
        for (BufferType **type = extra ? extra(device) : nullptr; type && *type; ++type)
            types.push_back(*type);
    }
    ~State() { api.ggml_backend_free(backend); }

    // NULL: the type does not take such weights.
    std::shared_ptr<Path> make_path(const Case &of, const Source &source, BufferType *type, size_t copies,
                                    Pages pages, std::span<const float> x) {
        const auto path = std::make_shared<Path>(api, backend, copies);
        const auto n = static_cast<int64_t>(of.n), k = static_cast<int64_t>(of.k);
        Tensor *input = api.ggml_new_tensor_2d(path->ctx, kF32, k, static_cast<int64_t>(of.m));
        path->place(input, types.front(), pages);
        api.ggml_backend_tensor_set(input, x.data(), 0, x.size_bytes());
        for (size_t copy = 0; copy < copies; ++copy) {
            Tensor *w = api.ggml_new_tensor_2d(path->ctx, of.format, k, n);
            path->place(w, type, pages);
            Tensor *y = api.ggml_mul_mat(path->ctx, w, input);
            if (copy == 0 && !api.ggml_backend_supports_op(backend, y))
                return nullptr;
            const std::span<const uint8_t> blocks = source.tensors[copy % source.tensors.size()];
            api.ggml_backend_tensor_set(w, blocks.data(), 0, blocks.size());
            if (copy == 0) {
                path->first_y = y;
                path->place(y, types.front(), pages);
                path->y_buffer = path->buffers.back();
            } else {
                api.ggml_backend_tensor_alloc(path->y_buffer, y,
                                              api.ggml_backend_buffer_get_base(path->y_buffer));
            }
            Graph *graph = api.ggml_new_graph_custom(path->ctx, kGraphNodes, false);
            api.ggml_build_forward_expand(graph, y);
            path->graphs.push_back(graph);
        }
        return path;
    }
};

GgmlPeer::GgmlPeer(const std::string &library) : state_(std::make_unique<State>(library)) {}
GgmlPeer::~GgmlPeer() = default;

std::vector<PeerPath> GgmlPeer::prepare(const Case &of, const Source &source, size_t bytes, Pages pages,
                                        std::span<const float> x, std::span<const float> expected) {
    // Values apart: 8-bit activations with one scale per 256 at worst, on both sides.
    constexpr double kMostError = 2e-3;
    state_->api.ggml_backend_cpu_set_n_threads(state_->backend, static_cast<int>(of.threads));
    const size_t copies = std::max<size_t>(1, bytes / (of.n * row_bytes(of.format, of.k)));
    std::vector<PeerPath> paths;
    for (BufferType *type : state_->types) {
        const std::shared_ptr<Path> path = state_->make_path(of, source, type, copies, pages, x);
        if (!path)
            continue;
        const std::string name = state_->api.ggml_backend_buft_name(type);
        std::vector<float> y(expected.size());
        if (!path->run())
            throw std::runtime_error(fmt::format("--peer ggml: {} fails", name));
        state_->api.ggml_backend_tensor_get(path->first_y, y.data(), 0, y.size() * sizeof(float));
        if (const double error = relative_error(y, expected); !(error < kMostError))
            throw std::runtime_error(
                fmt::format("--peer ggml: {} is {:.1e} from the expected output", name, error));
        paths.push_back({name, [path] { return path->run(); }});
    }
    return paths;
}

} // namespace nybl::bench
