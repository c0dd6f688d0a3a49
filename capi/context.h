// The context handle: memory, threads, scratch, and what a call on it may use.
#pragma once

#include <atomic>
#include <nybl/nybl.h>

#include "base/fork.h"
#include "base/memory.h"
#include "cpu/threads.h"

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

} // namespace nybl::capi
