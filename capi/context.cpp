// nybl_context_*: creation, reference count, scratch, memory.
#include "context.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>

#include "base/environment.h"
#include "checks.h"
#include "cpu/isa.h"
#include "cpu/thread_count.h"
#include "gpu_path.h"

namespace nybl::capi {

nybl_status ScratchList::acquire(Memory &memory, size_t bytes, Block **block) noexcept {
    const Checked wanted = Checked(bytes) + kAlign;
    if (const nybl_status status = check_size(wanted, "scratch"); status != NYBL_OK)
        return status;
    const size_t size = wanted.value();
    Block *taken = nullptr;
    {
        const std::lock_guard guard(lock_);
        // The smallest block that is large enough, else the largest: that one grows.
        Block **best = nullptr;
        for (Block **link = &free_; *link; link = &(*link)->next) {
            const size_t have = (*link)->size;
            const bool better =
                !best || ((*best)->size < size ? have > (*best)->size : have >= size && have < (*best)->size);
            if (better)
                best = link;
        }
        if (best) {
            taken = *best;
            *best = taken->next;
        }
    }
    if (taken && taken->size < size) {
        memory.deallocate(taken, taken->size);
        taken = nullptr;
    }
    if (!taken) {
        void *fresh = nullptr;
        if (const nybl_status status = memory.allocate(size, kAlign, "scratch", &fresh); status != NYBL_OK)
            return status;
        taken = ::new (fresh) Block{nullptr, size};
    }
    *block = taken;
    return NYBL_OK;
}

void ScratchList::release(Block *block) noexcept {
    const std::lock_guard guard(lock_);
    block->next = free_;
    free_ = block;
}

void ScratchList::free_all(Memory &memory) noexcept {
    while (Block *block = free_) {
        free_ = block->next;
        memory.deallocate(block, block->size);
    }
}

Scratch::~Scratch() {
    if (block_)
        ctx_->scratch.release(block_);
}

nybl_status Scratch::acquire(size_t bytes) noexcept {
    return bytes == 0 ? NYBL_OK : ctx_->scratch.acquire(ctx_->memory, bytes, &block_);
}

void *Scratch::data() const noexcept {
    return block_ ? reinterpret_cast<char *>(block_) + ScratchList::kAlign : nullptr;
}

void retain(nybl_context *ctx) noexcept {
    ctx->holders.fetch_add(1, std::memory_order_relaxed);
}

void release(nybl_context *ctx) noexcept {
    if (ctx->holders.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    close_gpu(ctx);
    ctx->scratch.free_all(ctx->memory);
    const nybl_allocator hook = ctx->memory.hook();
    const size_t allocated = ctx->allocated;
    ctx->~nybl_context();
    hook.deallocate(hook.user, ctx, allocated);
}

namespace {

nybl_status read_hooks(const nybl_context_desc &desc, nybl_threadpool *threadpool,
                       nybl_allocator *allocator) noexcept {
    if (desc.threadpool) {
        if (const nybl_status status = read_struct(desc.threadpool, "threadpool", threadpool);
            status != NYBL_OK)
            return status;
        if (!threadpool->parallel_for)
            return null_argument("threadpool.parallel_for");
    }
    if (desc.allocator) {
        if (const nybl_status status = read_struct(desc.allocator, "allocator", allocator); status != NYBL_OK)
            return status;
        if (!allocator->allocate)
            return null_argument("allocator.allocate");
        if (!allocator->deallocate)
            return null_argument("allocator.deallocate");
    }
    return NYBL_OK;
}

nybl_status check_desc(const nybl_context_desc &desc) noexcept {
    if (desc.device != NYBL_DEVICE_CPU && desc.device != NYBL_DEVICE_GPU)
        return fail(NYBL_INVALID_ARGUMENT, "device %d is neither NYBL_DEVICE_CPU nor NYBL_DEVICE_GPU",
                    static_cast<int>(desc.device));
    if (desc.max_isa < NYBL_ISA_BEST || desc.max_isa > NYBL_ISA_AMX)
        return fail(NYBL_INVALID_ARGUMENT, "max_isa %d is no instruction set",
                    static_cast<int>(desc.max_isa));
    return NYBL_OK;
}

nybl_status create(const nybl_context_desc *given, nybl_context **ctx) {
    if (!ctx)
        return null_argument("ctx");
    nybl_context_desc desc{};
    if (given)
        if (const nybl_status status = read_struct(given, "desc", &desc); status != NYBL_OK)
            return status;
    if (const nybl_status status = check_desc(desc); status != NYBL_OK)
        return status;
    nybl_threadpool threadpool{};
    nybl_allocator allocator{};
    if (const nybl_status status = read_hooks(desc, &threadpool, &allocator); status != NYBL_OK)
        return status;

    uint32_t n_threads = desc.n_threads ? desc.n_threads : threadpool.n_threads;
    n_threads = std::min(n_threads ? n_threads : cpu::default_thread_count(), cpu::Pool::kMaxThreads);
    static_assert(sizeof(nybl_context) % alignof(pthread_t) == 0);
    const size_t bytes = sizeof(nybl_context) + (desc.threadpool ? 0 : cpu::Pool::storage_bytes(n_threads));
    const nybl_allocator *hook = desc.allocator ? &allocator : nullptr;
    Memory memory(hook);
    void *storage = nullptr;
    if (const nybl_status status = memory.allocate(bytes, alignof(nybl_context), "context", &storage);
        status != NYBL_OK)
        return status;
    auto *made = ::new (storage) nybl_context(desc, cpu::effective_isa(desc.max_isa), n_threads,
                                              desc.threadpool ? &threadpool : nullptr, hook,
                                              static_cast<char *>(storage) + sizeof(nybl_context), bytes);
    made->memory.adopt(bytes);
    if (desc.device == NYBL_DEVICE_GPU)
        if (const nybl_status status = open_gpu(made, desc.device_index); status != NYBL_OK) {
            release(made);
            return status;
        }
    *ctx = made;
    return NYBL_OK;
}

void log_message(const nybl_context &ctx, int level, const char *message) {
    try {
        ctx.log(ctx.log_user, level, message);
    } catch (...) { // a log that fails is no reason to fail
    }
}

// Called once the context is whole, so that a hook that throws finds nothing half done.
void announce(const nybl_context &ctx) {
    if (!ctx.log)
        return;
    char message[256];
    std::snprintf(message, sizeof message, "context: instruction set %s, %u threads%s%s",
                  cpu::isa_name(ctx.isa), ctx.pool.n_threads(), ctx.device ? ", GPU " : "",
                  ctx.device ? gpu::traits_of(*ctx.device).name : "");
    log_message(ctx, 0, message);
    if (const char *cap = environment("NYBL_MAX_ISA");
        cap && *cap && cpu::isa_from_name(cap) == NYBL_ISA_BEST) {
        std::snprintf(
            message, sizeof message,
            "NYBL_MAX_ISA is ignored: \"%.40s\" is none of scalar, avx2, avx_vnni, avx512_vnni, amx", cap);
        log_message(ctx, 1, message);
    }
    if (ctx.tuning.refusal[0] != '\0') {
        std::snprintf(message, sizeof message, "the file that NYBL_TUNING names is ignored: %s",
                      ctx.tuning.refusal);
        log_message(ctx, 1, message);
    } else if (ctx.tuning.from_file > 0) {
        std::snprintf(message, sizeof message, "the file that NYBL_TUNING names gives %u dispatch settings",
                      ctx.tuning.from_file);
        log_message(ctx, 0, message);
    }
}

} // namespace
} // namespace nybl::capi

using namespace nybl;
using namespace nybl::capi;

nybl_status nybl_context_create(const nybl_context_desc *desc, nybl_context **ctx) {
    return guarded("nybl_context_create", [&] {
        const nybl_status status = create(desc, ctx);
        if (status == NYBL_OK)
            announce(**ctx);
        return status;
    });
}

void nybl_context_destroy(nybl_context *ctx) {
    if (ctx)
        release(ctx);
}

nybl_isa nybl_context_isa(const nybl_context *ctx) {
    return ctx ? ctx->isa : NYBL_ISA_BEST;
}

nybl_status nybl_context_memory(const nybl_context *ctx, nybl_memory_stats *stats) {
    if (!ctx)
        return null_argument("ctx");
    if (const nybl_status status = check_struct(stats, sizeof *stats, "stats"); status != NYBL_OK)
        return status;
    nybl_memory_stats value{};
    value.host_bytes = ctx->memory.bytes();
    value.host_peak_bytes = ctx->memory.peak_bytes();
    add_device_memory(*ctx, &value);
    write_struct(value, stats);
    return NYBL_OK;
}
