// The context handle: memory, threads, scratch, and what a call on it may use.
#pragma once

#include <algorithm>
#include <atomic>
#include <nybl/nybl.h>

#include "base/fork.h"
#include "base/memory.h"
#include "cpu/threads.h"
#include "dispatch/tuning.h"
#include "gpu/gpu.h"

namespace nybl::capi {

// Scratch that calls take and give back. It only grows, so that calls of a known shape allocate nothing;
// there is one block per call that ever ran at the same time.
class ScratchList {
  public:
    struct Block {
        Block *next;
        size_t size; // of the whole block, this header included
    };
    static constexpr size_t kAlign = 64;

    nybl_status acquire(Memory &memory, size_t bytes, Block **block) noexcept;
    void release(Block *block) noexcept;
    void free_all(Memory &memory) noexcept;

  private:
    ForkLock lock_;
    Block *free_ = nullptr;
};

} // namespace nybl::capi

struct nybl_context {
    nybl_context(const nybl_context_desc &desc, nybl_isa effective_isa, uint32_t n_threads,
                 const nybl_threadpool *threadpool, const nybl_allocator *allocator, void *pool_storage,
                 size_t own_bytes) noexcept
        : memory(allocator), pool(n_threads, threadpool, pool_storage), isa(effective_isa), log(desc.log),
          log_user(desc.log_user), allocated(own_bytes) {}

    nybl::Memory memory;
    nybl::cpu::Pool pool;
    nybl::capi::ScratchList scratch;
    const nybl_isa isa;
    const nybl::dispatch::Tuning &tuning = nybl::dispatch::host_tuning();
    nybl::gpu::Device *device = nullptr; // of a GPU context
    void (*const log)(void *user, int level, const char *message);
    void *const log_user;
    const size_t allocated;           // bytes of the allocation that this object lies in
    std::atomic<uint32_t> holders{1}; // the host, and every weights handle
};

namespace nybl::capi {

void retain(nybl_context *ctx) noexcept;
void release(nybl_context *ctx) noexcept; // the last holder frees it

// Scratch for the life of an object.
class Scratch {
  public:
    explicit Scratch(nybl_context *ctx) noexcept : ctx_(ctx) {}
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    nybl_status acquire(size_t bytes) noexcept; // once
    void *data() const noexcept;                // ScratchList::kAlign aligned; NULL for 0 bytes

  private:
    nybl_context *ctx_;
    ScratchList::Block *block_ = nullptr;
};

// task(i) for every i in [0, count) on the context's threads.
template <class Body>
void parallel_for(nybl_context *ctx, uint32_t count, const Body &body) noexcept {
    ctx->pool.parallel_for(
        count, [](void *data, uint32_t i) { (*static_cast<const Body *>(data))(i); },
        const_cast<Body *>(&body));
}

// The part of [0, total) that is task i's, of `count` equal ones.
struct Range {
    size_t begin, end;
};
constexpr Range share(size_t total, uint32_t i, uint32_t count) noexcept {
    const size_t each = total / count, rest = total % count;
    const size_t begin = i * each + (i < rest ? i : rest);
    return {begin, begin + each + (i < rest ? 1 : 0)};
}

// Threads that share `count` items; at least 1.
inline uint32_t threads_for(const nybl_context *ctx, size_t count) noexcept {
    return ctx ? static_cast<uint32_t>(std::clamp<size_t>(count, 1, ctx->pool.n_threads())) : 1;
}

// Runs body(thread, item) for every item in [begin, end): a contiguous range on each of threads_for(ctx, end
// - begin) threads. Without a context: on the calling thread.
template <class Body>
void for_each(nybl_context *ctx, size_t begin, size_t end, const Body &body) noexcept {
    const uint32_t threads = threads_for(ctx, end - begin);
    const auto run = [&](uint32_t thread) {
        const Range range = share(end - begin, thread, threads);
        for (size_t item = begin + range.begin; item < begin + range.end; ++item)
            body(thread, item);
    };
    if (threads == 1)
        run(0);
    else
        parallel_for(ctx, threads, run);
}

// The lowest of the items that any thread reports: which error a call returns does not depend on threads.
class FirstBad {
  public:
    void report(size_t item) noexcept {
        size_t seen = item_.load(std::memory_order_relaxed);
        while (item < seen && !item_.compare_exchange_weak(seen, item, std::memory_order_relaxed)) {
        }
    }
    bool found() const noexcept { return item() != SIZE_MAX; }
    size_t item() const noexcept { return item_.load(std::memory_order_relaxed); }

  private:
    std::atomic<size_t> item_{SIZE_MAX};
};

} // namespace nybl::capi
