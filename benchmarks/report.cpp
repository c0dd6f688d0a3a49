// Plain-text reports.
#include "report.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <map>

namespace nybl::bench {
namespace {

constexpr double kGiga = 1e-9;

// Cases that share a heading: same matrix and instruction set, decode and prefill together.
std::string heading(const Case &of) {
    std::string op = of.op->name;
    if (op == "decode" || op == "prefill")
        op = "decode, prefill";
    else if (op == "decode_original" || op == "prefill_original")
        op = "original blocks";
    std::string text = fmt::format("{}, N x K = {} x {}", op, of.n, of.k);
    if (of.experts > 1)
        text += fmt::format(", {} of {} experts", of.used, of.experts);
    if (of.source && !of.source->origin.empty())
        text += fmt::format(" ({} tensors: {})", of.source->tensors.size(), of.source->origin);
    return text + fmt::format(", {}", of.isa_name());
}

std::string share(double value) {
    return value < 0 ? std::string("-") : fmt::format("{:.2f}", value);
}

std::string rate(const Result &result) {
    if (result.of.m > 1)
        return fmt::format("{:8.1f} GFLOP/s", result.flops_rate * kGiga);
    return fmt::format("{:8.2f} GB/s   ", result.bytes_rate * kGiga);
}

struct Row {
    std::string format;
    uint64_t m;
    std::map<unsigned, const Result *> by_threads;
};

struct Group {
    std::string heading;
    std::vector<Row> rows;
    std::set<unsigned> threads;
};

std::vector<Group> grouped(const std::vector<Result> &results) {
    std::vector<Group> groups;
    for (const Result &result : results) {
        const std::string text = heading(result.of), format = format_info(result.of.format).name;
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const Group &other) { return other.heading == text; });
        if (group == groups.end())
            group = groups.insert(groups.end(), {text, {}, {}});
        auto row = std::find_if(group->rows.begin(), group->rows.end(), [&](const Row &other) {
            return other.format == format && other.m == result.of.m;
        });
        if (row == group->rows.end())
            row = group->rows.insert(group->rows.end(), {format, result.of.m, {}});
        row->by_threads[result.of.threads] = &result;
        group->threads.insert(result.of.threads);
    }
    return groups;
}

void print_row(std::FILE *out, const Row &row, const std::set<unsigned> &threads) {
    fmt::print(out, "  {:7}{:>5}", row.format, row.m);
    const Result *any = row.by_threads.begin()->second;
    const bool with_peer = std::any_of(row.by_threads.begin(), row.by_threads.end(),
                                       [](const auto &entry) { return entry.second->peer >= 0; });
    for (const unsigned count : threads) {
        const auto found = row.by_threads.find(count);
        if (found == row.by_threads.end())
            fmt::print(out, " | {:39}", "");
        else if (!found->second->error.empty())
            fmt::print(out, " | {:39}", "FAILED");
        else
            fmt::print(out, " | {} {:>5} {:>7} {:>8}", rate(*found->second), share(found->second->roof),
                       share(found->second->roof_median), share(found->second->dot_roof));
    }
    if (any->nmse >= 0)
        fmt::print(out, " | {:8.1e}", any->nmse);
    else
        fmt::print(out, " | {:8}", "");
    if (with_peer) {
        fmt::print(out, " | ggml");
        for (const auto &[threads_used, result] : row.by_threads)
            if (result->peer >= 0)
                fmt::print(out, " x{:.2f} ({})", result->peer, result->peer_path);
    }
    fmt::print(out, " {}{}\n", any->error.empty() ? any->kernel : any->error,
               any->vs_ggml >= 0 ? fmt::format(", {:.2f} x ggml", any->vs_ggml) : "");
}

} // namespace

void print_machine(std::FILE *out, Shared &shared, const Arena &arena) {
    const Machine &machine = shared.machine;
    fmt::print(out, "{}; {} of its cores, last-level cache {} MiB; {}\n",
               machine.cpu.empty() ? "unknown processor" : machine.cpu, machine.cores.size(),
               machine.last_level_cache >> 20, nybl_build_info());
    // For the JSON report, whose "library_build_type" speaks of Google Benchmark.
    benchmark::AddCustomContext("nybl", nybl_build_info());
    fmt::print(out, "weights: {}, {:.0f} % of them on 2 MiB pages\n",
               shared.options.hot ? std::string("hot, one copy")
                                  : fmt::format("cycled through {} MiB", arena.bytes().size() >> 20),
               100 * arena.huge_share());
    if (arena.bytes().size() < machine.last_level_cache && !shared.options.hot)
        fmt::print(out,
                   "warning: that is less than the last-level cache, so decode figures are partly cached\n");
}

void print_limits(std::FILE *out, Shared &shared, const std::vector<unsigned> &threads) {
    constexpr double kSeconds = 0.15;
    // Also for the JSON report, as "read/t1" and the like.
    const auto row = [&](const char *key, const char *title, const auto &measure) {
        fmt::print(out, "  {:54}", title);
        for (const unsigned count : threads) {
            const LimitFigures figures = measure(count);
            fmt::print(out, " {:10.1f} {:>10}", figures.quiet * kGiga,
                       fmt::format("({:.1f})", figures.median * kGiga));
            benchmark::AddCustomContext(fmt::format("{}/t{}", key, count),
                                        fmt::format("{:.1f}", figures.quiet * kGiga));
        }
        fmt::print(out, "\n");
    };
    fmt::print(out, "  {:54}", "limits: quiet rate (median)");
    for (const unsigned count : threads)
        fmt::print(out, " {:>21}", fmt::format("{} thread{}", count, count == 1 ? "" : "s"));
    fmt::print(out, "\n");
    row("read", "streaming read, GB/s",
        [&](unsigned count) { return shared.limits.measure_read(count, kSeconds); });
    for (const Peak peak : kAllPeaks)
        if (peak_available(peak))
            row(peak_key(peak), fmt::format("{}, GFLOP/s", peak_name(peak)).c_str(),
                [&](unsigned count) { return shared.limits.measure_peak(peak, count, kSeconds); });
    for (const unsigned count : threads)
        fmt::print(out, "  fastest of {} readers on {} thread{}: {}\n", reader_shapes().size(), count,
                   count == 1 ? "" : "s", shared.limits.reader(count).describe());
    fmt::print(out, "\n");
    std::fflush(out);
}

void print_table(std::FILE *out, const Shared &shared) {
    fmt::print(
        out, "\nroof: share of the streaming read (M <= 16, moe) or of the dot limit (M > 16); dot: share of "
             "dot1 or vpdpbusd;\nboth from the quiet rates, med from medians; nmse: against f64\n");
    for (const Group &group : grouped(shared.results)) {
        fmt::print(out, "\n{}\n  {:7}{:>5}", group.heading, "format", "M");
        for (const unsigned count : group.threads)
            fmt::print(out, " | {:16} {:>5} {:>7} {:>8}",
                       fmt::format("{} thread{}", count, count == 1 ? "" : "s"), "roof", "med", "dot");
        fmt::print(out, " | {:8} {}\n", "nmse", "kernel");
        for (const Row &row : group.rows)
            print_row(out, row, group.threads);
    }
    if (shared.left_out > 0)
        fmt::print(out, "\n{} cases left out: the time budget of {:.0f} s was spent (--budget)\n",
                   shared.left_out, shared.options.budget_seconds);
    if (shared.failures > 0)
        fmt::print(out, "\n{} case runs FAILED\n", shared.failures);
}

} // namespace nybl::bench
