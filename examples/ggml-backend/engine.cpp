// nybl-engine: speed and logits of a model on an unmodified llama.cpp, with or without the plugin.
#include "engine.h"

#include <ggml-backend.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace engine {
namespace {

constexpr char kUsage[] = R"(usage: nybl-engine quantize IN OUT FORMAT
           llama.cpp's own quantizer; FORMAT F32, Q4_0, Q4_1, ...
       nybl-engine bench MODEL THREADS P,P,.. G R
           R rounds: prompts of P tokens, then G generated; tokens per second
       nybl-engine logits MODEL TEXT OUT CHUNKS THREADS [RPC-SERVERS]
           the logits of a text's first chunks, into a file
       nybl-engine compare BASE OTHER
           two such files: perplexity, KL divergence, share of the same top token
NYBL_GGML_PLUGIN in the environment names the plugin to load; without it this is stock llama.cpp.
)";

// The scheduler shows every node of every graph, on whichever device it runs.
bool count_node(ggml_tensor *node, bool ask, void *user) {
    Work &work = *static_cast<Work *>(user);
    const bool is_product = node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
    if (ask && is_product && work.serves(node->src[0]->type))
        work.supported += static_cast<uint64_t>(ggml_nelements(node) * node->src[0]->ne[0]);
    return !ask; // nothing is to be held back for a look at its data
}

// Devices behind RPC servers, named "host:port,host:port".
void add_servers(const std::string &list) {
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    if (!rpc)
        throw std::runtime_error("this llama.cpp has no RPC backend");
    const auto add = reinterpret_cast<ggml_backend_reg_t (*)(const char *)>(
        ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
    for (size_t at = 0; at < list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        const std::string server = list.substr(at, end - at);
        ggml_backend_register(add(server.c_str()));
        at = end + 1;
    }
}

} // namespace

Session::Session(const char *path, const Options &options) {
    if (options.rpc)
        add_servers(options.rpc);
    llama_model_params model = llama_model_default_params();
    model.n_gpu_layers = options.rpc ? 999 : 0;
    model_.reset(llama_model_load_from_file(path, model));
    if (!model_)
        throw std::runtime_error(std::string("cannot load ") + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.context;
    params.n_batch = options.batch;
    params.n_ubatch = options.micro_batch;
    params.n_threads = params.n_threads_batch = options.threads;
    // "auto" turns it off where a device other than the CPU's runs a layer's attention.
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    if (options.work) {
        params.cb_eval = count_node;
        params.cb_eval_user_data = options.work;
    }
    ctx_.reset(llama_init_from_model(model_.get(), params));
    if (!ctx_)
        throw std::runtime_error("cannot make a context");
}

void Session::decode(const llama_token *tokens, int32_t count) {
    if (llama_decode(ctx_.get(), llama_batch_get_one(const_cast<llama_token *>(tokens), count)) != 0)
        throw std::runtime_error("llama_decode failed");
}

void Session::decode_all(const std::vector<llama_token> &tokens) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    for (size_t i = 0; i < tokens.size(); ++i) {
        batch.token[i] = tokens[i];
        batch.pos[i] = static_cast<llama_pos>(i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = static_cast<int32_t>(tokens.size());
    const int status = llama_decode(ctx_.get(), batch);
    llama_batch_free(batch);
    if (status != 0)
        throw std::runtime_error("llama_decode failed");
}

std::vector<llama_token> Session::tokenize(const std::string &text) const {
    const llama_vocab *vocab = llama_model_get_vocab(model_.get());
    std::vector<llama_token> tokens(text.size() + 8);
    const int32_t count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                         static_cast<int32_t>(tokens.size()), true, false);
    if (count < 0)
        throw std::runtime_error("the text cannot be tokenized");
    tokens.resize(static_cast<size_t>(count));
    return tokens;
}

int32_t Session::vocabulary() const {
    return llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
}

namespace {

double seconds() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int quantize(const char *in, const char *out, const std::string &format) {
    const struct {
        const char *name;
        llama_ftype type;
    } types[] = {{"F32", LLAMA_FTYPE_ALL_F32},          {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
                 {"Q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},     {"Q5_1", LLAMA_FTYPE_MOSTLY_Q5_1},
                 {"IQ4_NL", LLAMA_FTYPE_MOSTLY_IQ4_NL}, {"Q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_S},
                 {"Q5_K", LLAMA_FTYPE_MOSTLY_Q5_K_S},   {"Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M},
                 {"Q5_K_M", LLAMA_FTYPE_MOSTLY_Q5_K_M}};
    for (const auto &type : types)
        if (format == type.name) {
            llama_model_quantize_params params = llama_model_quantize_default_params();
            params.ftype = type.type;
            params.allow_requantize = true;
            return llama_model_quantize(in, out, &params) == 0 ? 0 : 1;
        }
    throw std::runtime_error("no such format: " + format);
}

// Tokens need no meaning for speed: a fixed walk through the vocabulary.
int bench(const char *path, int threads, const std::string &prompts, int generate, int rounds) {
    Options options;
    options.threads = threads;
    Session session(path, options);
    std::vector<llama_token> tokens(2048);
    for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<llama_token>((i * 7919 + 13) % static_cast<size_t>(session.vocabulary()));
    session.decode(tokens.data(), 32);
    for (int round = 0; round < rounds; ++round) {
        for (size_t at = 0; at < prompts.size();) {
            const size_t end = std::min(prompts.find(',', at), prompts.size());
            const int count = std::atoi(prompts.substr(at, end - at).c_str());
            session.forget();
            const double start = seconds();
            session.decode(tokens.data(), count);
            std::printf("prompt %d %.3f\n", count, count / (seconds() - start));
            std::fflush(stdout);
            at = end + 1;
        }
        if (generate == 0)
            continue;
        session.forget();
        session.decode(tokens.data(), 1);
        const double start = seconds();
        for (int i = 1; i <= generate; ++i)
            session.decode(&tokens[static_cast<size_t>(i)], 1);
        std::printf("generate %d %.3f\n", generate, generate / (seconds() - start));
    }
    return 0;
}

int run(int argc, char **argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "quantize" && argc == 5)
        return quantize(argv[2], argv[3], argv[4]);
    if (command == "bench" && argc == 7)
        return bench(argv[2], std::atoi(argv[3]), argv[4], std::atoi(argv[5]), std::atoi(argv[6]));
    if (command == "logits" && (argc == 7 || argc == 8)) {
        Options options;
        options.threads = std::atoi(argv[6]);
        options.rpc = argc == 8 ? argv[7] : nullptr;
        return write_logits(argv[2], argv[3], argv[4], std::atoi(argv[5]), options);
    }
    if (command == "compare" && argc == 4)
        return compare_logits(argv[2], argv[3]);
    std::fputs(kUsage, stderr);
    return 2;
}

} // namespace
} // namespace engine

int main(int argc, char **argv) {
    llama_log_set(
        [](ggml_log_level level, const char *text, void *) {
            if (level >= GGML_LOG_LEVEL_ERROR || std::getenv("NYBL_ENGINE_LOG"))
                std::fputs(text, stderr);
        },
        nullptr);
    if (const char *plugin = std::getenv("NYBL_GGML_PLUGIN"))
        if (!ggml_backend_load(plugin)) {
            std::fprintf(stderr, "nybl-engine: cannot load %s\n", plugin);
            return 1;
        }
    llama_backend_init();
    int status = 1;
    try {
        status = engine::run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "nybl-engine: %s\n", error.what());
    }
    llama_backend_free();
    return status;
}
