// The timed loop and the counters.
#include "runner.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <ctime>
#include <optional>

namespace nybl::bench {
namespace {

constexpr double kSampleSeconds = 2e-3;

// The dot limit that prefill is held against, and the plain one of dot_roof.
std::optional<Peak> roof_peak(nybl_isa isa) {
    switch (isa) {
    case NYBL_ISA_AVX2:
        return Peak::kDot2;
    case NYBL_ISA_AVX_VNNI:
        return Peak::kVnniYmm;
    case NYBL_ISA_AVX512_VNNI:
        return Peak::kVnniZmm;
    case NYBL_ISA_AMX:
        return Peak::kAmx;
    default:
        return std::nullopt;
    }
}

std::optional<Peak> dot_peak(nybl_isa isa) {
    if (isa == NYBL_ISA_AVX2)
        return Peak::kDot1;
    return isa == NYBL_ISA_AMX ? Peak::kVnniZmm : roof_peak(isa);
}

std::optional<Peak> fma_peak(nybl_isa isa) {
    if (isa == NYBL_ISA_AVX2 || isa == NYBL_ISA_AVX_VNNI)
        return Peak::kFmaYmm;
    return isa == NYBL_ISA_SCALAR ? std::nullopt : std::optional(Peak::kFmaZmm);
}

// A pool's threads may spin for a while after a call, which would take a core from the limit's threads.
void wait_until_idle() {
    for (int tries = 0; tries < 2000; ++tries) {
        const double before = process_seconds();
        const timespec pause{0, 100000};
        nanosleep(&pause, nullptr);
        if (process_seconds() - before < 40e-6)
            return;
    }
}

class Measurement {
  public:
    Measurement(Shared &shared, const Case &of, Workload &workload)
        : shared_(shared), of_(of), workload_(workload) {
        if (!of.device.empty())
            return; // no limit of the CPU is one of the device
        if (of.op->roof == Roof::kDot)
            roof_peak_ = roof_peak(of.isa);
        else if (of.op->roof == Roof::kFma)
            roof_peak_ = fma_peak(of.isa);
        if (of.op->dot_roof)
            dot_peak_ = dot_peak(of.isa);
        if (roof_peak_ && !peak_available(*roof_peak_))
            roof_peak_.reset();
        if (dot_peak_ && !peak_available(*dot_peak_))
            dot_peak_.reset();
        shared.limits.set_memory(of.hot ? shared.pool.used() : shared.arena);
        if (of.op->roof == Roof::kRead)
            shared.limits.reader(of.threads); // chosen before the clock runs
    }

    // One sample of `calls` calls; false where one failed.
    bool sample(uint64_t calls) {
        const double start = now();
        for (uint64_t i = 0; i < calls; ++i)
            if (workload_.call() != NYBL_OK)
                return false;
        last_seconds_ = std::max(now() - start, 1e-9);
        kernel_.add(static_cast<double>(calls) / last_seconds_);
        return true;
    }

    // The limits' turn; after a long sample several, so that they do not rest on a handful.
    void sample_limits() {
        if (!of_.device.empty())
            return;
        if (of_.threads > 1)
            wait_until_idle();
        const int rounds = std::clamp(static_cast<int>(last_seconds_ / 10e-3), 1, 8);
        for (int round = 0; round < rounds; ++round) {
            if (of_.op->roof == Roof::kRead)
                roof_.add(shared_.limits.sample_read(of_.threads));
            else if (of_.op->roof == Roof::kCopy)
                sample_other(workload_.copy, 1, roof_);
            else if (roof_peak_)
                roof_.add(shared_.limits.sample_peak(*roof_peak_, of_.threads));
            if (workload_.rival)
                sample_other(workload_.rival, workload_.rival_share, rival_);
            if (dot_peak_ && dot_peak_ != roof_peak_)
                dot_.add(shared_.limits.sample_peak(*dot_peak_, of_.threads));
        }
        if (of_.threads > 1)
            workload_.call(); // wakes the pool for the next sample
    }

    // The peer's turn: every path, as many calls as take a sample's time.
    bool sample_peers() {
        for (size_t path = 0; path < workload_.peers.size(); ++path) {
            if (of_.threads > 1)
                wait_until_idle();
            const double start = now();
            for (uint64_t i = 0; i < workload_.peer_calls[path]; ++i)
                if (!workload_.peers[path].call())
                    return false;
            peers_.resize(workload_.peers.size());
            peers_[path].add(static_cast<double>(workload_.peer_calls[path]) / std::max(now() - start, 1e-9));
        }
        return true;
    }

    Result result() {
        Result result;
        result.of = of_;
        result.kernel = workload_.kernel;
        result.nmse = workload_.nmse;
        result.seconds = 1 / kernel_.median();
        result.bytes_rate = workload_.bytes * kernel_.median();
        result.flops_rate = workload_.flops * kernel_.median();
        if (!roof_.empty()) {
            const double amount = of_.op->roof == Roof::kRead   ? workload_.bytes
                                  : of_.op->roof == Roof::kCopy ? 1
                                                                : workload_.flops;
            result.roof = amount * kernel_.quiet() / roof_.quiet();
            result.roof_median = amount * kernel_.median() / roof_.median();
        }
        for (size_t path = 0; path < peers_.size(); ++path)
            if (const double rate = peers_[path].median(); workload_.flops * rate > result.peer_flops_rate) {
                result.peer_flops_rate = workload_.flops * rate;
                result.peer = kernel_.median() / rate;
                result.peer_path = workload_.peers[path].name;
            }
        if (!rival_.empty())
            result.vs_ggml = kernel_.quiet() / rival_.quiet();
        if (dot_peak_)
            result.dot_roof =
                workload_.flops * kernel_.quiet() / (dot_peak_ == roof_peak_ ? roof_ : dot_).quiet();
        return result;
    }

  private:
    double now() const { return of_.threads == 1 && of_.device.empty() ? thread_seconds() : wall_seconds(); }

    // What does `share` of a call.
    void sample_other(const std::function<void()> &other, double share, Samples &samples) {
        const double start = now();
        other();
        samples.add(share / std::max(now() - start, 1e-9));
    }

    Shared &shared_;
    const Case &of_;
    Workload &workload_;
    std::optional<Peak> roof_peak_, dot_peak_;
    Samples kernel_, roof_, dot_, rival_;
    std::vector<Samples> peers_;
    double last_seconds_ = 0;
};

template <class Call>
uint64_t calls_per_sample(const Case &of, const Call &call) {
    const double start = wall_seconds();
    uint64_t calls = 0;
    double seconds = 0;
    do {
        call();
        ++calls;
        seconds = wall_seconds() - start;
    } while (seconds < kSampleSeconds);
    const double wanted = of.threads > 1 ? 2 * kSampleSeconds : kSampleSeconds; // a wake-up counts less
    return std::max<uint64_t>(1, static_cast<uint64_t>(wanted * static_cast<double>(calls) / seconds));
}

void count_calls(const Case &of, Workload &workload) {
    // Where the first call was long, it told enough.
    const bool long_call = workload.first_seconds > 10 * kSampleSeconds;
    workload.calls_per_sample = long_call ? 1 : calls_per_sample(of, workload.call);
    for (const PeerPath &path : workload.peers)
        workload.peer_calls.push_back(calls_per_sample(of, path.call));
}

void set_counters(benchmark::State &state, const Result &result) {
    state.SetLabel(result.kernel);
    state.counters["GB/s"] = result.bytes_rate * 1e-9;
    if (result.flops_rate > 0)
        state.counters["GFLOP/s"] = result.flops_rate * 1e-9;
    if (result.roof >= 0) {
        state.counters["roof"] = result.roof;
        state.counters["roof_median"] = result.roof_median;
    }
    if (result.dot_roof >= 0)
        state.counters["dot_roof"] = result.dot_roof;
    if (result.peer >= 0) {
        state.counters["ggml"] = result.peer;
        state.counters["ggml_GFLOP/s"] = result.peer_flops_rate * 1e-9;
    }
    if (result.vs_ggml >= 0)
        state.counters["vs_ggml"] = result.vs_ggml;
    if (result.nmse >= 0)
        state.counters["nmse"] = result.nmse;
}

// Cases run one after the other, each several times over: the last one stays prepared.
struct Prepared {
    std::string name;
    Workload workload;
};

class Runner {
  public:
    explicit Runner(Shared &shared) : shared_(shared) {}

    void run(benchmark::State &state, const Case &of) {
        if (out_of_time() && prepared_.name != of.name()) {
            state.SkipWithError("left out: the time budget is spent (--budget)");
            ++shared_.left_out;
            return;
        }
        try {
            Workload &workload = prepare(of);
            if (!workload.mismatch.empty())
                return fail(state, of, "wrong output: " + workload.mismatch);
            measure(state, of, workload);
        } catch (const ApiError &error) {
            fail(state, of, error.text);
        }
    }

  private:
    bool out_of_time() const {
        const double budget = shared_.options.budget_seconds;
        return budget > 0 && wall_seconds() - start_ > budget;
    }

    Workload &prepare(const Case &of) {
        const std::string name = of.name();
        if (prepared_.name != name) {
            prepared_ = {};
            of.op->prepare(shared_, of, prepared_.workload);
            if (prepared_.workload.mismatch.empty())
                count_calls(of, prepared_.workload);
            prepared_.name = name;
        }
        return prepared_.workload;
    }

    void measure(benchmark::State &state, const Case &of, Workload &workload) {
        Measurement measurement(shared_, of, workload);
        const PinnedScope pinned(shared_.machine.cores[0]);
        // Google Benchmark's own clock stands still while the limits have their turn.
        while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(workload.calls_per_sample))) {
            const bool done = measurement.sample(workload.calls_per_sample);
            state.PauseTiming();
            if (!done)
                return fail(state, of, nybl_last_error());
            if (!measurement.sample_peers())
                return fail(state, of, "the peer failed");
            measurement.sample_limits();
            state.ResumeTiming();
        }
        const Result result = measurement.result();
        set_counters(state, result);
        record(result);
    }

    void fail(benchmark::State &state, const Case &of, const std::string &text) {
        state.SkipWithError(text.c_str());
        Result result;
        result.of = of;
        result.error = text;
        record(result);
        ++shared_.failures;
    }

    // The last run of a case is the longest.
    void record(const Result &result) {
        const std::string name = result.of.name();
        const auto last = std::find_if(shared_.results.begin(), shared_.results.end(),
                                       [&](const Result &other) { return other.of.name() == name; });
        if (last == shared_.results.end())
            shared_.results.push_back(result);
        else
            *last = result;
    }

    Shared &shared_;
    Prepared prepared_;
    const double start_ = wall_seconds();
};

} // namespace

void register_cases(Shared &shared, const std::vector<Case> &cases) {
    const auto runner = std::make_shared<Runner>(shared);
    for (const Case &of : cases)
        benchmark::RegisterBenchmark(of.name().c_str(), [runner, of](benchmark::State &state) {
            runner->run(state, of);
        })->Unit(benchmark::kMicrosecond);
}

} // namespace nybl::bench
