// Machine facts from /proc, sysconf and the scheduler.
#include "machine.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sched.h>
#include <unistd.h>

namespace nybl::bench {
namespace {

std::string value_after_colon(const char *path, const std::string &key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(key, 0) != 0)
            continue;
        const size_t colon = line.find(':');
        if (colon == std::string::npos)
            continue;
        const size_t start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? std::string() : line.substr(start);
    }
    return {};
}

std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &set))
                cores.push_back(core);
    if (cores.empty())
        cores.push_back(0);
    return cores;
}

double clock_seconds(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

} // namespace

Machine describe_machine() {
    Machine machine;
    machine.cpu = value_after_colon("/proc/cpuinfo", "model name");
    machine.cores = allowed_cores();
    const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    machine.last_level_cache = static_cast<size_t>(std::max({l3, l2, 1L << 20}));
    const std::string available = value_after_colon("/proc/meminfo", "MemAvailable"); // "123 kB"
    machine.available_memory = available.empty() ? 0 : std::stoull(available) * 1024;
    // A container's own limit may be far below what the machine has.
    std::ifstream limit_file("/sys/fs/cgroup/memory.max");
    size_t limit = 0;
    if (limit_file >> limit)
        machine.available_memory = std::min(machine.available_memory, limit);
    return machine;
}

void pin_thread(const std::vector<int> &cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores)
        CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set); // refused: the figures get noisier, nothing else
}

PinnedScope::PinnedScope(int core) : before_(allowed_cores()) {
    pin_thread({core});
}
PinnedScope::~PinnedScope() {
    pin_thread(before_);
}

double wall_seconds() {
    return clock_seconds(CLOCK_MONOTONIC);
}
double thread_seconds() {
    return clock_seconds(CLOCK_THREAD_CPUTIME_ID);
}
double process_seconds() {
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

} // namespace nybl::bench
