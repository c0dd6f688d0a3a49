// What the bench must know of the machine: processor, caches, cores this process may use, free memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nybl::bench {

struct Machine {
    std::string cpu;
    std::vector<int> cores; // those in the affinity mask
    size_t last_level_cache = 0;
    size_t available_memory = 0;
};
Machine describe_machine();

// Pins the calling thread to one core while it lives, so that a timed loop does not wander.
class PinnedScope {
  public:
    explicit PinnedScope(int core);
    ~PinnedScope();
    PinnedScope(const PinnedScope &) = delete;
    PinnedScope &operator=(const PinnedScope &) = delete;

  private:
    std::vector<int> before_;
};
void pin_thread(const std::vector<int> &cores);

// Seconds of wall time, and of the calling thread's own processor time: the second does not count the time
// that other processes took from a busy machine.
double wall_seconds();
double thread_seconds();
// Processor time of the whole process: tells whether a thread pool still spins.
double process_seconds();

} // namespace nybl::bench
