// The thread pool: tasks on the library's own threads, or on a host's.
//
// The built-in pool hands out tasks one at a time to whoever comes, the caller among them, so that a call
// never waits for a thread that has not been scheduled: more threads than cores cost little. Where the
// threads fit the cores, idle ones look for new work for some microseconds before they sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>
#include <pthread.h>

#include "base/fork.h"

namespace nybl::cpu {

class Pool {
  public:
    using Task = void (*)(void *data, uint32_t i);
    static constexpr uint32_t kMaxThreads = 1024;

    // Bytes of storage that a built-in pool of n_threads keeps for its workers.
    static constexpr size_t storage_bytes(uint32_t n_threads) noexcept {
        return n_threads * sizeof(pthread_t);
    }

    // n_threads in [1, kMaxThreads] counts the calling thread. `host` (copied) replaces the built-in threads;
    // NULL: none. `storage` outlives the pool and is storage_bytes() long, aligned for pthread_t. Starts no
    // thread yet.
    Pool(uint32_t n_threads, const nybl_threadpool *host, void *storage) noexcept;
    ~Pool(); // no call may be running
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    uint32_t n_threads() const noexcept { return n_threads_; }

    // Runs task(data, i) once for every i in [0, count) and returns when all are done. Tasks must not wait
    // for one another. From several threads at once: one call gets the workers, the others run on their own
    // thread.
    void parallel_for(uint32_t count, Task task, void *data) noexcept;

  private:
    static void *worker_main(void *pool) noexcept;
    void run_on_host(uint32_t count, Task task, void *data) noexcept;
    void run_on_workers(uint32_t count, Task task, void *data) noexcept;
    void forget_other_generation() noexcept;
    void start_workers(uint32_t count) noexcept;
    bool run_one_task() noexcept;
    void wait_for_work(uint32_t seen) noexcept;
    void wait_for_tasks(uint32_t count) noexcept;

    const uint32_t n_threads_;
    nybl_threadpool host_{};
    bool spins_ = false;

    ForkLock busy_; // held by the call that has the workers
    uint32_t generation_ = 0;
    pthread_t *workers_ = nullptr;
    uint32_t n_workers_ = 0;

    // The job. A ticket is the job's number (high half) and the next task not yet taken (low half), in one
    // word, so that a late worker cannot take a task of a job it has not seen.
    Task task_ = nullptr;
    void *data_ = nullptr;
    std::atomic<uint32_t> count_{0};
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<uint32_t> done_{0};  // tasks of this job that have returned
    alignas(64) std::atomic<uint32_t> calls_{0}; // bumped when there is a new job, or the end
    std::atomic<uint32_t> sleepers_{0};
    std::atomic<bool> stop_{false};
};

} // namespace nybl::cpu
