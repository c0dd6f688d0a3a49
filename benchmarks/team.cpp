// Workers sleep between rounds, so that they take nothing from the kernels that are timed in between.
#include "team.h"

#include <immintrin.h>

#include "machine.h"

namespace nybl::bench {
namespace {

// Spins at first, for the exact moment; then lets others run, since a core may be shared with the awaited
// thread.
void wait_a_little(unsigned spins) {
    if (spins < 2000)
        _mm_pause();
    else
        std::this_thread::yield();
}

} // namespace

Team::Team(unsigned threads, const std::vector<int> &cores) : size_(threads == 0 ? 1 : threads) {
    for (unsigned i = 1; i < size_; ++i)
        workers_.emplace_back([this, i, core = cores[i % cores.size()]] {
            pin_thread({core});
            serve(i);
        });
}

Team::~Team() {
    stop_ = true;
    round_.fetch_add(1);
    round_.notify_all();
    for (std::thread &worker : workers_)
        worker.join();
}

void Team::serve(unsigned index) {
    for (uint32_t seen = 0;;) {
        round_.wait(seen);
        seen = round_.load();
        if (stop_)
            return;
        ready_.fetch_add(1);
        for (unsigned spins = 0; !go_.load(std::memory_order_acquire); ++spins)
            wait_a_little(spins);
        (*work_)(index);
        done_.fetch_add(1, std::memory_order_release);
    }
}

double Team::run(const std::function<void(unsigned)> &work) {
    if (size_ == 1) {
        const double start = thread_seconds();
        work(0);
        return thread_seconds() - start;
    }
    work_ = &work;
    go_ = false;
    ready_ = done_ = 0;
    round_.fetch_add(1);
    round_.notify_all();
    for (unsigned spins = 0; ready_.load() != size_ - 1; ++spins)
        wait_a_little(spins); // a wake-up takes up to a fraction of a millisecond and must not count
    const double start = wall_seconds();
    go_.store(true, std::memory_order_release);
    work(0);
    for (unsigned spins = 0; done_.load(std::memory_order_acquire) != size_ - 1; ++spins)
        wait_a_little(spins);
    return wall_seconds() - start;
}

} // namespace nybl::bench
