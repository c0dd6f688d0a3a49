// Generated code behind the C API: systems that refuse it, before or after the first kernel, and calls of
// every shape that leave nothing behind.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <random>
#include <string>
#include <unistd.h>

#include "cpu/jit/code_cache.h"
#include "cpu/jit/executable_memory.h"
#include "kernels/child_process.h"

using namespace capi_test;

namespace {

struct Problem {
    nybl_format format;
    size_t m, n, k;
};

std::vector<uint32_t> product_bits(const nybl::Context &context, const Problem &p) {
    const auto blocks = random_blocks(p.format, p.n, p.k, 3);
    const auto x = random_floats(p.m * p.k, 4);
    std::vector<float> y = unwritten(p.m * p.n);
    const nybl::Weights w(context, describe(p.format, p.n, p.k, blocks.data()));
    w.matmul(p.m, x.data(), y.data());
    return bits(y);
}

// What comes out of products whose kernels the system refuses from now on.
std::string products_after_refusal(bool (*refuse)(), bool kernels_exist) {
    const nybl::Context scalar = make_context(1, NYBL_ISA_SCALAR);
    const nybl::Context before = make_context();
    if (kernels_exist) {
        product_bits(before, {NYBL_Q4_0, 1, 16, 256});
    }
    if (!refuse()) {
        return "not refused";
    }
    for (const nybl_format format : kFormats) {
        for (const size_t m : {1, 3, 64}) {
            const Problem problem{format, m, 33, 512};
            const auto expected = product_bits(scalar, problem);
            if (product_bits(before, problem) != expected) {
                return "other bits on an old context: " + format_name(format) + ", m = " + std::to_string(m);
            }
            if (product_bits(make_context(), problem) != expected) {
                return "other bits on a new context: " + format_name(format) + ", m = " + std::to_string(m);
            }
        }
    }
    return nybl_context_isa(make_context().get()) == NYBL_ISA_SCALAR ? "" : "the context does not say scalar";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true; // their own memory grows with every call
#else
constexpr bool kSanitized = false;
#endif

size_t resident_pages() {
    size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident;
}

} // namespace

TEST_CASE(
    "C11: where executable memory is refused, products have the same bits and the context says scalar") {
    if (nybl::cpu::jit::jit_refusal() != nullptr) {
        SKIP(nybl::cpu::jit::jit_refusal());
    }
    for (const bool kernels_exist : {false, true}) {
        INFO("some kernels exist already: " << kernels_exist);
        CHECK(nybl::test::run_in_child([&] {
                  return products_after_refusal(nybl::test::refuse_executable_memory_by_seccomp,
                                                kernels_exist);
              }) == "");
    }
}

TEST_CASE("C14: calls of any shape leave kernels and memory bounded") {
    const size_t k = 32, n_max = 300, m_max = 300;
    const auto blocks = random_blocks(NYBL_Q4_0, n_max, k, 1);
    const auto x = random_floats(m_max * k, 2);
    std::vector<float> y(m_max * n_max);
    const nybl::Context context = make_context();
    std::mt19937 random(5);
    const auto call = [&](size_t m, size_t n) {
        const nybl::Weights w(context, describe(NYBL_Q4_0, n, k, blocks.data()));
        w.matmul(m, x.data(), y.data());
    };
    // About a thousand calls that meet every way to split rows and tokens into tiles once.
    for (size_t m = 1; m <= m_max; ++m) {
        for (const size_t n : {size_t{16}, size_t{80}, n_max}) {
            call(m, n);
        }
    }
    const size_t kernels = nybl::cpu::jit::kernel_count();
    const size_t pages = resident_pages();
    // One call in fifty has up to 300 rows of X: many of the large ones, within seconds.
    for (int i = 0; i < 100000; ++i) {
        const size_t m = 1 + random() % (random() % 50 == 0 ? m_max : 8);
        call(m, 1 + random() % n_max);
    }
    CHECK(nybl::cpu::jit::kernel_count() == kernels);
    CHECK((kSanitized || resident_pages() <= pages + 256)); // one MiB of slack for the allocator
}
