// The built-in pool, and the bridge to a host's.
#include "cpu/threads.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <new>

#include "base/float_environment.h"
#include "base/futex.h"
#include "cpu/thread_count.h"

namespace nybl::cpu {
namespace {

// Longer than the gaps between the products of one layer, far shorter than a scheduler's slice.
constexpr std::chrono::microseconds kSpin{50};

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Waits until `ready()` for at most kSpin.
template <class Ready>
bool spin_until(Ready ready) noexcept {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready())
                return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

constexpr uint32_t kNothingLeft = UINT32_MAX; // a task number past every count
constexpr uint32_t kCallerSleeps = 1u << 31;  // in the count of finished tasks

constexpr uint32_t job_of(uint64_t ticket) noexcept {
    return static_cast<uint32_t>(ticket >> 32);
}
constexpr uint32_t task_of(uint64_t ticket) noexcept {
    return static_cast<uint32_t>(ticket);
}

struct HostTask {
    Pool::Task task;
    void *data;
};

// A host's thread may run with any rounding mode: each task brings its own environment.
void run_host_task(void *host_task, uint32_t i) {
    const FloatEnvironment environment;
    const auto &job = *static_cast<const HostTask *>(host_task);
    job.task(job.data, i);
}

} // namespace

Pool::Pool(uint32_t n_threads, const nybl_threadpool *host, void *storage) noexcept
    : n_threads_(n_threads), generation_(fork_generation()), workers_(static_cast<pthread_t *>(storage)) {
    if (host)
        host_ = *host;
    else
        spins_ = n_threads <= default_thread_count();
}

Pool::~Pool() {
    if (generation_ != fork_generation() || n_workers_ == 0)
        return;
    stop_.store(true, std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(calls_, n_workers_);
    for (uint32_t i = 0; i < n_workers_; ++i)
        pthread_join(workers_[i], nullptr);
}

void Pool::parallel_for(uint32_t count, Task task, void *data) noexcept {
    if (host_.parallel_for && count > 1)
        return run_on_host(count, task, data);
    if (count > 1 && n_threads_ > 1 && busy_.try_lock()) {
        run_on_workers(count, task, data);
        busy_.unlock();
        return;
    }
    for (uint32_t i = 0; i < count; ++i)
        task(data, i);
}

void Pool::run_on_host(uint32_t count, Task task, void *data) noexcept {
    HostTask job{task, data};
    host_.parallel_for(host_.user, count, run_host_task, &job);
}

void Pool::run_on_workers(uint32_t count, Task task, void *data) noexcept {
    forget_other_generation();
    start_workers(count);
    // First a ticket with nothing to take: who sees the new count also sees that the old job is over.
    const uint64_t job = uint64_t{job_of(ticket_.load(std::memory_order_relaxed)) + 1} << 32;
    ticket_.store(job | kNothingLeft, std::memory_order_relaxed);
    count_.store(count, std::memory_order_release);
    task_ = task;
    data_ = data;
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(job, std::memory_order_release);
    // Sequentially consistent against the sleeper's count and check: one of the two sees the other.
    calls_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0)
        futex_wake(calls_, count - 1);
    while (run_one_task()) {
    }
    wait_for_tasks(count);
}

// In a forked child the workers do not exist, and the parent's job may have been in the middle.
void Pool::forget_other_generation() noexcept {
    if (generation_ == fork_generation())
        return;
    generation_ = fork_generation();
    n_workers_ = 0;
    sleepers_.store(0, std::memory_order_relaxed);
    // What is left of it is not for the workers to come.
    ticket_.store(uint64_t{job_of(ticket_.load(std::memory_order_relaxed))} << 32 | kNothingLeft,
                  std::memory_order_relaxed);
}

// Where the system refuses more threads, the tasks run on those that there are.
void Pool::start_workers(uint32_t count) noexcept {
    const uint32_t wanted = std::min(count, n_threads_) - 1;
    if (n_workers_ >= wanted)
        return;
    // The host's signal handlers belong on the host's threads.
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    while (n_workers_ < wanted && pthread_create(&workers_[n_workers_], nullptr, worker_main, this) == 0)
        ++n_workers_;
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

void *Pool::worker_main(void *self) noexcept {
    const FloatEnvironment environment;
    Pool &pool = *static_cast<Pool *>(self);
    for (;;) {
        const uint32_t seen = pool.calls_.load(std::memory_order_acquire);
        if (pool.stop_.load(std::memory_order_relaxed))
            return nullptr;
        while (pool.run_one_task()) {
        }
        pool.wait_for_work(seen);
    }
}

bool Pool::run_one_task() noexcept {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    do {
        if (task_of(ticket) >= count_.load(std::memory_order_acquire))
            return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire));
    // The job cannot end before this task does, so its fields hold still.
    const uint32_t count = count_.load(std::memory_order_relaxed);
    task_(data_, task_of(ticket));
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == (count | kCallerSleeps))
        futex_wake(done_, 1);
    return true;
}

void Pool::wait_for_work(uint32_t seen) noexcept {
    const auto called = [&] { return calls_.load(std::memory_order_acquire) != seen; };
    if (spins_ && spin_until(called))
        return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (calls_.load(std::memory_order_seq_cst) == seen)
        futex_wait(calls_, seen);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Pool::wait_for_tasks(uint32_t count) noexcept {
    const auto finished = [&] { return done_.load(std::memory_order_acquire) == count; };
    if (finished() || (spins_ && spin_until(finished)))
        return;
    uint32_t done = done_.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while (done != (count | kCallerSleeps)) {
        futex_wait(done_, done);
        done = done_.load(std::memory_order_acquire);
    }
}

} // namespace nybl::cpu
