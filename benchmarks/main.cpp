// nybl-bench: speed of the library's kernels against the limits of the machine.
#include <cstdio>
#include <fmt/format.h>

#include "arena.h"
#include "limits.h"
#include "machine.h"

int main() {
    using namespace nybl::bench;
    const Machine machine = describe_machine();
    const Arena arena(machine.last_level_cache * 3 / 2, Pages::kHuge);
    Limits limits(machine, arena.bytes());
    fmt::print("{}; {} cores, L3 {} MiB, arena {} MiB, huge pages {:.2f}\n", machine.cpu,
               machine.cores.size(), machine.last_level_cache >> 20, arena.bytes().size() >> 20,
               arena.huge_share());
    for (unsigned threads = 1; threads <= machine.cores.size(); ++threads) {
        const LimitFigures read = limits.measure_read(threads, 0.3);
        fmt::print("t{} read {:.1f} median {:.1f} GB/s: {}\n", threads, read.quiet * 1e-9, read.median * 1e-9,
                   limits.reader(threads).describe());
        for (const Peak peak : kAllPeaks) {
            if (!peak_available(peak))
                continue;
            const LimitFigures figures = limits.measure_peak(peak, threads, 0.2);
            fmt::print("t{} {:45} {:8.1f} median {:8.1f} GOP/s\n", threads, peak_name(peak),
                       figures.quiet * 1e-9, figures.median * 1e-9);
        }
    }
    return 0;
}
