// A few pinned threads that start together: the limits for T threads are measured on T of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace nybl::bench {

class Team {
  public:
    // `threads` includes the calling thread; worker i is pinned to cores[i % cores.size()].
    Team(unsigned threads, const std::vector<int> &cores);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    unsigned size() const { return size_; }
    // Runs work(i) on every thread, all released at the same moment; returns the seconds from then to the
    // last one's end. One thread is timed by its own processor time, several by wall time.
    double run(const std::function<void(unsigned)> &work);

  private:
    void serve(unsigned index);

    unsigned size_;
    const std::function<void(unsigned)> *work_ = nullptr;
    std::atomic<uint32_t> round_{0};
    std::atomic<uint32_t> ready_{0}, done_{0};
    std::atomic<bool> go_{false}, stop_{false};
    std::vector<std::thread> workers_;
};

} // namespace nybl::bench
