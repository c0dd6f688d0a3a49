// Flags through CLI11, and a --help that teaches how to read the figures.
#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

namespace nybl::bench {
namespace {

constexpr const char *kIntroduction =
    R"(nybl-bench: speed of the library's kernels against the limits of this machine.

A case is named op/format/MxNxK/isa/tT: M tokens, N weight rows, K their length, T threads. Examples:
  nybl-bench                                        the main shapes of every format
  nybl-bench --benchmark_filter=decode/Q4_1/1x      one token, Q4_1
  nybl-bench --isa avx2,avx512_vnni --threads 1     two instruction sets, one thread
  nybl-bench --model model.gguf                     the tensors of a real model
  nybl-bench --shapes tails --op decode,prefill     odd sizes (benchmarks/shapes/tails.txt)
  nybl-bench --benchmark_out=a.json                 JSON beside the table

Ops: decode (M <= 16), prefill (M > 16), moe (M tokens over experts of N x K each), decode_original and
prefill_original (blocks used where they lie), prefill_f32 (unquantised activations), vec_dot, pack, quantize,
quantize_importance, quantize_fast (NYBL_LEVEL_FAST), dequantize.)";

constexpr const char *kReading =
    R"(Every case checks its output first, against the scalar kernels bit for bit, on sampled rows and columns; a
mismatch fails the case and the program. On a GPU (--gpu) the check is an nmse below 1e-4; outputs and activations are
copied in every call, weights stay on the device (one copy: a cache may hold it), and there are no limits to hold
it against. The counters:
  GB/s         weight bytes per second (codecs: bytes read and written)
  GFLOP/s      2*M*N*K per second
  roof         decode, moe: share of a streaming read on the same threads and pages; prefill: share of the
               instruction set's dot limit (AVX2: dot2; VNNI: vpdpbusd; AMX: tdpbusd; prefill_f32: f32 fma);
               quantize and dequantize: share of a copy of the same byte counts
  vs_ggml      the quantize ops: times as fast as ggml's encoder on one thread, sampled in turn (--ggml)
  dot_roof     GFLOP/s over dot1 (vpmaddubsw + vpmaddwd + vpaddd) on AVX2, over vpdpbusd elsewhere
  roof_median  roof from medians; roof and dot_roof come from the 95th percentiles, the quiet machine
  ggml         --peer: our rate over the better of ggml's paths, plain and repacked, sampled in turn with ours
  nmse         squared error against f64 arithmetic on the dequantised weights, over the squared result
Samples of kernel and limits alternate every few milliseconds, so a slow moment hits both.

All flags of Google Benchmark work: --benchmark_filter=REGEX, --benchmark_min_time=SECONDS,
--benchmark_repetitions=N, --benchmark_format=json, --benchmark_out=FILE, ...)";

const std::map<std::string, nybl_isa> kIsas = {
    {"best", NYBL_ISA_BEST},         {"scalar", NYBL_ISA_SCALAR},           {"avx2", NYBL_ISA_AVX2},
    {"avx_vnni", NYBL_ISA_AVX_VNNI}, {"avx512_vnni", NYBL_ISA_AVX512_VNNI}, {"amx", NYBL_ISA_AMX}};

std::map<std::string, nybl_format> weight_formats() {
    std::map<std::string, nybl_format> names;
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0, NYBL_Q4_K,
                                     NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW}) {
        nybl_format_info info{};
        info.struct_size = sizeof info;
        if (nybl_format_get_info(format, &info) == NYBL_OK)
            names.emplace(info.name, format);
    }
    return names;
}

// Both sides on the same instruction set: a ggml is built for one.
bool find_peer(const std::string &name, Options &options) {
    if (name.empty())
        return true;
    if (name.starts_with("ggml=")) {
        options.peer = name.substr(5);
        return true;
    }
    const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
    const std::string folder = cache ? cache : std::string(home ? home : "") + "/.cache";
    const bool only_avx2 = options.isas == std::vector{NYBL_ISA_AVX2};
    options.peer = folder + "/nybl/engine/" + (only_avx2 ? "avx2" : "native") + "/bin/libggml-cpu.so";
    return name == "ggml";
}

} // namespace

bool parse_options(int argc, char **argv, Options &options, int &exit_code) {
    CLI::App app(kIntroduction, "nybl-bench");
    app.footer(kReading);
    bool small_pages = false;
    app.add_option("--isa", options.isas, "Instruction sets to run, each as a cap (default: the best here)")
        ->delimiter(',')
        ->transform(CLI::CheckedTransformer(kIsas, CLI::ignore_case));
    app.add_option("--gpu", options.gpu,
                   "Run on this OpenCL device (0: the first) instead of the CPU; the field isa is its name");
    app.add_option("--threads", options.threads, "Thread counts (default: 1 and all cores)")
        ->delimiter(',')
        ->check(CLI::Range(1u, 1024u));
    app.add_option("--format", options.formats, "Weight formats (default: all that have kernels)")
        ->delimiter(',')
        ->transform(CLI::CheckedTransformer(weight_formats(), CLI::ignore_case));
    app.add_option("--op", options.ops, "Operations (default: those of the shape files)")->delimiter(',');
    app.add_option("--shapes", options.shapes, "Shape files, by path or by name (default: main)")
        ->delimiter(',');
    app.add_option("--model", options.model,
                   "Run the tensors of this GGUF file too; with --shapes none, alone");
    std::string peer;
    app.add_option(
        "--peer", peer,
        "Run decode and prefill through a peer as well: ggml (as ./dev engine built it; the AVX2 build with "
        "--isa avx2), or ggml=LIBRARY, a libggml-cpu.so");
    app.add_option(
        "--ggml", options.ggml,
        "ggml's libggml-base.so, to compare quantizers with (default: NYBL_GGML in the environment)");
    app.add_option("--quality", options.quality,
                   "Requantize the matrices of this GGUF file into every format and print the errors, beside "
                   "ggml's (--ggml)");
    app.add_option("--quality-csv", options.quality_csv,
                   "Write the figures of --quality here, for benchmarks/plot_quality.py");
    app.add_option("--quality-rows", options.quality_rows,
                   "Rows of a matrix that --quality takes, evenly spaced; 0: all")
        ->capture_default_str();
    app.add_flag("--hot", options.hot, "Keep the weights in the caches instead of cycling through memory");
    app.add_flag("--quick", options.quick, "A smoke test: few small cases, shortly");
    app.add_flag("--list", options.list, "List the cases (those that --benchmark_filter leaves) and end");
    app.add_flag("--limits", options.limits_only, "Measure the limits and end");
    app.add_flag("--small-pages", small_pages, "4 KiB pages for weights and read limit instead of 2 MiB");
    app.add_option(
           "--budget", options.budget_seconds,
           "Seconds after which no further case starts (default: 160 without other arguments, else none)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--arena", options.arena_factor, "Memory to cycle through, in last-level caches")
        ->check(CLI::Range(0.1, 64.0))
        ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        exit_code = app.exit(error);
        return false;
    }
    if (!find_peer(peer, options)) {
        std::fprintf(stderr, "nybl-bench: --peer: there is no peer '%s' (ggml, or ggml=LIBRARY)\n",
                     peer.c_str());
        exit_code = 1;
        return false;
    }
    options.pages = small_pages ? Pages::kSmall : Pages::kHuge;
    return true;
}

} // namespace nybl::bench
