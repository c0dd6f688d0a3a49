// Logits of a text in a file, and the comparison of two such files: perplexity, KL divergence, same top
// token.
#include <ggml-backend.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "engine.h"

namespace engine {
namespace {

constexpr size_t kChunk = 512; // tokens; the second half is scored, where there is context enough

// [vocabulary][rows] then rows of: the token that came, its logits.
struct File {
    int32_t vocabulary = 0;
    std::vector<int32_t> next;
    std::vector<float> logits;

    size_t rows() const noexcept { return next.size(); }
    const float *row(size_t i) const noexcept { return logits.data() + i * static_cast<size_t>(vocabulary); }
};

void save(const File &file, const char *path) {
    std::ofstream out(path, std::ios::binary);
    const auto rows = static_cast<int32_t>(file.rows());
    const auto put = [&](const auto *data, size_t count) {
        out.write(reinterpret_cast<const char *>(data), static_cast<std::streamsize>(count * sizeof *data));
    };
    put(&file.vocabulary, 1);
    put(&rows, 1);
    put(file.next.data(), file.next.size());
    put(file.logits.data(), file.logits.size());
    if (!out.flush())
        throw std::runtime_error(std::string("cannot write ") + path);
}

File load(const char *path) {
    std::ifstream in(path, std::ios::binary);
    File file;
    int32_t rows = 0;
    const auto get = [&](auto *data, size_t count) {
        in.read(reinterpret_cast<char *>(data), static_cast<std::streamsize>(count * sizeof *data));
    };
    get(&file.vocabulary, 1);
    get(&rows, 1);
    if (!in || file.vocabulary <= 0 || rows <= 0)
        throw std::runtime_error(std::string("not a file of logits: ") + path);
    file.next.resize(static_cast<size_t>(rows));
    file.logits.resize(static_cast<size_t>(rows) * static_cast<size_t>(file.vocabulary));
    get(file.next.data(), file.next.size());
    get(file.logits.data(), file.logits.size());
    if (!in)
        throw std::runtime_error(std::string("cut short: ") + path);
    return file;
}

// log(sum(exp(logit)))
double log_sum(const float *logits, size_t count) noexcept {
    const float top = *std::max_element(logits, logits + count);
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(top));
    return static_cast<double>(top) + std::log(sum);
}

size_t top(const float *logits, size_t count) noexcept {
    return static_cast<size_t>(std::max_element(logits, logits + count) - logits);
}

template <class Function>
Function plugin_function(ggml_backend_reg_t plugin, const char *name) noexcept {
    return plugin ? reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(plugin, name)) : nullptr;
}

} // namespace

int write_logits(const char *model, const char *text, const char *out, int chunks, const Options &options) {
    // The plugin says what it serves; the scheduler, through a callback, what there was.
    ggml_backend_reg_t plugin = ggml_backend_reg_by_name("NYBL");
    Work work{plugin_function<bool (*)(ggml_type)>(plugin, "nybl_serves"), 0};
    Options counting = options;
    counting.work = plugin ? &work : nullptr;
    counting.context = counting.batch = kChunk;
    Session session(model, counting);
    std::ifstream in(text, std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(in), {}};
    const std::vector<llama_token> tokens = session.tokenize(words);
    File file;
    file.vocabulary = session.vocabulary();
    for (size_t begin = 0; begin + kChunk < tokens.size() && chunks-- > 0; begin += kChunk) {
        session.forget();
        session.decode_all({tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                            tokens.begin() + static_cast<std::ptrdiff_t>(begin + kChunk)});
        for (size_t i = kChunk / 2; i < kChunk; ++i) {
            const float *row = session.logits(static_cast<int32_t>(i));
            file.logits.insert(file.logits.end(), row, row + file.vocabulary);
            file.next.push_back(tokens[begin + i + 1]);
        }
    }
    if (file.rows() == 0)
        throw std::runtime_error("the text is too short");
    save(file, out);
    if (!plugin)
        return 0;
    uint64_t seen = 0, taken = 0;
    plugin_function<void (*)(uint64_t *, uint64_t *)>(plugin, "nybl_get_counters")(&seen, &taken);
    std::printf("share %.4f\n", static_cast<double>(taken) / static_cast<double>(work.supported));
    return 0;
}

int compare_logits(const char *base_path, const char *other_path) {
    const File base = load(base_path), other = load(other_path);
    if (base.vocabulary != other.vocabulary || base.next != other.next)
        throw std::runtime_error("the files are of different texts or vocabularies");
    const auto count = static_cast<size_t>(base.vocabulary);
    double base_loss = 0, other_loss = 0, divergence = 0, worst = 0;
    size_t same = 0;
    for (size_t i = 0; i < base.rows(); ++i) {
        const float *p = base.row(i), *q = other.row(i);
        const double log_p = log_sum(p, count), log_q = log_sum(q, count);
        double row = 0;
        for (size_t t = 0; t < count; ++t) {
            const double a = static_cast<double>(p[t]) - log_p, b = static_cast<double>(q[t]) - log_q;
            row += std::exp(a) * (a - b);
        }
        divergence += row;
        worst = std::max(worst, row);
        const auto next = static_cast<size_t>(base.next[i]);
        base_loss += log_p - static_cast<double>(p[next]);
        other_loss += log_q - static_cast<double>(q[next]);
        same += top(p, count) == top(q, count);
    }
    const auto rows = static_cast<double>(base.rows());
    std::printf("rows %zu\nperplexity %.5f %.5f\nkld %.6g\nkld_max %.6g\nsame_top %.5f\n", base.rows(),
                std::exp(base_loss / rows), std::exp(other_loss / rows), divergence / rows, worst,
                static_cast<double>(same) / rows);
    return 0;
}

} // namespace engine
