// nybl-bench: speed of the library's kernels against the limits of the machine.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "arena.h"
#include "gguf/gguf.h"
#include "machine.h"
#include "options.h"
#include "quality.h"
#include "report.h"
#include "runner.h"

namespace nybl::bench {
namespace {

// Google Benchmark's flags and ours, told apart by their prefix. Defaults go first, so that given ones win.
struct Arguments {
    std::vector<char *> google, own;
    bool machine_readable = false; // stdout carries JSON or CSV alone

    Arguments(int argc, char **argv, char *shorter_time, char *quick_time, char *list_cases) {
        const bool quick = std::any_of(argv, argv + argc,
                                       [](const char *text) { return std::string_view(text) == "--quick"; });
        google = {argv[0], quick ? quick_time : shorter_time};
        own = {argv[0]};
        for (int i = 1; i < argc; ++i) {
            const std::string_view text = argv[i];
            (text.starts_with("--benchmark_") || text.starts_with("--v=") ? google : own).push_back(argv[i]);
            if (text == "--benchmark_format=json" || text == "--benchmark_format=csv" ||
                text.starts_with("--benchmark_list_tests"))
                machine_readable = true;
            // By Google Benchmark's own list, to which --benchmark_filter applies.
            if (text == "--list")
                google.push_back(list_cases);
        }
    }
};

// Without a word about what to run: the model that ./dev found and the main shapes, in under three minutes.
void fill_defaults(Options &options, bool bare) {
    if (bare)
        options.budget_seconds = 160;
    const char *found_model = std::getenv("NYBL_MODEL");
    if (options.shapes.empty()) {
        if (options.model.empty() && found_model != nullptr && *found_model != '\0' && !options.quick)
            options.model = found_model;
        options.shapes = {options.quick ? "quick" : "main"};
    }
    if (options.shapes == std::vector<std::string>{"none"})
        options.shapes.clear();
}

size_t arena_bytes(const Options &options, const Machine &machine) {
    const auto wanted =
        static_cast<size_t>(options.arena_factor * static_cast<double>(machine.last_level_cache));
    const size_t allowed = machine.available_memory / 2; // the rest is for packing and for everybody else
    const size_t least = size_t{256} << 20;
    const size_t bytes = options.hot ? least : std::max(wanted, least);
    return allowed == 0 ? bytes : std::min(bytes, allowed);
}

std::vector<unsigned> threads_of(const std::vector<Case> &cases) {
    std::set<unsigned> counts;
    for (const Case &of : cases)
        counts.insert(of.threads);
    return {counts.begin(), counts.end()};
}

int run(int argc, char **argv) {
    char shorter_time[] = "--benchmark_min_time=0.1", quick_time[] = "--benchmark_min_time=0.01",
         list_cases[] = "--benchmark_list_tests=true";
    Arguments arguments(argc, argv, shorter_time, quick_time, list_cases);
    Options options;
    int exit_code = 0;
    if (!parse_options(static_cast<int>(arguments.own.size()), arguments.own.data(), options, exit_code))
        return exit_code;
    auto google_count = static_cast<int>(arguments.google.size());
    benchmark::Initialize(&google_count, arguments.google.data());
    if (benchmark::ReportUnrecognizedArguments(google_count, arguments.google.data()))
        return 1;
    fill_defaults(options, argc == 1);

    if (!options.quality.empty())
        return report_quality(options);

    std::FILE *out = arguments.machine_readable ? stderr : stdout;
    std::optional<gguf::MappedFile> model;
    if (!options.model.empty()) {
        std::string error;
        model = gguf::MappedFile::open(options.model, error);
        if (!model) {
            fmt::print(stderr, "nybl-bench: {}\n", error);
            return 1;
        }
    }

    const Machine machine = describe_machine();
    const Arena arena(arena_bytes(options, machine), options.pages);
    Shared shared(options, machine, arena.bytes());
    if (options.limits_only) {
        print_machine(out, shared, arena);
        print_limits(out, shared,
                     options.threads.empty() ? std::vector{1u, static_cast<unsigned>(machine.cores.size())}
                                             : options.threads);
        return 0;
    }

    if (!options.peer.empty())
        shared.peer = std::make_unique<GgmlPeer>(options.peer);
    Absent absent;
    const std::vector<Case> cases = collect_cases(shared, model ? &model->contents() : nullptr, absent);
    if (options.list) {
        register_cases(shared, cases);
        if (benchmark::RunSpecifiedBenchmarks() > 0)
            return 0;
        fmt::print(stderr, "nybl-bench: no case that fits\n");
        return 1;
    }
    print_machine(out, shared, arena);
    if (model)
        fmt::print(out, "model: {} ({})\n", model->contents().text("general.name").value_or("unnamed"),
                   options.model);
    for (const auto &[kind, formats] : absent)
        fmt::print(out,
                   "no kernel in this build: {} of {} (where reference code serves it, --op runs that)\n",
                   kind, fmt::join(formats, ", "));
    print_limits(out, shared, threads_of(cases));

    register_cases(shared, cases);
    if (benchmark::RunSpecifiedBenchmarks() == 0 && !cases.empty()) {
        fmt::print(stderr, "nybl-bench: the filter leaves no case; --list without it names them\n");
        return 1;
    }
    print_table(out, shared);
    return shared.failures == 0 ? 0 : 1;
}

} // namespace
} // namespace nybl::bench

int main(int argc, char **argv) {
    try {
        return nybl::bench::run(argc, argv);
    } catch (const nybl::bench::ApiError &error) {
        fmt::print(stderr, "nybl-bench: {}\n", error.text);
    } catch (const std::exception &error) {
        fmt::print(stderr, "nybl-bench: {}\n", error.what());
    }
    return 1;
}
