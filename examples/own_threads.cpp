// A host with its own thread pool: the library runs its tasks there and starts no thread.
#include <nybl/nybl.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

// Any pool will do that can run a function for every index and wait for all of them. This one takes one job
// at a time: a second caller waits its turn.
class HostPool {
  public:
    explicit HostPool(unsigned threads) {
        for (unsigned i = 1; i < threads; ++i)
            workers_.emplace_back([this] { work(); });
    }
    ~HostPool() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread &worker : workers_)
            worker.join();
    }
    unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

    void run(uint32_t count, const std::function<void(uint32_t)> &task) {
        const std::lock_guard turn(one_job_);
        {
            const std::lock_guard lock(mutex_);
            task_ = &task;
            next_ = 0;
            count_ = count;
            busy_ = static_cast<unsigned>(workers_.size());
            ++job_;
        }
        wake_.notify_all();
        take_tasks();
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

  private:
    void take_tasks() {
        for (uint32_t i; (i = next_.fetch_add(1)) < count_;)
            (*task_)(i);
    }
    void work() {
        for (unsigned seen = 0;;) {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return stopping_ || job_ != seen; });
            if (stopping_)
                return;
            seen = job_;
            lock.unlock();
            take_tasks();
            lock.lock();
            if (--busy_ == 0)
                done_.notify_one();
        }
    }

    std::vector<std::thread> workers_;
    std::mutex mutex_, one_job_;
    std::condition_variable wake_, done_;
    const std::function<void(uint32_t)> *task_ = nullptr;
    std::atomic<uint32_t> next_ = 0;
    uint32_t count_ = 0;
    unsigned busy_ = 0, job_ = 0;
    bool stopping_ = false;
};

void parallel_for(void *user, uint32_t count, void (*task)(void *data, uint32_t i), void *data) {
    static_cast<HostPool *>(user)->run(count, [=](uint32_t i) { task(data, i); });
}

std::vector<float> product(const nybl::Context &context, const std::vector<std::uint8_t> &blocks, size_t n,
                           const std::vector<float> &x) {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = NYBL_Q4_K;
    desc.n = n;
    desc.k = x.size();
    desc.data = blocks.data();
    std::vector<float> y(n);
    nybl::Weights(context, desc).matmul(1, x.data(), y.data());
    return y;
}

} // namespace

int main() {
    constexpr size_t kN = 1024, kK = 2048;
    std::vector<float> matrix(kN * kK), x(kK);
    for (size_t i = 0; i < matrix.size(); ++i)
        matrix[i] = static_cast<float>(i * 37 % 101) - 50;
    for (size_t i = 0; i < kK; ++i)
        x[i] = static_cast<float>(i % 13) - 6;

    try {
        const auto blocks = nybl::quantize(NYBL_Q4_K, kN, kK, matrix.data());
        HostPool pool(3);
        auto hook = nybl::make<nybl_threadpool>();
        hook.user = &pool;
        hook.n_threads = pool.threads();
        hook.parallel_for = parallel_for;
        auto desc = nybl::make<nybl_context_desc>();
        desc.threadpool = &hook;
        const auto on_host = product(nybl::Context(desc), blocks, kN, x);

        auto alone = nybl::make<nybl_context_desc>();
        alone.n_threads = 1;
        const bool same = on_host == product(nybl::Context(alone), blocks, kN, x);
        std::printf("%u threads of the host: %s\n", pool.threads(),
                    same ? "the same bits as one thread" : "OTHER BITS");
        return same ? 0 : 1;
    } catch (const nybl::Error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
