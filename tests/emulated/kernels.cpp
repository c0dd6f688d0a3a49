// Products through the C API, one context per instruction set, against the scalar context: equal bits,
// nothing else written, and the kernels that ran are the ones of that instruction set.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include <nybl/nybl.h>

#include "cpu/isa.h"
#include "cpu/jit/original_kernel.h"
#include "report.h"

namespace nybl::emulated {
namespace {

struct Format {
    nybl_format id;
    std::vector<size_t> halves; // where a block holds an f16: every other byte is a legal code
};
// The formats that have generated kernels.
const Format kFormats[] = {
    {NYBL_Q4_0, {0}},    {NYBL_Q4_1, {0, 2}}, {NYBL_Q5_1, {0, 2}}, {NYBL_IQ4_NL, {0}}, {NYBL_Q4_K, {0, 2}},
    {NYBL_Q5_K, {0, 2}}, {NYBL_Q5_0, {0}},    {NYBL_Q8_0, {0}},    {NYBL_Q6_K, {208}},
};

bool is_super(nybl_format format) {
    return format == NYBL_Q4_K || format == NYBL_Q5_K || format == NYBL_Q6_K;
}

struct DestroyContext {
    void operator()(nybl_context *context) const { nybl_context_destroy(context); }
};
struct DestroyWeights {
    void operator()(nybl_weights *weights) const { nybl_weights_destroy(weights); }
};
using Context = std::unique_ptr<nybl_context, DestroyContext>;
using Weights = std::unique_ptr<nybl_weights, DestroyWeights>;

Context make_context(nybl_isa isa) {
    nybl_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.max_isa = isa;
    desc.n_threads = 1; // the emulated kernel keeps no tile state across threads
    nybl_context *context = nullptr;
    nybl_context_create(&desc, &context);
    return Context(context);
}

// Blocks at an odd address, so that nothing rests on alignment.
struct Blocks {
    nybl_format format;
    uint64_t n, k, experts;
    std::vector<uint8_t> bytes;

    const uint8_t *data() const { return bytes.data() + 1; }
    Weights weights(nybl_context *context, nybl_storage storage) const {
        nybl_weights_desc desc{};
        desc.struct_size = sizeof desc;
        desc.format = format;
        desc.n = n;
        desc.k = k;
        desc.n_experts = experts;
        desc.data = data();
        desc.storage = storage;
        nybl_weights *weights = nullptr;
        nybl_weights_create(context, &desc, &weights);
        return Weights(weights);
    }
};

// Ordinary scales with both signs, now and then zero or subnormal.
uint16_t random_half(Random &random) {
    if (random.below(16) == 0)
        return static_cast<uint16_t>(random.below(0x400));
    return static_cast<uint16_t>((random.next() & 0x83ff) | (10 + random.below(8)) << 10);
}

// Row 0 holds the largest codes, row 1 the smallest, the others any.
Blocks make_blocks(const Format &format, uint64_t n, uint64_t k, uint64_t experts, Random &random) {
    nybl_format_info info{};
    info.struct_size = sizeof info;
    size_t row = 0;
    nybl_format_get_info(format.id, &info);
    nybl_row_bytes(format.id, k, &row);
    Blocks blocks{format.id, n, k, experts, std::vector<uint8_t>(1 + row * n * experts)};
    for (size_t r = 0; r < n * experts; ++r)
        for (size_t at = 0; at < row; at += info.block_bytes) {
            uint8_t *block = blocks.bytes.data() + 1 + r * row + at;
            for (size_t i = 0; i < info.block_bytes; ++i)
                block[i] = static_cast<uint8_t>(r == 0 ? 0xff : r == 1 ? 0 : random.next());
            for (size_t offset : format.halves) {
                const uint16_t half = random_half(random);
                std::memcpy(block + offset, &half, sizeof half);
            }
        }
    return blocks;
}

// Rows of f32, f16 or bf16 activations. Row 0 quantises to 127 throughout, row 1 to -127.
std::vector<uint8_t> make_activations(uint64_t m, uint64_t k, nybl_format type, Random &random) {
    std::vector<uint8_t> bytes(m * k * (type == NYBL_F32 ? 4 : 2));
    for (uint64_t i = 0; i < m * k; ++i) {
        const float value = i < k ? 1.5f : i < 2 * k ? -0.75f : random.uniform();
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        if (type == NYBL_F32) {
            std::memcpy(bytes.data() + 4 * i, &bits, 4);
            continue;
        }
        auto narrow = static_cast<uint16_t>(bits >> 16); // bf16: the upper half
        if (type == NYBL_F16)                            // normal halves of either sign, (0.25, 2)
            narrow = static_cast<uint16_t>((narrow & 0x8000) | 0x3400 | (bits & 0x0bff));
        std::memcpy(bytes.data() + 2 * i, &narrow, 2);
    }
    return bytes;
}

constexpr uint8_t kUntouched = 0xa5;
constexpr size_t kPad = 64; // bytes behind each output row that nobody may write

struct Types {
    nybl_format x = NYBL_F32, y = NYBL_F32;
    nybl_compute compute = NYBL_COMPUTE_DEFAULT;
};
size_t element_bytes(nybl_format type) {
    return type == NYBL_F32 ? 4 : 2;
}

struct Output {
    nybl_status status = NYBL_INTERNAL;
    std::vector<uint8_t> bytes;
};

Output multiply(const nybl_weights *weights, uint64_t n, uint64_t m, const void *x, const float *bias,
                Types types) {
    Output output;
    nybl_matmul_args args{};
    args.struct_size = sizeof args;
    args.m = m;
    args.x = x;
    args.x_type = types.x;
    args.y_type = types.y;
    args.compute = types.compute;
    args.y_stride = n * element_bytes(types.y) + kPad;
    args.bias = bias;
    output.bytes.assign(m * args.y_stride, kUntouched);
    args.y = output.bytes.data();
    output.status = nybl_matmul(weights, &args);
    return output;
}

// Empty where `got` is the first rows of `want`, else what differs.
std::string difference(const Output &got, const Output &want, size_t row_bytes, size_t element, uint64_t m) {
    if (got.status != NYBL_OK || want.status != NYBL_OK)
        return std::string("failed: ") + nybl_last_error();
    for (size_t i = 0; i < got.bytes.size(); ++i)
        if (got.bytes[i] != want.bytes[i]) {
            const size_t row = i / (row_bytes + kPad), column = i % (row_bytes + kPad);
            const std::string place = column < row_bytes ? "row " + std::to_string(column / element) + " of W"
                                                         : "the bytes behind the row";
            return "with M = " + std::to_string(m) + ", output row " + std::to_string(row) + ", " + place +
                   " differs from the scalar kernels";
        }
    return "";
}

constexpr uint64_t kLargestBatch = 65;

// Packed weights: the batch sizes that meet every tile of every kernel. Original blocks: those of a decode,
// and one of a prefill. brief: a few.
std::vector<uint64_t> batch_sizes(nybl_storage storage, bool brief) {
    if (brief)
        return {1, 4, 7, kLargestBatch};
    const uint64_t every = storage == NYBL_STORAGE_PACKED ? 25 : 8;
    std::vector<uint64_t> sizes;
    for (uint64_t m = 1; m <= every; ++m)
        sizes.push_back(m);
    if (storage == NYBL_STORAGE_PACKED)
        sizes.insert(sizes.end(), {33, 48, kLargestBatch});
    else
        sizes.insert(sizes.end(), {16, 33, kLargestBatch});
    return sizes;
}

class Checker {
  public:
    Checker(Report &report, bool brief)
        : report_(report), brief_(brief), scalar_(make_context(NYBL_ISA_SCALAR)) {
        const cpu::CpuRegisters registers = cpu::read_cpu_registers();
        for (nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX})
            if (cpu::isa_available(registers, isa))
                isas_.push_back(isa);
    }

    void run() {
        for (const Format &format : kFormats)
            check_format(format);
        for (const Format &format : kFormats)
            check_unquantised(format);
        // One format with a minimum and one without see the other types.
        for (nybl_format type : {NYBL_F16, NYBL_BF16})
            for (const Format *format : {&kFormats[0], &kFormats[4]})
                check_types(*format, type);
        check_experts(kFormats[1]);
        check_experts(kFormats[4]);
        check_experts(kFormats[8]);
        report_kernels();
    }

  private:
    // Where the library leaves the kernels it generates: the list of what ran.
    struct DumpFolder {
        std::filesystem::path path;
        DumpFolder() {
            std::string pattern = (std::filesystem::temp_directory_path() / "nybl-kernels-XXXXXX").string();
            if (mkdtemp(pattern.data())) {
                path = pattern;
                setenv("NYBL_JIT_DUMP", pattern.c_str(), 1);
            }
        }
        ~DumpFolder() {
            std::error_code ignored;
            if (!path.empty())
                std::filesystem::remove_all(path, ignored);
        }
        std::set<std::string> names() const {
            std::set<std::string> found;
            if (!path.empty())
                for (const auto &entry : std::filesystem::directory_iterator(path))
                    if (entry.path().extension() == ".bin")
                        found.insert(entry.path().stem().string());
            return found;
        }
    };

    DumpFolder dump_;
    Report &report_;
    const bool brief_;
    const Context scalar_;
    std::vector<nybl_isa> isas_;
    Random random_;

    static std::string name_of(nybl_format format) {
        nybl_format_info info{};
        info.struct_size = sizeof info;
        nybl_format_get_info(format, &info);
        return info.name ? info.name : "unknown";
    }

    void check_format(const Format &format) {
        // Five whole panels and one row: panels side by side, left over, and partly empty.
        const uint64_t n = brief_ ? 17 : 81, m = kLargestBatch; // a row's result does not depend on the batch
        const uint64_t k = is_super(format.id) ? 512 : 288;
        const Blocks blocks = make_blocks(format, n, k, 1, random_);
        const std::vector<uint8_t> x = make_activations(m, k, NYBL_F32, random_);
        std::vector<float> bias(n);
        for (float &value : bias)
            value = random_.uniform();
        const Weights reference = blocks.weights(scalar_.get(), NYBL_STORAGE_ORIGINAL);
        const Output want = multiply(reference.get(), n, m, x.data(), bias.data(), {});
        for (nybl_isa isa : isas_) {
            const Context context = make_context(isa);
            for (nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                const Weights weights = blocks.weights(context.get(), storage);
                std::string why =
                    nybl_context_isa(context.get()) == isa ? "" : "the context has another instruction set";
                for (uint64_t rows : batch_sizes(storage, brief_))
                    if (why.empty())
                        why = difference(multiply(weights.get(), n, rows, x.data(), bias.data(), {}), want,
                                         4 * n, 4, rows);
                report_.check(name_of(format.id) + " " + cpu::isa_name(isa) +
                                  (storage == NYBL_STORAGE_PACKED ? " packed" : " original"),
                              why.empty(), why);
            }
        }
    }

    // Products of unquantised activations: f32 kernels on dequantised panels, with every tile that M up to 13
    // makes.
    void check_unquantised(const Format &format) {
        const uint64_t n = 33, k = is_super(format.id) ? 256 : 96, m = 13;
        const Blocks blocks = make_blocks(format, n, k, 1, random_);
        const std::vector<uint8_t> x = make_activations(m, k, NYBL_F32, random_);
        const Types types{NYBL_F32, NYBL_F32, NYBL_COMPUTE_F32};
        const Weights reference = blocks.weights(scalar_.get(), NYBL_STORAGE_ORIGINAL);
        const Output want = multiply(reference.get(), n, m, x.data(), nullptr, types);
        for (nybl_isa isa : isas_) {
            const Context context = make_context(isa);
            for (nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                const Weights weights = blocks.weights(context.get(), storage);
                std::string why;
                for (uint64_t rows = brief_ ? m : 1; rows <= m && why.empty(); ++rows)
                    why = difference(multiply(weights.get(), n, rows, x.data(), nullptr, types), want, 4 * n,
                                     4, rows);
                report_.check(name_of(format.id) + " " + cpu::isa_name(isa) + " unquantised" +
                                  (storage == NYBL_STORAGE_PACKED ? " packed" : " original"),
                              why.empty(), why);
            }
        }
    }

    void check_types(const Format &format, nybl_format type) {
        const uint64_t n = 33, k = 512, m = 9;
        const Blocks blocks = make_blocks(format, n, k, 1, random_);
        const std::vector<uint8_t> x = make_activations(m, k, type, random_);
        const Weights reference = blocks.weights(scalar_.get(), NYBL_STORAGE_ORIGINAL);
        const Output want = multiply(reference.get(), n, m, x.data(), nullptr, {type, type});
        for (nybl_isa isa : isas_) {
            const Context context = make_context(isa);
            const Weights weights = blocks.weights(context.get(), NYBL_STORAGE_PACKED);
            const std::string why =
                difference(multiply(weights.get(), n, m, x.data(), nullptr, {type, type}), want, 2 * n, 2, m);
            report_.check(name_of(format.id) + " " + cpu::isa_name(isa) + " in and out " +
                              (type == NYBL_F16 ? "F16" : "BF16"),
                          why.empty(), why);
        }
    }

    void check_experts(const Format &format) {
        const uint64_t n = 33, k = 512, experts = 3, slots = 2;
        const Blocks blocks = make_blocks(format, n, k, experts, random_);
        for (uint64_t tokens : {1, 40}) { // decode, prefill
            const std::vector<uint8_t> x = make_activations(tokens, k, NYBL_F32, random_);
            std::vector<int32_t> ids(tokens * slots);
            for (size_t i = 0; i < ids.size(); ++i)
                ids[i] = i == 5 ? -1 : static_cast<int32_t>(random_.below(experts));
            const auto run = [&](nybl_context *context, nybl_storage storage) {
                const Weights weights = blocks.weights(context, storage);
                Output output;
                output.bytes.assign(tokens * slots * (4 * n + kPad), kUntouched);
                nybl_matmul_id_args args{};
                args.struct_size = sizeof args;
                args.n_tokens = tokens;
                args.n_slots = slots;
                args.ids = ids.data();
                args.x = x.data();
                args.x_type = args.y_type = NYBL_F32;
                args.y = output.bytes.data();
                args.y_slot_stride = 4 * n + kPad;
                args.y_token_stride = slots * args.y_slot_stride;
                output.status = nybl_matmul_id(weights.get(), &args);
                return output;
            };
            const Output want = run(scalar_.get(), NYBL_STORAGE_ORIGINAL);
            for (nybl_isa isa : isas_) {
                const Context context = make_context(isa);
                std::string why;
                for (nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL})
                    if (why.empty())
                        why = difference(run(context.get(), storage), want, 4 * n, 4, tokens);
                report_.check(name_of(format.id) + " " + cpu::isa_name(isa) +
                                  (tokens == 1 ? " experts, decode" : " experts, prefill"),
                              why.empty(), why);
            }
        }
    }

    // Equal results prove nothing where the scalar kernels served the call: the generated ones must be there.
    void report_kernels() {
        const std::set<std::string> names = dump_.names();
        for (const std::string &name : names)
            std::printf("checked: %s\n", name.c_str());
        for (nybl_isa isa : isas_) {
            // Tiles serve prefill alone; fewer tokens run the AVX-512 kernels.
            std::vector<const char *> kinds{"prefill", "unpack", "gather"};
            if (isa != NYBL_ISA_AMX)
                kinds.insert(kinds.end(), {"decode", "dequantize"});
            std::string missing;
            for (const Format &format : kFormats) {
                for (const char *kind : kinds)
                    if (!generated(names, kind, format.id, isa))
                        missing += std::string(" ") + kind + " " + name_of(format.id);
                if (isa != NYBL_ISA_AMX && cpu::jit::has_original_kernel(format.id) &&
                    !generated(names, "decode_original", format.id, isa))
                    missing += " decode_original " + name_of(format.id);
            }
            report_.check(std::string("kernels generated for ") + cpu::isa_name(isa), missing.empty(),
                          "missing:" + missing);
        }
    }

    static bool generated(const std::set<std::string> &names, const std::string &kind, nybl_format format,
                          nybl_isa isa) {
        std::string start = kind + "_" + name_of(format) + "_", end = std::string("_") + cpu::isa_name(isa);
        for (char &c : start)
            c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        for (const std::string &name : names)
            if (name.compare(0, start.size(), start) == 0 && name.size() > end.size() &&
                name.compare(name.size() - end.size(), end.size(), end) == 0)
                return true;
        return false;
    }
};

} // namespace

void check_kernels(Report &report, bool brief) {
    Checker(report, brief).run();
}

} // namespace nybl::emulated
