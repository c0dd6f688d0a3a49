// Generated probe loops: streaming readers and instruction peaks. What they reach is the limit that kernels
// are held against. Generated, like the kernels, so that no ordinary object needs an instruction-set flag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nybl::bench {

// A plain read of a region, split into `streams` equal parts that advance together.
struct ReaderShape {
    unsigned streams;  // 1, 2, 4
    unsigned width;    // bytes per load: 16, 32, 64
    unsigned prefetch; // bytes ahead, 0: none
    std::string describe() const;
};
std::vector<ReaderShape> reader_shapes(); // all that this processor can run

// The region's length must be a multiple of this.
inline constexpr size_t kReaderStep = 4 * 256;

enum class Peak {
    kDot1,         // vpmaddubsw + vpmaddwd + vpaddd
    kDot2,         // two vpmaddubsw added in 16 bits before one vpmaddwd
    kVnniYmm,      // vpdpbusd on ymm, VEX-encoded where the processor has AVX-VNNI
    kVnniZmm,      // vpdpbusd on zmm
    kVnniZmmLoads, // the same on bytes from memory, as a kernel has to
    kAmx,          // tdpbusd, full tiles
    kFmaYmm,       // vfmadd231ps on ymm
    kFmaZmm,       // on zmm
};
inline constexpr Peak kAllPeaks[] = {Peak::kDot1,         Peak::kDot2, Peak::kVnniYmm, Peak::kVnniZmm,
                                     Peak::kVnniZmmLoads, Peak::kAmx,  Peak::kFmaYmm,  Peak::kFmaZmm};
const char *peak_key(Peak peak);  // "dot1"
const char *peak_name(Peak peak); // in words
bool peak_available(Peak peak);   // asks the system for the AMX permission on the first call

class Probe;

// Compiled code of one probe. Throws std::runtime_error where the system refuses executable memory.
class Reader {
  public:
    explicit Reader(const ReaderShape &shape);
    ~Reader();
    void operator()(const void *data, size_t bytes) const { run_(data, bytes); }

  private:
    std::unique_ptr<Probe> code_;
    void (*run_)(const void *, size_t);
};

class PeakLoop {
  public:
    explicit PeakLoop(Peak peak);
    ~PeakLoop();
    // Runs the loop `turns` times; each turn does `operations` multiplies and adds, counted as 2 per pair.
    void operator()(uint64_t turns) const { run_(turns); }
    double operations() const { return operations_; }

  private:
    std::unique_ptr<Probe> code_;
    void (*run_)(uint64_t);
    double operations_;
};

} // namespace nybl::bench
