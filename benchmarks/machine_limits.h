// The limits of this machine: the fastest streaming read and the instruction peaks, in samples of about a
// millisecond that cases interleave with their own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "machine.h"
#include "probes.h"
#include "samples.h"
#include "team.h"

namespace nybl::bench {

struct LimitFigures {
    double quiet = 0, median = 0;
};

class Limits {
  public:
    // Reads go over `memory`, round and round; it should be larger than the last-level cache.
    Limits(const Machine &machine, std::span<const uint8_t> memory);

    // Tries every reader on so many threads, keeps the fastest. Called by sample_read where it was not yet.
    void choose_reader(unsigned threads);
    const ReaderShape &reader(unsigned threads) { return reader_of(threads).shape; }

    // One sample each: bytes per second, operations per second.
    double sample_read(unsigned threads);
    double sample_peak(Peak peak, unsigned threads);

    LimitFigures measure_read(unsigned threads, double seconds);
    LimitFigures measure_peak(Peak peak, unsigned threads, double seconds);

    // What the read limit is over: cases that keep their weights hot read a part that stays in the cache.
    void set_memory(std::span<const uint8_t> memory);
    std::span<const uint8_t> memory() const { return memory_; }

  private:
    struct ChosenReader {
        ReaderShape shape;
        std::unique_ptr<Reader> read;
    };
    ChosenReader &reader_of(unsigned threads);
    Team &team(unsigned threads);
    double read_sample(const Reader &reader, unsigned threads, size_t bytes);

    Machine machine_;
    std::span<const uint8_t> memory_;
    size_t position_ = 0;
    std::map<unsigned, std::unique_ptr<Team>> teams_;
    std::map<unsigned, ChosenReader> readers_;
    std::map<Peak, std::unique_ptr<PeakLoop>> peaks_;
    std::map<Peak, double> single_rate_; // a first guess, so that a sample lasts about a millisecond
};

} // namespace nybl::bench
