// The plugin's operations, one by one, through ggml's public API: the bits of the library, near the CPU
// backend's values. Usage: nybl-engine-ops PLUGIN; prints "ok NAME" and "not ok NAME: why" lines.
// NYBL_GGML_STORAGE is the plugin's.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nybl/nybl.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

int failures = 0;

void report(const std::string &name, const std::string &why) {
    std::printf(why.empty() ? "ok %s\n" : "not ok %s: %s\n", name.c_str(), why.c_str());
    failures += !why.empty();
}

struct Backends {
    ggml_backend_t plugin, cpu;
};

void set_threads(ggml_backend_t backend, int n) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"))(backend, n);
}

std::vector<float> gaussian(size_t count, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float &value : values)
        value = normal(engine);
    return values;
}

std::vector<uint8_t> quantized(ggml_type type, int64_t rows, int64_t k, unsigned seed) {
    const std::vector<float> source = gaussian(static_cast<size_t>(rows * k), seed);
    std::vector<uint8_t> blocks(ggml_row_size(type, k) * static_cast<size_t>(rows));
    ggml_quantize_chunk(type, source.data(), blocks.data(), 0, rows, k, nullptr);
    return blocks;
}

// A graph whose leaves are filled from host bytes, computed on one backend; the outputs come back as floats.
struct Leaf {
    ggml_tensor *tensor;
    std::vector<uint8_t> bytes;
};
using Build = std::function<std::vector<ggml_tensor *>(ggml_context *, std::vector<Leaf> *weights,
                                                       std::vector<Leaf> *inputs)>;

std::vector<std::vector<float>> run(ggml_backend_t backend, const Build &build) {
    const ggml_init_params params{ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true};
    ggml_context *ctx = ggml_init(params);
    std::vector<Leaf> weights, inputs;
    const std::vector<ggml_tensor *> outputs = build(ctx, &weights, &inputs);
    // Weights in buffers that are marked as such before they arrive, as engines keep them.
    ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
    std::vector<ggml_backend_buffer_t> buffers;
    for (const Leaf &leaf : weights) {
        ggml_backend_buffer_t buffer =
            ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, leaf.tensor));
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_backend_tensor_alloc(buffer, leaf.tensor, ggml_backend_buffer_get_base(buffer));
        ggml_backend_tensor_set(leaf.tensor, leaf.bytes.data(), 0, leaf.bytes.size());
        buffers.push_back(buffer);
    }
    ggml_cgraph *graph = ggml_new_graph(ctx);
    for (ggml_tensor *output : outputs)
        ggml_build_forward_expand(graph, output);
    buffers.push_back(ggml_backend_alloc_ctx_tensors(ctx, backend));
    for (const Leaf &leaf : inputs)
        ggml_backend_tensor_set(leaf.tensor, leaf.bytes.data(), 0, leaf.bytes.size());
    std::vector<std::vector<float>> results;
    // Twice: a computation leaves the graph as it was.
    for (int time = 0; time < 2; ++time) {
        results.clear();
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS)
            break;
        for (ggml_tensor *output : outputs) {
            std::vector<float> values(static_cast<size_t>(ggml_nelements(output)));
            ggml_backend_tensor_get(output, values.data(), 0, ggml_nbytes(output));
            results.push_back(values);
        }
    }
    for (ggml_backend_buffer_t buffer : buffers)
        ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return results;
}

std::vector<uint8_t> bytes_of(const auto &values) {
    std::vector<uint8_t> bytes(values.size() * sizeof values[0]);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

double relative_error(const std::vector<float> &values, const std::vector<float> &reference) {
    double error = 0, power = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double difference = static_cast<double>(values[i]) - static_cast<double>(reference[i]);
        error += difference * difference;
        power += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
    }
    return error / power;
}

// Against the CPU backend, whose activations have fewer scales in the K formats.
constexpr double kMostError = 5e-4;

std::string compare(const std::vector<std::vector<float>> &plugin, const std::vector<std::vector<float>> &cpu,
                    const std::vector<std::vector<float>> &library) {
    if (plugin.size() != cpu.size() || plugin.empty())
        return "the graph did not run";
    for (size_t i = 0; i < plugin.size(); ++i) {
        const double error = relative_error(plugin[i], cpu[i]);
        if (!(error < kMostError))
            return "output " + std::to_string(i) + " is " + std::to_string(error) + " from the CPU backend's";
        if (i < library.size() && bytes_of(plugin[i]) != bytes_of(library[i]))
            return "output " + std::to_string(i) + " has not the library's bits";
    }
    return "";
}

nybl::Weights library_weights(const nybl::Context &ctx, ggml_type type, int64_t n, int64_t k, int64_t experts,
                              const std::vector<uint8_t> &blocks) {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = static_cast<nybl_format>(type);
    desc.n = static_cast<uint64_t>(n);
    desc.k = static_cast<uint64_t>(k);
    desc.n_experts = static_cast<uint64_t>(experts);
    desc.data = blocks.data();
    return nybl::Weights(ctx, desc);
}

constexpr int64_t kK = 512;

// q, k, v on one X, with small operations between them, as engines order them; then a product on their sum.
void test_matmul(const Backends &on, const nybl::Context &ctx, ggml_type type, int64_t m, int threads) {
    const std::vector<int64_t> ns = {512, 96, 33};
    const std::vector<float> x = gaussian(static_cast<size_t>(m * kK), 1);
    std::vector<std::vector<uint8_t>> blocks;
    for (size_t i = 0; i < ns.size(); ++i)
        blocks.push_back(quantized(type, ns[i], kK, static_cast<unsigned>(10 + i)));
    const Build build = [&](ggml_context *graph, std::vector<Leaf> *weights, std::vector<Leaf> *inputs) {
        ggml_tensor *input = ggml_new_tensor_2d(graph, GGML_TYPE_F32, kK, m);
        inputs->push_back({input, bytes_of(x)});
        std::vector<ggml_tensor *> outputs;
        for (size_t i = 0; i < ns.size(); ++i) {
            ggml_tensor *w = ggml_new_tensor_2d(graph, type, kK, ns[i]);
            weights->push_back({w, blocks[i]});
            outputs.push_back(ggml_mul_mat(graph, w, input));
        }
        for (size_t i = 0; i < ns.size(); ++i)
            outputs.push_back(ggml_silu(graph, outputs[i]));
        return outputs;
    };
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < ns.size(); ++i) {
        std::vector<float> y(static_cast<size_t>(m * ns[i]));
        library_weights(ctx, type, ns[i], kK, 1, blocks[i])
            .matmul(static_cast<uint64_t>(m), x.data(), y.data());
        expected.push_back(y);
    }
    set_threads(on.plugin, threads);
    report("plugin " + std::string(ggml_type_name(type)) + " products, " + std::to_string(m) + " tokens, " +
               std::to_string(threads) + " threads",
           compare(run(on.plugin, build), run(on.cpu, build), expected));
}

// Rows of X that are not contiguous, and several matrices of them.
void test_strides(const Backends &on, ggml_type type) {
    const std::vector<float> x = gaussian(2 * kK * 3 * 4, 2);
    const std::vector<uint8_t> blocks = quantized(type, 40, kK, 3);
    const Build build = [&](ggml_context *graph, std::vector<Leaf> *weights, std::vector<Leaf> *inputs) {
        ggml_tensor *w = ggml_new_tensor_2d(graph, type, kK, 40);
        weights->push_back({w, blocks});
        ggml_tensor *all = ggml_new_tensor_3d(graph, GGML_TYPE_F32, 2 * kK, 3, 4);
        inputs->push_back({all, bytes_of(x)});
        ggml_tensor *half = ggml_view_3d(graph, all, kK, 3, 4, all->nb[1], all->nb[2], kK * sizeof(float));
        return std::vector<ggml_tensor *>{ggml_mul_mat(graph, w, half)};
    };
    report("plugin " + std::string(ggml_type_name(type)) + " strided batches",
           compare(run(on.plugin, build), run(on.cpu, build), {}));
}

void test_experts(const Backends &on, const nybl::Context &ctx, ggml_type type, int64_t tokens,
                  bool shared_x) {
    constexpr int64_t kExperts = 8, kSlots = 2, kN = 48;
    const int64_t rows = shared_x ? 1 : kSlots;
    const std::vector<float> x = gaussian(static_cast<size_t>(kK * rows * tokens), 4);
    const std::vector<uint8_t> blocks = quantized(type, kN * kExperts, kK, 5);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens * kSlots; ++i)
        ids.push_back(static_cast<int32_t>((i * 5 + 3) % kExperts));
    const Build build = [&](ggml_context *graph, std::vector<Leaf> *weights, std::vector<Leaf> *inputs) {
        ggml_tensor *w = ggml_new_tensor_3d(graph, type, kK, kN, kExperts);
        weights->push_back({w, blocks});
        ggml_tensor *input = ggml_new_tensor_3d(graph, GGML_TYPE_F32, kK, rows, tokens);
        ggml_tensor *chosen = ggml_new_tensor_2d(graph, GGML_TYPE_I32, kSlots, tokens);
        inputs->push_back({input, bytes_of(x)});
        inputs->push_back({chosen, bytes_of(ids)});
        return std::vector<ggml_tensor *>{ggml_mul_mat_id(graph, w, input, chosen)};
    };
    std::vector<float> y(static_cast<size_t>(kN * kSlots * tokens));
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = static_cast<uint64_t>(tokens);
    args.n_slots = kSlots;
    args.ids = ids.data();
    args.x = x.data();
    args.x_slot_stride = shared_x ? 0 : kK * sizeof(float);
    args.y = y.data();
    library_weights(ctx, type, kN, kK, kExperts, blocks).matmul_id(args);
    report("plugin " + std::string(ggml_type_name(type)) + " experts, " + std::to_string(tokens) + " tokens" +
               (shared_x ? ", one x" : ""),
           compare(run(on.plugin, build), run(on.cpu, build), {y}));
}

// Weights that something other than a product reads: they come back as plain bytes, and all results hold.
void test_rows(const Backends &on, ggml_type type) {
    const std::vector<uint8_t> blocks = quantized(type, 40, kK, 6);
    const std::vector<float> x = gaussian(kK, 7);
    const std::vector<int32_t> rows = {0, 39, 7};
    const Build build = [&](ggml_context *graph, std::vector<Leaf> *weights, std::vector<Leaf> *inputs) {
        ggml_tensor *w = ggml_new_tensor_2d(graph, type, kK, 40);
        weights->push_back({w, blocks});
        ggml_tensor *input = ggml_new_tensor_2d(graph, GGML_TYPE_F32, kK, 1);
        ggml_tensor *wanted = ggml_new_tensor_1d(graph, GGML_TYPE_I32, 3);
        inputs->push_back({input, bytes_of(x)});
        inputs->push_back({wanted, bytes_of(rows)});
        return std::vector<ggml_tensor *>{ggml_get_rows(graph, w, wanted), ggml_mul_mat(graph, w, input)};
    };
    report("plugin " + std::string(ggml_type_name(type)) + " rows beside products",
           compare(run(on.plugin, build), run(on.cpu, build), {}));
}

// Weights that arrive in pieces, and are read back.
void test_pieces(const Backends &on, ggml_type type) {
    const std::vector<uint8_t> blocks = quantized(type, 40, kK, 8);
    const ggml_init_params params{ggml_tensor_overhead() * 4, nullptr, true};
    ggml_context *ctx = ggml_init(params);
    ggml_tensor *w = ggml_new_tensor_2d(ctx, type, kK, 40);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, on.plugin);
    const size_t half = blocks.size() / 2;
    ggml_backend_tensor_set(w, blocks.data(), 0, half);
    ggml_backend_tensor_set(w, blocks.data() + half, half, blocks.size() - half);
    std::vector<uint8_t> back(blocks.size());
    ggml_backend_tensor_get(w, back.data(), 0, half + 3);
    ggml_backend_tensor_get(w, back.data() + half + 3, half + 3, back.size() - half - 3);
    report("plugin " + std::string(ggml_type_name(type)) + " weights in pieces, read back",
           back == blocks ? "" : "other bytes came back");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2 || !ggml_backend_load(argv[1])) {
        std::printf("not ok plugin operations: cannot load the plugin\n");
        return 1;
    }
    const Backends on{ggml_backend_init_by_name("NYBL", nullptr), ggml_backend_init_by_name("CPU", nullptr)};
    if (!on.plugin || !on.cpu) {
        std::printf("not ok plugin operations: no backend\n");
        return 1;
    }
    auto desc = nybl::make<nybl_context_desc>();
    desc.n_threads = 1;
    const nybl::Context ctx(desc);
    for (const ggml_type type :
         {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_1, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_IQ4_NL}) {
        test_matmul(on, ctx, type, 1, 1);
        test_matmul(on, ctx, type, 5, 3);
        test_matmul(on, ctx, type, 40, 2);
        test_strides(on, type);
        test_experts(on, ctx, type, 1, true);
        test_experts(on, ctx, type, 30, false);
        test_rows(on, type);
        test_pieces(on, type);
    }
    ggml_backend_free(on.plugin);
    ggml_backend_free(on.cpu);
    return failures != 0;
}
