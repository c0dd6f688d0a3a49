// nybl-engine's parts: a model on unmodified llama.cpp, with the plugin where NYBL_GGML_PLUGIN names it.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace engine {

// Multiply-adds of all MUL_MATs with weights in a format that the plugin serves, wherever they ran.
struct Work {
    bool (*serves)(ggml_type);
    uint64_t supported = 0;
};

struct Options {
    int threads = 1;
    uint32_t context = 2304, batch = 2048, micro_batch = 512;
    Work *work = nullptr;      // counted where not NULL
    const char *rpc = nullptr; // "host:port,...": devices behind RPC servers hold the layers
};

class Session {
  public:
    Session(const char *path, const Options &options);       // throws std::runtime_error
    void decode(const llama_token *tokens, int32_t count);   // logits of the last
    void decode_all(const std::vector<llama_token> &tokens); // logits of every token
    const float *logits(int32_t i) const { return llama_get_logits_ith(ctx_.get(), i); }
    void forget() { llama_memory_clear(llama_get_memory(ctx_.get()), true); }
    std::vector<llama_token> tokenize(const std::string &text) const;
    int32_t vocabulary() const;

  private:
    struct Free {
        void operator()(llama_model *model) const { llama_model_free(model); }
        void operator()(llama_context *ctx) const { llama_free(ctx); }
    };
    std::unique_ptr<llama_model, Free> model_;
    std::unique_ptr<llama_context, Free> ctx_;
};

// Logits of a text, chunk by chunk, to a file; and what two such files say of each other.
int write_logits(const char *model, const char *text, const char *out, int chunks, const Options &options);
int compare_logits(const char *base, const char *other);

} // namespace engine
