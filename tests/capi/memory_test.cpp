// Memory through the C API: the host's allocator, failures at every allocation, accounting, steady state.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <new>

#include "cpu/jit/code_cache.h"

using namespace capi_test;

namespace {

// Counts, checks and, on request, refuses.
struct Heap {
    nybl_allocator hook = nybl::make<nybl_allocator>();
    std::mutex mutex;
    std::map<void *, size_t> live;
    size_t allocations = 0, faults = 0;
    size_t refuse_from = SIZE_MAX; // this allocation (counted from 0) ...
    size_t refusals = 1;           // ... and so many in all

    Heap() {
        hook.user = this;
        hook.allocate = [](void *user, size_t size, size_t alignment) -> void * {
            auto &self = *static_cast<Heap *>(user);
            const std::lock_guard guard(self.mutex);
            const size_t index = self.allocations++;
            if (index >= self.refuse_from && index - self.refuse_from < self.refusals)
                return nullptr;
            self.faults += size == 0 || (alignment & (alignment - 1)) != 0;
            void *ptr = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
            self.live[ptr] = size;
            return ptr;
        };
        hook.deallocate = [](void *user, void *ptr, size_t size) {
            auto &self = *static_cast<Heap *>(user);
            const std::lock_guard guard(self.mutex);
            const auto found = self.live.find(ptr);
            self.faults += found == self.live.end() || found->second != size;
            if (found != self.live.end())
                self.live.erase(found);
            std::free(ptr);
        };
    }
    nybl_context_desc desc(uint32_t n_threads) const {
        auto out = nybl::make<nybl_context_desc>();
        out.allocator = &hook;
        out.n_threads = n_threads;
        return out;
    }
    size_t bytes() const {
        size_t sum = 0;
        for (const auto &[ptr, size] : live)
            sum += size;
        return sum;
    }
};

long resident_pages() {
    long size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident;
}

constexpr size_t kN = 64, kK = 512, kM = 3, kExperts = 4;

// One of everything that allocates. Throws nybl::Error where something fails.
struct Session {
    std::vector<float> source = random_floats(kExperts * kN * kK, 1);
    std::vector<uint8_t> blocks = nybl::quantize(NYBL_Q4_1, kExperts *kN, kK, source.data());
    std::vector<float> x = random_floats(kM * kK, 2);
    std::vector<int32_t> ids{0, 3, 1, -1, 2, 2};
    std::vector<float> y, slots;

    void run(const Heap &heap) {
        y = unwritten(kM * kN);
        slots = unwritten(ids.size() * kN);
        const nybl::Context ctx(heap.desc(3));
        const nybl::Weights w(ctx, describe(NYBL_Q4_1, kN, kK, blocks.data()));
        const nybl::Weights experts(ctx, describe(NYBL_Q4_1, kN, kK, blocks.data(), kExperts));
        nybl_weights *made = nullptr;
        const auto desc = describe(NYBL_Q4_K, kN, kK, nullptr);
        nybl::check(nybl_weights_quantize(ctx.get(), &desc, source.data(), 0, nullptr, nullptr, &made));
        const nybl::Weights quantized(made);
        w.matmul(kM, x.data(), y.data());
        std::vector<float> other(kM * kN);
        const nybl_weights *both[2] = {w.get(), quantized.get()};
        const nybl_matmul_args args[2] = {f32_args(kM, x.data(), y.data()),
                                          f32_args(kM, x.data(), other.data())};
        nybl::check(nybl_matmul_multi(2, both, args));
        auto id_args = nybl::make<nybl_matmul_id_args>();
        id_args.n_tokens = kM;
        id_args.n_slots = ids.size() / kM;
        id_args.ids = ids.data();
        id_args.x = x.data();
        id_args.y = slots.data();
        experts.matmul_id(id_args);
        const void *packed = nullptr;
        size_t bytes = 0;
        uint64_t id = 0;
        nybl::check(nybl_weights_packed(w.get(), &packed, &bytes, &id));
        auto again = describe(NYBL_Q4_1, kN, kK, nullptr);
        again.validate = 1;
        nybl::check(nybl_weights_from_packed(ctx.get(), &again, packed, bytes, id, &made));
        const nybl::Weights mapped(made);
        mapped.matmul(kM, x.data(), other.data());
    }
};

} // namespace

TEST_CASE("C24: an allocation failure at every allocation in turn is a status, leaks nothing, and harms "
          "nothing after") {
    Session session;
    Heap whole;
    session.run(whole);
    const auto expected = bits(session.y);
    const auto expected_slots = bits(session.slots);
    CHECK(whole.live.empty());
    CHECK(whole.faults == 0);
    REQUIRE(whole.allocations >= 6);
    for (size_t i = 0; i < whole.allocations; ++i) {
        INFO("allocation " << i << " of " << whole.allocations);
        Heap heap;
        heap.refuse_from = i;
        try {
            session.run(heap);
            FAIL("the failure went unnoticed");
        } catch (const nybl::Error &error) {
            CHECK(error.status() == NYBL_OUT_OF_MEMORY);
            CHECK(std::string(error.what()).find("bytes") != std::string::npos);
        }
        CHECK(heap.live.empty());
        CHECK(heap.faults == 0);
    }
    session.run(whole);
    CHECK(bits(session.y) == expected);
    CHECK(bits(session.slots) == expected_slots);
}

TEST_CASE("a call that runs out of memory has written nothing, and works once there is memory") {
    Session session;
    Heap heap;
    const nybl::Context ctx(heap.desc(2));
    const nybl::Weights w(ctx, describe(NYBL_Q4_1, kN, kK, session.blocks.data()));
    std::vector<float> y = unwritten(kM * kN);
    const auto args = f32_args(kM, session.x.data(), y.data());
    heap.refuse_from = heap.allocations;
    CHECK(nybl_matmul(w.get(), &args) == NYBL_OUT_OF_MEMORY);
    CHECK(last_error_has("scratch"));
    CHECK(bits(y) == bits(unwritten(y.size())));
    CHECK(nybl_matmul(w.get(), &args) == NYBL_OK);
    // C19: packing that fails leaves the original blocks usable.
    heap.refuse_from = heap.allocations;
    auto desc = describe(NYBL_Q4_1, kN, kK, session.blocks.data());
    nybl_weights *made = nullptr;
    CHECK(nybl_weights_create(ctx.get(), &desc, &made) == NYBL_OUT_OF_MEMORY);
    CHECK(made == nullptr);
    desc.storage = NYBL_STORAGE_ORIGINAL;
    const nybl::Weights original(ctx, desc);
    std::vector<float> same(kM * kN);
    original.matmul(kM, session.x.data(), same.data());
    CHECK(bits(same) == bits(y));
}

TEST_CASE("an allocator that throws or returns misaligned memory is a status") {
    auto desc = nybl::make<nybl_context_desc>();
    auto hook = nybl::make<nybl_allocator>();
    desc.allocator = &hook;
    nybl_context *ctx = nullptr;
    hook.deallocate = [](void *, void *, size_t) {};
    hook.allocate = [](void *, size_t, size_t) -> void * { throw std::bad_alloc(); };
    CHECK(nybl_context_create(&desc, &ctx) == NYBL_OUT_OF_MEMORY);
    hook.allocate = [](void *, size_t, size_t) -> void * {
        alignas(64) static unsigned char memory[1 << 16];
        return memory + 1;
    };
    CHECK(nybl_context_create(&desc, &ctx) == NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("aligned"));
    CHECK(ctx == nullptr);
}

TEST_CASE("a steady-state call allocates nothing, and memory stays flat over shapes") {
    Session session;
    Heap heap;
    const nybl::Context ctx(heap.desc(2));
    const nybl::Weights w(ctx, describe(NYBL_Q4_1, kN, kK, session.blocks.data()));
    const nybl::Weights q(ctx, describe(NYBL_Q4_1, kN, kK, session.blocks.data(), 1, NYBL_STORAGE_ORIGINAL));
    const auto x = random_floats(64 * kK, 3);
    std::vector<float> y(64 * kN), z(64 * kN);
    const auto both = [&](size_t m) {
        const nybl_weights *handles[2] = {w.get(), q.get()};
        const nybl_matmul_args args[2] = {f32_args(m, x.data(), y.data()), f32_args(m, x.data(), z.data())};
        nybl::check(nybl_matmul_multi(2, handles, args));
    };
    w.matmul(64, x.data(), y.data());
    both(64);
    const size_t settled = heap.allocations;
    for (size_t i = 0; i < 200; ++i) {
        w.matmul(1 + i * 7 % 64, x.data(), y.data());
        both(1 + i * 11 % 64);
    }
    CHECK(heap.allocations == settled);
}

TEST_CASE("C14: memory and kernels stay bounded over 100,000 calls of random shapes") {
    const size_t k = 64, most = 300;
    const size_t before = nybl::cpu::jit::kernel_count(); // of other tests in this process
    Heap heap;
    const nybl::Context ctx(heap.desc(2));
    const auto blocks = random_blocks(NYBL_Q4_0, most, k, 1);
    std::vector<nybl::Weights> weights;
    for (size_t n = 1; n <= most; ++n)
        weights.emplace_back(ctx, describe(NYBL_Q4_0, n, k, blocks.data()));
    const auto x = random_floats(most * k, 2);
    std::vector<float> y(most * most);
    uint32_t state = 1;
    const auto random_call = [&] {
        state = state * 1664525 + 1013904223;
        const size_t m = 1 + (state >> 8) % most, n = (state >> 20) % most;
        weights[n].matmul(m, x.data(), y.data());
    };
    for (size_t i = 0; i < 1000; ++i)
        random_call();
    weights[most - 1].matmul(most, x.data(),
                             y.data()); // the largest of all, so that scratch has its final size
    const size_t kernels = nybl::cpu::jit::kernel_count(), allocations = heap.allocations;
    const long resident = resident_pages();
    for (size_t i = 1000; i < 100000; ++i)
        random_call();
    CHECK(heap.allocations == allocations);
    CHECK(nybl::cpu::jit::kernel_count() <= kernels + 8); // a tile size that a thousand calls did not meet
    CHECK(kernels - before < 200);
#if !defined(__SANITIZE_THREAD__) // which keeps notes of its own about every access
    CHECK(resident_pages() <= resident + 64);
#else
    (void)resident;
#endif
}

TEST_CASE("nybl_context_memory counts what went through the allocator, now and at its highest") {
    Session session;
    Heap heap;
    const nybl::Context ctx(heap.desc(2));
    const size_t empty = ctx.memory().host_bytes;
    CHECK(empty == heap.bytes());
    const auto desc = describe(NYBL_Q4_1, kN, kK, session.blocks.data());
    size_t packed = 0;
    nybl::check(nybl_weights_bytes(ctx.get(), &desc, &packed));
    CHECK(packed == session.blocks.size() / kExperts); // these shapes need no padding
    size_t with_weights = 0;
    {
        const nybl::Weights w(ctx, desc);
        with_weights = ctx.memory().host_bytes;
        CHECK(with_weights == heap.bytes());
        CHECK(with_weights >= empty + packed);
        CHECK(with_weights <= empty + packed + 512); // C19: no second copy while packing
        CHECK(ctx.memory().host_peak_bytes == with_weights);
    }
    CHECK(ctx.memory().host_bytes == empty);
    CHECK(ctx.memory().host_peak_bytes == with_weights);
    auto original = desc;
    original.storage = NYBL_STORAGE_ORIGINAL;
    nybl::check(nybl_weights_bytes(ctx.get(), &original, &packed));
    CHECK(packed == 0);
}
