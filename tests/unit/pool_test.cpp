// The thread pool by itself: every task once, whatever the counts, from several callers, inside tasks.
#include "cpu/threads.h"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using nybl::cpu::Pool;

namespace {

struct OwnPool {
    std::vector<pthread_t> storage;
    Pool pool;
    explicit OwnPool(uint32_t n) : storage(n), pool(n, nullptr, storage.data()) {}
};

// How often each task ran.
std::vector<int> run(Pool &pool, uint32_t count) {
    std::vector<std::atomic<int>> runs(count);
    pool.parallel_for(
        count, [](void *data, uint32_t i) { ++(*static_cast<std::vector<std::atomic<int>> *>(data))[i]; },
        &runs);
    return {runs.begin(), runs.end()};
}

} // namespace

TEST_CASE("a pool runs every task once, for more and fewer tasks than threads") {
    for (const uint32_t threads : {1u, 2u, 3u, 8u, 33u}) {
        OwnPool own(threads);
        for (int round = 0; round < 30; ++round)
            for (const uint32_t count : {0u, 1u, 2u, 7u, 40u, 200u})
                if (run(own.pool, count) != std::vector<int>(count, 1))
                    FAIL(threads << " threads, " << count << " tasks");
    }
}

TEST_CASE("callers that meet in a pool, and tasks that use it, all finish") {
    OwnPool own(4);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c)
        callers.emplace_back([&] {
            for (int i = 0; i < 200; ++i)
                wrong += run(own.pool, 9) != std::vector<int>(9, 1);
        });
    for (std::thread &caller : callers)
        caller.join();
    CHECK(wrong == 0);
    struct Nested {
        Pool *pool;
        std::atomic<int> runs{0};
    } nested{&own.pool};
    own.pool.parallel_for(
        6,
        [](void *data, uint32_t) {
            auto &self = *static_cast<Nested *>(data);
            for (const int runs : run(*self.pool, 5))
                self.runs += runs;
        },
        &nested);
    CHECK(nested.runs == 30);
}
