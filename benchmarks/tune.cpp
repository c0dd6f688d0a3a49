// nybl-tune: measures the numbers of dispatch's table on this machine, instruction set by instruction set,
// and writes them to a file that the library can be told to read.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <memory>

#include "arena.h"
#include "cpu/isa.h"
#include "data.h"
#include "dispatch/choose.h"
#include "machine.h"
#include "samples.h"
#include "tune_file.h"

namespace nybl::bench {
namespace {

using dispatch::KernelSet;
using dispatch::Tuning;

constexpr size_t kK = 4096, kN = 4096, kPrefillM = 128;
constexpr size_t kFirstM = 8, kLastM = 96;
constexpr double kWorthChanging = 0.98; // of the current setting's time
constexpr size_t kMostArena = size_t{512} << 20;

// How much is measured.
struct Effort {
    std::vector<nybl_format> formats{NYBL_Q4_0, NYBL_Q4_K, NYBL_Q5_1};
    size_t stream_n = kN, tile_n = kN / 4; // samples of a few milliseconds each
    size_t step_m = 4;
    size_t rounds = 3, finals = 15, finalists = 6, stream_rounds = 5;
};
constexpr size_t kWarmUp = 1; // rounds that generate code and are not counted

// Panels of one format in more memory than the last-level cache, so that calls find them where a model's lie.
class Panels {
  public:
    Panels(nybl_format id, size_t bytes)
        : format_(*quant::find_format(id)), layout_(*cpu::find_panel_layout(id)),
          panel_(cpu::panel_bytes(layout_, kK)), count_(std::max(bytes / panel_, kN / cpu::kPanelRows)),
          arena_(count_ * panel_, Pages::kHuge) {
        const size_t row = row_bytes(id, kK), distinct = kN / cpu::kPanelRows;
        const std::vector<uint8_t> blocks = random_weights(id, kN, kK, 1);
        uint8_t *panels = arena_.bytes().data();
        for (size_t p = 0; p < distinct; ++p)
            cpu::pack_panel(layout_, kK, cpu::kPanelRows, blocks.data() + p * cpu::kPanelRows * row, row,
                            panels + p * panel_);
        for (size_t p = distinct; p < count_; ++p)
            std::memcpy(panels + p * panel_, panels + (p - distinct) * panel_, panel_);
    }

    const quant::Format &format() const { return format_; }

    // The next n rows, going round.
    cpu::Matrix next(size_t n) {
        const size_t panels = n / cpu::kPanelRows;
        if (next_ + panels > count_)
            next_ = 0;
        const cpu::Matrix matrix{.format = &format_,
                                 .layout = &layout_,
                                 .data = arena_.bytes().data() + next_ * panel_,
                                 .n = n,
                                 .k = kK,
                                 .stride = panel_};
        next_ += panels;
        return matrix;
    }

  private:
    const quant::Format &format_;
    const cpu::PanelLayout &layout_;
    size_t panel_, count_, next_ = 0;
    Arena arena_;
};

// Runs products as dispatch chooses them under a given tuning.
class Runner {
  public:
    explicit Runner(const Effort &effort) : x_(normal_values(kPrefillM * kK, 1)), y_(kPrefillM * kN) {
        const Machine machine = describe_machine();
        const size_t bytes =
            std::min({machine.last_level_cache * 3 / 2, machine.available_memory / 4, kMostArena});
        for (const nybl_format format : effort.formats)
            panels_.push_back(std::make_unique<Panels>(format, bytes));
    }

    size_t formats() const { return panels_.size(); }
    const char *format_name(size_t f) const { return panels_[f]->format().name; }

    // 10^9 multiplications and additions per second of one product.
    double rate(size_t f, const Tuning &tuning, nybl_isa isa, size_t m, size_t n) {
        cpu::Product product;
        product.w = panels_[f]->next(n);
        product.y = {reinterpret_cast<uint8_t *>(y_.data()), NYBL_F32, m, n * sizeof(float), 0};
        product.kernel = dispatch::choose({.format = product.w.format->id,
                                           .storage = NYBL_STORAGE_PACKED,
                                           .compute = NYBL_COMPUTE_DEFAULT,
                                           .m = m,
                                           .n = n,
                                           .k = kK,
                                           .n_experts = 1,
                                           .isa = isa,
                                           .threads = 1,
                                           .tuning = &tuning})
                             .kernel;
        cpu::Job job;
        job.m = m;
        job.k = kK;
        job.x = {reinterpret_cast<uint8_t *>(x_.data()), NYBL_F32, m, kK * sizeof(float), 0};
        job.products = &product;
        job.n_products = 1;
        scratch_.resize(std::max(scratch_.size(), cpu::scratch_bytes(job, 1) / sizeof(Line) + 1));
        const double start = thread_seconds();
        cpu::begin(job, scratch_.data(), 1);
        cpu::quantize(job, scratch_.data(), 0, 1);
        cpu::compute(job, scratch_.data(), 0, 1);
        return 2e-9 * static_cast<double>(m * n * kK) / (thread_seconds() - start);
    }

  private:
    struct alignas(64) Line {
        uint8_t bytes[64];
    };
    std::vector<float> x_, y_;
    std::vector<Line> scratch_;
    std::vector<std::unique_ptr<Panels>> panels_;
};

// A tile shape, with the samples of each format.
struct Candidate {
    uint32_t tokens, panels;
    std::vector<Samples> samples{};
    double time = 0; // over the fastest candidate's, the formats' geometric mean

    bool is(const KernelSet &set) const { return tokens == set.tiled_tokens && panels == set.tiled_panels; }
};

std::vector<Candidate> candidates_for(const KernelSet &current) {
    std::vector<Candidate> all;
    for (const uint32_t panels : {1u, 2u, 3u, 4u})
        for (const uint32_t tokens : {2u, 3u, 4u, 5u, 6u, 8u, 10u, 12u, 16u})
            if ((panels == 1 || current.isa != NYBL_ISA_AMX) && tokens * panels <= 32)
                all.push_back({tokens, panels});
    if (std::none_of(all.begin(), all.end(), [&](const Candidate &c) { return c.is(current); }))
        all.push_back({current.tiled_tokens, current.tiled_panels});
    return all;
}

KernelSet &set_of(Tuning &tuning, nybl_isa isa) {
    return *std::find_if(std::begin(tuning.sets), std::end(tuning.sets),
                         [&](const KernelSet &set) { return set.isa == isa; });
}

class Tuner {
  public:
    Tuner(const Effort &effort, const Tuning &current)
        : effort_(effort), current_(current), measured_(current), runner_(effort) {}

    void tune(nybl_isa isa) {
        fmt::print("\n{}\n", cpu::isa_name(isa));
        tune_tiles(isa);
        tune_threshold(isa);
        print_settings(isa);
    }
    const Tuning &measured() const { return measured_; }

  private:
    void tune_tiles(nybl_isa isa) {
        const KernelSet &current = set_of(current_, isa);
        std::vector<Candidate> all = candidates_for(current);
        sample(isa, all, effort_.rounds);
        rank(all);
        // The current shape stays in the race, so that it is compared on as many samples.
        const auto keep = std::stable_partition(all.begin(), all.end(), [&](const Candidate &c) {
            return c.is(current) || c.time <= all[std::min(effort_.finalists, all.size()) - 1].time;
        });
        all.erase(keep, all.end());
        sample(isa, all, effort_.finals);
        rank(all);
        print(current, all);
        const auto now =
            std::find_if(all.begin(), all.end(), [&](const Candidate &c) { return c.is(current); });
        const Candidate &best = all.front().time < kWorthChanging * now->time ? all.front() : *now;
        record(isa, &KernelSet::tiled_tokens, best.tokens);
        record(isa, &KernelSet::tiled_panels, best.panels);
    }

    void sample(nybl_isa isa, std::vector<Candidate> &all, size_t rounds) {
        for (Candidate &candidate : all)
            candidate.samples.assign(runner_.formats(), {});
        for (size_t round = 0; round < rounds + kWarmUp; ++round)
            for (Candidate &candidate : all) {
                Tuning tuning = current_;
                set_of(tuning, isa).tiled_tokens = candidate.tokens;
                set_of(tuning, isa).tiled_panels = candidate.panels;
                for (size_t f = 0; f < runner_.formats(); ++f) {
                    const double rate = runner_.rate(f, tuning, isa, kPrefillM, effort_.tile_n);
                    if (round >= kWarmUp)
                        candidate.samples[f].add(rate);
                }
            }
    }

    // Fastest first.
    void rank(std::vector<Candidate> &all) const {
        for (Candidate &candidate : all) {
            double log_time = 0;
            for (const Samples &samples : candidate.samples)
                log_time -= std::log(samples.quiet());
            candidate.time = std::exp(log_time / static_cast<double>(runner_.formats()));
        }
        std::sort(all.begin(), all.end(),
                  [](const Candidate &a, const Candidate &b) { return a.time < b.time; });
        const double best = all.front().time;
        for (Candidate &candidate : all)
            candidate.time /= best;
    }

    void print(const KernelSet &current, const std::vector<Candidate> &all) const {
        fmt::print("  tiles at M = {}, N = {}: GFLOP/s, 95th percentile (median)\n  {:16}", kPrefillM,
                   effort_.tile_n, "rows x tokens");
        for (size_t f = 0; f < runner_.formats(); ++f)
            fmt::print("{:>15}", runner_.format_name(f));
        fmt::print("{:>8}\n", "time");
        for (const Candidate &candidate : all) {
            fmt::print("  {:16}", fmt::format("{}x{}{}", candidate.panels * cpu::kPanelRows, candidate.tokens,
                                              candidate.is(current) ? " (now)" : ""));
            for (const Samples &samples : candidate.samples)
                fmt::print("{:>15}", fmt::format("{:.0f} ({:.0f})", samples.quiet(), samples.median()));
            fmt::print("{:8.3f}\n", candidate.time);
        }
    }

    // Where streaming ends: the M that contradicts as few majorities as possible, which is the last one
    // before tiling wins where there is one such point.
    void tune_threshold(nybl_isa isa) {
        fmt::print("  time of tiling over time of streaming, N = {}: 95th percentiles (medians)\n  {:>4}",
                   effort_.stream_n, "M");
        for (size_t f = 0; f < runner_.formats(); ++f)
            fmt::print("{:>15}", runner_.format_name(f));
        fmt::print("   faster\n");
        std::vector<std::pair<size_t, bool>> tiling_wins;
        for (size_t m = kFirstM; m <= kLastM; m += effort_.step_m)
            tiling_wins.emplace_back(m, tiling_wins_at(isa, m));
        size_t best = 0, least = SIZE_MAX;
        for (size_t last = kFirstM - 1; last <= kLastM; last += last < kFirstM ? 1 : effort_.step_m) {
            const auto against = static_cast<size_t>(
                std::count_if(tiling_wins.begin(), tiling_wins.end(),
                              [&](const auto &at) { return at.second == (at.first <= last); }));
            if (against <= least) {
                least = against;
                best = last;
            }
        }
        record(isa, &KernelSet::stream_max_m, static_cast<uint32_t>(best));
    }

    bool tiling_wins_at(nybl_isa isa, size_t m) {
        Tuning stream = measured_, tile = measured_;
        set_of(stream, isa).stream_max_m = kLastM;
        set_of(tile, isa).stream_max_m = kFirstM - 1;
        std::vector<std::array<Samples, 2>> samples(runner_.formats());
        for (size_t round = 0; round < effort_.stream_rounds + kWarmUp; ++round)
            for (size_t f = 0; f < runner_.formats(); ++f) {
                const std::array rates = {runner_.rate(f, stream, isa, m, effort_.stream_n),
                                          runner_.rate(f, tile, isa, m, effort_.stream_n)};
                for (size_t i = 0; round >= kWarmUp && i < 2; ++i)
                    samples[f][i].add(rates[i]);
            }
        size_t wins = 0;
        fmt::print("  {:4}", m);
        for (const auto &[streamed, tiled] : samples) {
            wins += tiled.quiet() > streamed.quiet();
            fmt::print("{:>15}", fmt::format("{:.2f} ({:.2f})", streamed.quiet() / tiled.quiet(),
                                             streamed.median() / tiled.median()));
        }
        const bool tiling = 2 * wins > runner_.formats();
        fmt::print("   {}\n", tiling ? "tiling" : "streaming");
        return tiling;
    }

    void record(nybl_isa isa, dispatch::Setting KernelSet::*member, uint32_t value) {
        dispatch::Setting &setting = set_of(measured_, isa).*member;
        setting = value;
        setting.from_file = true;
    }

    void print_settings(nybl_isa isa) {
        fmt::print("  {:16}{:>14}{:>12}\n", "setting", "now", "measured");
        for (const dispatch::SettingKey &key : dispatch::kSettingKeys) {
            const dispatch::Setting now = set_of(current_, isa).*key.member;
            const bool was_measured = key.member != &KernelSet::stream_tokens;
            fmt::print("  {:16}{:>14}{:>12}\n", key.name, fmt::format("{} ({})", now.value, now.source()),
                       was_measured ? std::to_string((set_of(measured_, isa).*key.member).value) : "-");
        }
        std::fflush(stdout);
    }

    const Effort effort_;
    Tuning current_, measured_;
    Runner runner_;
};

std::vector<nybl_isa> runnable(const std::vector<std::string> &names) {
    const nybl_isa best = cpu::effective_isa(NYBL_ISA_BEST);
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    std::vector<nybl_isa> isas;
    for (const KernelSet &set : dispatch::kBuiltInTuning.sets)
        if (set.isa <= best && cpu::isa_available(registers, set.isa) &&
            (names.empty() || std::count(names.begin(), names.end(), cpu::isa_name(set.isa)) > 0))
            isas.push_back(set.isa);
    return isas;
}

// A file may hold what was measured before for other instruction sets: that stays.
Tuning merged(const Tuning &measured, const std::vector<nybl_isa> &isas, const std::string &path) {
    Tuning tuning = dispatch::read_tuning(path.c_str(), cpu::cpu_model().text);
    for (const nybl_isa isa : isas)
        set_of(tuning, isa) = *measured.find(isa);
    return tuning;
}

int run(int argc, char **argv) {
    CLI::App app(
        "nybl-tune: measures where streaming ends and tiling begins, and which tiles are fastest, on one "
        "thread of this machine. Results of products do not depend on these numbers, their speed does.",
        "nybl-tune");
    std::vector<std::string> names;
    std::string path;
    bool quick = false;
    app.add_option("--isa", names, "Instruction sets to measure (default: all of this machine)")
        ->delimiter(',')
        ->check(CLI::IsMember({"avx2", "avx_vnni", "avx512_vnni", "amx"}));
    const CLI::Option *write =
        app.add_option("--write", path,
                       "Write a file for NYBL_TUNING (default: $NYBL_TUNING, or nybl/tuning in ~/.config)")
            ->expected(0, 1);
    app.add_flag("--quick", quick, "A smoke test: what it finds means nothing");
    CLI11_PARSE(app, argc, argv);

    const std::vector<nybl_isa> isas = runnable(names);
    if (isas.empty()) {
        fmt::print(stderr,
                   "nybl-tune: this machine (or NYBL_MAX_ISA) allows none of these instruction sets\n");
        return 1;
    }
    const Tuning &current = dispatch::host_tuning();
    if (current.refusal[0] != '\0')
        fmt::print("the file that NYBL_TUNING names is ignored: {}\n", current.refusal);
    const cpu::CpuModel model = cpu::cpu_model();
    fmt::print("{}, one thread, K = {}\n", model.text, kK);
    const PinnedScope pinned(describe_machine().cores.back());
    Effort effort;
    if (quick)
        effort = {{NYBL_Q4_0}, 64, 64, 40, 1, 1, 2, 1};
    Tuner tuner(effort, current);
    for (const nybl_isa isa : isas)
        tuner.tune(isa);
    if (write->count() == 0)
        return 0;
    if (path.empty())
        path = default_tuning_path();
    write_tuning_file(path, tuning_text(merged(tuner.measured(), isas, path), model.text));
    fmt::print("\nwritten: {}\nthe library reads it where the environment says NYBL_TUNING={}\n", path, path);
    return 0;
}

} // namespace
} // namespace nybl::bench

int main(int argc, char **argv) {
    try {
        return nybl::bench::run(argc, argv);
    } catch (const std::exception &error) {
        fmt::print(stderr, "nybl-tune: {}\n", error.what());
    }
    return 1;
}
