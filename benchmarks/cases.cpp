// The table of operations, and the cases that shapes, formats, instruction sets and threads make with it.
#include "cases.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "gguf/gguf.h"

namespace nybl::bench {
namespace {

constexpr uint64_t kAny = ~uint64_t{0};

//                        name                least M, most; roof, dot_roof, threaded, on_gpu, in_model,
//                        prepare
constexpr Op kOps[] = {
    {"decode", 1, 16, Roof::kRead, true, true, true, true, prepare_matmul},
    {"prefill", 17, kAny, Roof::kDot, true, true, true, true, prepare_matmul},
    {"moe", 1, kAny, Roof::kRead, true, true, true, false, prepare_experts},
    {"decode_original", 1, 16, Roof::kRead, true, true, false, false, prepare_matmul_original},
    {"prefill_original", 17, kAny, Roof::kDot, true, true, false, false, prepare_matmul_original},
    {"prefill_f32", 17, kAny, Roof::kFma, false, true, true, false, prepare_matmul_f32},
    {"vec_dot", 1, 1, Roof::kRead, false, false, false, false, prepare_vec_dot},
    {"pack", 1, 1, Roof::kNone, false, false, false, false, prepare_pack},
    {"quantize", 1, 1, Roof::kCopy, false, false, false, false, prepare_quantize},
    {"quantize_importance", 1, 1, Roof::kCopy, false, false, false, false, prepare_quantize_importance},
    {"quantize_fast", 1, 1, Roof::kCopy, false, false, false, false, prepare_quantize_fast},
    {"dequantize", 1, 1, Roof::kCopy, false, false, false, false, prepare_dequantize},
};

constexpr nybl_format kMainFormats[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,
                                        NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL_ROW};

template <class T>
std::vector<T> distinct(const std::vector<T> &values) {
    std::vector<T> kept;
    for (const T &value : values)
        if (std::find(kept.begin(), kept.end(), value) == kept.end())
            kept.push_back(value);
    return kept;
}

// Adds cases of one group of weights: every M of every op on every instruction set and thread count.
class Collector {
  public:
    Collector(Shared &shared, Absent &absent) : shared_(shared), absent_(absent) {
        const Options &options = shared.options;
        const auto cores = static_cast<unsigned>(shared.machine.cores.size());
        threads_ = options.threads.empty() ? distinct<unsigned>({1, cores}) : distinct(options.threads);
        std::vector<nybl_isa> isas;
        for (const nybl_isa cap : options.isas.empty() ? std::vector{NYBL_ISA_BEST} : options.isas)
            isas.push_back(nybl_context_isa(shared.contexts.get(cap, 1)));
        isas_ = distinct(isas); // a cap above the machine gives the machine's own
        if (options.gpu) {
            isas_.resize(1); // neither instruction sets nor threads of the CPU matter there
            threads_.resize(1);
            device_ = shared.contexts.gpu_name(*options.gpu);
        }
    }

    void add(const Op &op, Case of, const std::vector<uint64_t> &ms) {
        const Options &options = shared_.options;
        if (!options.ops.empty() &&
            std::find(options.ops.begin(), options.ops.end(), op.name) == options.ops.end())
            return;
        if (!device_.empty() && !op.on_gpu)
            return;
        of.op = &op;
        of.device = device_;
        of.hot = options.hot || !device_.empty();
        for (const nybl_isa isa : isas_)
            for (const unsigned threads : threads_) {
                if (!op.threaded && threads != threads_.front())
                    continue;
                of.isa = isa;
                of.threads = op.threaded ? threads : 1;
                if (!present(of))
                    continue;
                for (const uint64_t m : ms)
                    if (m >= op.least_m && m <= op.most_m) {
                        of.m = m;
                        if (names_.insert(of.name()).second)
                            cases.push_back(of);
                    }
            }
    }

    std::vector<Case> cases;

  private:
    // A tiny case of its kind tells whether this build has the operation for the format.
    bool present(const Case &of) {
        const std::string kind = fmt::format("{}/{}", of.op->name, of.isa_name());
        const std::string format = format_info(of.format).name, key = kind + "/" + format;
        const auto known = present_.find(key);
        if (known != present_.end())
            return known->second;
        Case tiny = of;
        tiny.source = nullptr;
        tiny.m = of.op->least_m;
        tiny.n = 16;
        tiny.k = 256;
        tiny.experts = of.experts > 1 ? 2 : 1;
        tiny.used = of.experts > 1 ? 1 : 0;
        tiny.threads = 1;
        tiny.hot = true;
        bool is_present = true;
        try {
            Workload workload;
            tiny.op->prepare(shared_, tiny, workload);
            // Reference code takes seconds where a kernel takes milliseconds: only for who asks for it.
            if (workload.scalar && of.isa != NYBL_ISA_SCALAR && shared_.options.ops.empty() &&
                !shared_.options.quick)
                is_present = false;
        } catch (const ApiError &error) {
            // Any other failure is worth seeing: the case itself will report it.
            is_present = error.status != NYBL_UNSUPPORTED && error.status != NYBL_UNSUPPORTED_HARDWARE;
        }
        if (!is_present)
            absent_[kind].insert(format);
        return present_[key] = is_present;
    }

    Shared &shared_;
    Absent &absent_;
    std::vector<unsigned> threads_;
    std::vector<nybl_isa> isas_;
    std::string device_;
    std::map<std::string, bool> present_;
    std::set<std::string> names_;
};

bool wanted(const Options &options, nybl_format format) {
    return options.formats.empty() ||
           std::find(options.formats.begin(), options.formats.end(), format) != options.formats.end();
}

// "blk.17.attn_q.weight" -> "attn_q"
std::string role_of(std::string_view name) {
    if (name.starts_with("blk.")) {
        const size_t dot = name.find('.', 4);
        name = dot == std::string_view::npos ? name : name.substr(dot + 1);
    }
    return std::string(name.substr(0, name.find(".weight")));
}

// Tensors of equal format and shape are one source: a case goes through the layers as a model does.
std::vector<std::shared_ptr<const Source>> model_sources(const gguf::Contents &contents) {
    std::vector<std::shared_ptr<Source>> sources;
    std::map<std::shared_ptr<Source>, std::set<std::string>> roles;
    for (const gguf::Tensor &tensor : contents.tensors) {
        nybl_format_info info{};
        info.struct_size = sizeof info;
        const auto format = static_cast<nybl_format>(tensor.type);
        if (tensor.n_dims != 2 || nybl_format_get_info(format, &info) != NYBL_OK || info.block_size == 1)
            continue;
        auto found = std::find_if(sources.begin(), sources.end(), [&](const std::shared_ptr<Source> &source) {
            return source->format == format && source->k == tensor.dims[0] && source->n == tensor.dims[1];
        });
        if (found == sources.end()) {
            auto source = std::make_shared<Source>();
            source->format = format;
            source->k = tensor.dims[0];
            source->n = tensor.dims[1];
            found = sources.insert(sources.end(), source);
        }
        (*found)->tensors.push_back(tensor.data);
        if (roles[*found].insert(role_of(tensor.name)).second)
            (*found)->origin += ((*found)->origin.empty() ? "" : ", ") + role_of(tensor.name);
    }
    return {sources.begin(), sources.end()};
}

void add_model(Collector &collector, const Options &options, const gguf::Contents &model) {
    const std::vector<uint64_t> ms =
        options.quick ? std::vector<uint64_t>{1} : std::vector<uint64_t>{1, 4, 16, 64, 512};
    for (const std::shared_ptr<const Source> &source : model_sources(model)) {
        if (!wanted(options, source->format))
            continue;
        Case of;
        of.source = source;
        of.format = source->format;
        of.n = source->n;
        of.k = source->k;
        for (const Op &op : kOps)
            if (op.in_model)
                collector.add(op, of, ms);
    }
}

void add_line(Collector &collector, const Options &options, const ShapeLine &line) {
    const std::vector<nybl_format> formats =
        options.formats.empty() ? std::vector<nybl_format>(std::begin(kMainFormats), std::end(kMainFormats))
                                : options.formats;
    for (const nybl_format format : formats) {
        if (line.k % format_info(format).block_size != 0)
            continue;
        Case of;
        of.format = format;
        of.n = line.n;
        of.k = line.k;
        for (const std::string &name : line.ops) {
            const Op *op = find_op(name);
            if (op == nullptr)
                throw std::runtime_error(fmt::format("the shapes name an unknown op '{}'", name));
            const bool experts = op->prepare == prepare_experts;
            if (experts != (line.experts != 0))
                throw std::runtime_error("the shapes: a line of moe, and no other, ends with: experts used");
            of.experts = experts ? line.experts : 1;
            of.used = line.used;
            collector.add(*op, of, line.ms);
        }
    }
}

} // namespace

std::span<const Op> ops() {
    return kOps;
}

const Op *find_op(const std::string &name) {
    for (const Op &op : kOps)
        if (name == op.name)
            return &op;
    return nullptr;
}

std::string Case::name() const {
    return fmt::format("{}/{}/{}x{}x{}/{}/t{}", op->name, format_info(format).name, m, n, k, isa_name(),
                       threads);
}

void Workload::first_call(const char *what) {
    const double start = wall_seconds();
    require(call(), what);
    first_seconds = wall_seconds() - start;
}

std::shared_ptr<const Source> Shared::source(const Case &of) {
    if (of.source)
        return of.source;
    const auto same = [&](const Source &last) {
        return last.format == of.format && last.n == of.n && last.k == of.k && last.experts == of.experts;
    };
    if (!last_source_ || !same(*last_source_))
        last_source_ = random_source(of.format, of.n, of.k, of.experts);
    return last_source_;
}

const std::vector<WeightsHandle> &Shared::weights(const Case &of, nybl_storage storage) {
    return pool.handles(source(of), storage, context(of), of.hot ? 1 : 0);
}

std::vector<Case> collect_cases(Shared &shared, const gguf::Contents *model, Absent &absent) {
    const Options &options = shared.options;
    for (const std::string &name : options.ops)
        if (find_op(name) == nullptr)
            throw std::runtime_error(fmt::format("--op: there is no op '{}' (--help lists them)", name));
    Collector collector(shared, absent);
    if (model != nullptr)
        add_model(collector, options, *model);
    for (const std::string &file : options.shapes)
        for (const ShapeLine &line : load_shapes(file))
            add_line(collector, options, line);
    shared.pool.clear();
    return collector.cases;
}

} // namespace nybl::bench
