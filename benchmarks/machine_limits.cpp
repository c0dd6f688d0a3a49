// Measures the limits. Readers are compared in turn, round after round, so that a slow moment hits all of
// them.
#include "machine_limits.h"

#include <algorithm>
#include <atomic>

namespace nybl::bench {
namespace {

constexpr size_t kReadSample = size_t{16} << 20; // per thread: about a millisecond
constexpr double kPeakSampleSeconds = 0.6e-3;

} // namespace

Limits::Limits(const Machine &machine, std::span<const uint8_t> memory)
    : machine_(machine), memory_(memory) {}

void Limits::set_memory(std::span<const uint8_t> memory) {
    memory_ = memory;
    position_ = 0;
}

Team &Limits::team(unsigned threads) {
    std::unique_ptr<Team> &slot = teams_[threads];
    if (!slot)
        slot = std::make_unique<Team>(threads, machine_.cores);
    return *slot;
}

double Limits::read_sample(const Reader &reader, unsigned threads, size_t bytes) {
    const size_t region = std::min(bytes, memory_.size()) / kReaderStep * kReaderStep;
    if (position_ + region > memory_.size())
        position_ = 0;
    const uint8_t *data = memory_.data() + position_;
    position_ += region;
    // A region smaller than a sample, which only hot weights are, is read several times over.
    const size_t passes = region == 0 ? 0 : bytes / region;
    if (threads == 1) {
        const double seconds = team(1).run([&](unsigned) {
            for (size_t pass = 0; pass < passes; ++pass)
                reader(data, region);
        });
        return static_cast<double>(passes * region) / seconds;
    }
    // Chunks taken in turn, so that one disturbed core does not lower the limit of all.
    const size_t chunk = std::max<size_t>(kReaderStep, region / (16 * threads) / kReaderStep * kReaderStep);
    const size_t chunks = (region + chunk - 1) / chunk;
    std::atomic<size_t> next{0};
    const double seconds = team(threads).run([&](unsigned) {
        for (size_t i; (i = next.fetch_add(1)) < chunks * passes;) {
            const size_t at = i % chunks * chunk;
            reader(data + at, std::min(chunk, region - at));
        }
    });
    return static_cast<double>(passes * region) / seconds;
}

void Limits::choose_reader(unsigned threads) {
    const std::vector<ReaderShape> shapes = reader_shapes();
    std::vector<std::unique_ptr<Reader>> candidates;
    for (const ReaderShape &shape : shapes)
        candidates.push_back(std::make_unique<Reader>(shape));
    std::vector<Samples> samples(shapes.size());
    const PinnedScope pinned(machine_.cores[0]);
    constexpr int kRounds = 24;
    for (int round = 0; round < kRounds; ++round)
        for (size_t i = 0; i < shapes.size(); ++i)
            samples[i].add(read_sample(*candidates[i], threads, threads * kReadSample));
    size_t best = 0;
    for (size_t i = 1; i < shapes.size(); ++i)
        if (samples[i].quiet() > samples[best].quiet())
            best = i;
    readers_[threads] = {shapes[best], std::move(candidates[best])};
}

Limits::ChosenReader &Limits::reader_of(unsigned threads) {
    if (!readers_.contains(threads))
        choose_reader(threads);
    return readers_[threads];
}

double Limits::sample_read(unsigned threads) {
    return read_sample(*reader_of(threads).read, threads, threads * kReadSample);
}

double Limits::sample_peak(Peak peak, unsigned threads) {
    std::unique_ptr<PeakLoop> &loop = peaks_[peak];
    if (!loop) {
        loop = std::make_unique<PeakLoop>(peak);
        constexpr uint64_t kWarmTurns = 4000;
        const double seconds = team(1).run([&](unsigned) { (*loop)(kWarmTurns); });
        single_rate_[peak] = kWarmTurns / std::max(seconds, 1e-7);
    }
    const auto turns = static_cast<uint64_t>(std::max(100.0, single_rate_[peak] * kPeakSampleSeconds));
    const double seconds = team(threads).run([&](unsigned) { (*loop)(turns); });
    return static_cast<double>(turns) * threads * loop->operations() / seconds;
}

LimitFigures Limits::measure_read(unsigned threads, double seconds) {
    reader_of(threads);
    const PinnedScope pinned(machine_.cores[0]);
    Samples samples;
    for (const double end = wall_seconds() + seconds; wall_seconds() < end;)
        samples.add(sample_read(threads));
    return {samples.quiet(), samples.median()};
}

LimitFigures Limits::measure_peak(Peak peak, unsigned threads, double seconds) {
    const PinnedScope pinned(machine_.cores[0]);
    Samples samples;
    for (const double end = wall_seconds() + seconds; wall_seconds() < end;)
        samples.add(sample_peak(peak, threads));
    return {samples.quiet(), samples.median()};
}

} // namespace nybl::bench
