// Threads under pressure: many hosts at once, more threads than cores, a core that others take, thread counts
// that change from call to call, and small calls without end.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sched.h>
#include <thread>

using namespace capi_test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSlower = 50; // what a sanitizer costs
#else
constexpr size_t kSlower = 1;
#endif

// Ends the process where nothing has moved for half a minute of its own time: a second in which the whole
// process stood still counts as one, however long it was.
class Watchdog {
  public:
    explicit Watchdog(const char *what) : what_(what), thread_([this] { watch(); }) {}
    ~Watchdog() {
        stop_ = true;
        thread_.join();
    }
    void moved() { moves_.fetch_add(1, std::memory_order_relaxed); }

  private:
    void watch() {
        uint64_t seen = 0;
        for (int still = 0; !stop_;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const uint64_t moves = moves_.load(std::memory_order_relaxed);
            still = moves == seen ? still + 1 : 0;
            seen = moves;
            if (still == 30 * 50) {
                std::fprintf(stderr, "%s: nothing moves after %llu calls\n", what_,
                             static_cast<unsigned long long>(moves));
                std::abort();
            }
        }
    }

    const char *const what_;
    std::atomic<bool> stop_{false};
    std::atomic<uint64_t> moves_{0};
    std::thread thread_;
};

struct Problem {
    nybl_format format;
    size_t m, n, k;
    std::vector<uint8_t> blocks;
    std::vector<float> x;
    std::vector<uint32_t> expected;

    Problem(nybl_format f, size_t rows, size_t columns, size_t depth)
        : format(f), m(rows), n(columns), k(depth), blocks(random_blocks(f, columns, depth, 1)),
          x(random_floats(rows * depth, 2)) {
        std::vector<float> y = unwritten(m * n);
        CHECK(run(weights(make_context(1)), y, 0));
        expected = bits(y);
    }
    nybl::Weights weights(const nybl::Context &ctx) const {
        return {ctx, describe(format, n, k, blocks.data())};
    }
    // One call with at most so many threads; false where it failed or, once known, has other bits.
    bool run(const nybl::Weights &w, std::vector<float> &y, uint32_t n_threads) const {
        forget(y);
        auto args = f32_args(m, x.data(), y.data());
        args.n_threads = n_threads;
        return nybl_matmul(w.get(), &args) == NYBL_OK && (expected.empty() || bits(y) == expected);
    }
};

// Runs body(i) on so many threads at once.
template <class Body>
void on_threads(int count, const Body &body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&body, i] { body(i); });
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

TEST_CASE("concurrency: many host threads, one context and several, thread counts that change from call to "
          "call") {
    const Problem problems[] = {{NYBL_Q4_0, 1, 1024, 512},
                                {NYBL_Q5_K, 24, 96, 512},
                                {NYBL_IQ4_NL, 3, 40, 64},
                                {NYBL_Q4_1, 1, 16, 32}};
    // Far more threads than cores among them.
    const nybl::Context contexts[] = {make_context(3), make_context(17), make_context(64)};
    std::vector<nybl::Weights> weights;
    for (const nybl::Context &ctx : contexts)
        for (const Problem &problem : problems)
            weights.push_back(problem.weights(ctx));
    Watchdog watchdog("host threads");
    std::atomic<int> wrong{0};
    // At first everyone shares the first context, then each call takes another one.
    for (const size_t in_use : {1, 3})
        on_threads(12, [&](int thread) {
            std::vector<float> y;
            for (size_t i = 0; i < 150 / kSlower + 3; ++i) {
                const size_t p = (i + size_t(thread)) % 4, c = (i + size_t(thread) / 2) % in_use;
                y.resize(problems[p].m * problems[p].n);
                wrong += !problems[p].run(weights[4 * c + p], y, uint32_t(i * 7 % 20));
                watchdog.moved();
            }
        });
    CHECK(wrong == 0);
}

TEST_CASE("concurrency: contexts and weights that come and go on many threads") {
    const Problem problem(NYBL_Q4_K, 2, 512, 512);
    Watchdog watchdog("coming and going");
    std::atomic<int> wrong{0};
    on_threads(6, [&](int thread) {
        std::vector<float> y(problem.m * problem.n);
        for (size_t i = 0; i < 40 / kSlower + 2; ++i) {
            auto ctx = std::make_unique<nybl::Context>(make_context(uint32_t(1 + (i + size_t(thread)) % 5)));
            const nybl::Weights w = problem.weights(*ctx);
            if (i % 2)
                ctx.reset();
            wrong += !problem.run(w, y, 0);
            watchdog.moved();
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("concurrency: 100,000 small calls on more threads than cores all return") {
    const Problem split(NYBL_Q4_0, 1, 1024, 512), single(NYBL_Q4_1, 2, 24, 64);
    const nybl::Context ctx = make_context(4);
    const nybl::Weights a = split.weights(ctx), b = single.weights(ctx);
    Watchdog watchdog("small calls");
    std::vector<float> y(split.m * split.n), z(single.m * single.n);
    size_t wrong = 0;
    for (size_t i = 0; i < 100000 / kSlower; ++i) {
        if (i % 64 == 0)
            wrong += !split.run(a, y, 0) + !single.run(b, z, 0);
        const auto &[problem, w, out] =
            i % 2 ? std::tie(split, a, y) : std::tie(single, b, z); // bits are looked at now and then
        const auto args = f32_args(problem.m, problem.x.data(), out.data());
        wrong += nybl_matmul(w.get(), &args) != NYBL_OK;
        watchdog.moved();
    }
    CHECK(wrong == 0);
}

TEST_CASE("concurrency: a core that someone else takes costs its share and no more") {
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    std::vector<int> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE && cores.size() < 2; ++cpu)
        if (CPU_ISSET(cpu, &all))
            cores.push_back(cpu);
    if (cores.size() < 2)
        SKIP("one core only: there is none to take");
    const Problem problem(NYBL_Q4_0, 48, 1024, 1024);
    const nybl::Context one = make_context(1), two = make_context(2);
    const nybl::Weights alone = problem.weights(one), shared = problem.weights(two);
    std::vector<float> y(problem.m * problem.n);
    CHECK(problem.run(shared, y, 0));
    std::atomic<bool> stop{false};
    std::thread thief([&] {
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET(cores[1], &core);
        sched_setaffinity(0, sizeof core, &core);
        while (!stop) {
        }
    });
    const auto least = [&](const nybl::Weights &w) {
        double best = 1e9;
        for (int i = 0; i < 9; ++i) {
            const auto start = std::chrono::steady_clock::now();
            const auto args = f32_args(problem.m, problem.x.data(), y.data());
            nybl::check(nybl_matmul(w.get(), &args));
            best = std::min(best,
                            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        return best;
    };
    // Two threads with a core and a half must not be slower than one thread with a core. Others are about, so
    // several tries.
    double serial = 0, both = 0;
    bool holds = false;
    for (int i = 0; i < 20 && !holds; ++i) {
        serial = least(alone);
        both = least(shared);
        holds = both <= 1.2 * serial;
    }
    CHECK(problem.run(shared, y, 0));
    stop = true;
    thief.join();
    INFO("one thread " << serial * 1e6 << " us, two with a thief on one core " << both * 1e6 << " us");
    CHECK(holds);
}
