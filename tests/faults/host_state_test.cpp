// Every public function in a process whose host has done something to it: executable memory refused, another
// floating-point environment, signals all the time. The results are those of an ordinary process.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <sys/time.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "cpu/jit/executable_memory.h"
#include "faults/calls.h"
#include "kernels/child_process.h"

using namespace nybl::fault;

namespace {

// By the plain kernels, which need nothing of the process.
const Results &expected() {
    static const Results results = [] {
        Stage stage(NYBL_ISA_SCALAR);
        return run_all(stage);
    }();
    return results;
}

std::atomic<uint64_t> g_signals{0};

} // namespace

TEST_CASE("faults: where executable memory is refused, every public function gives the same bytes",
          "[faults][C11]") {
    if (const char *refusal = nybl::cpu::jit::jit_refusal())
        SKIP(refusal);
    expected();
    for (const auto refuse :
         {nybl::test::refuse_executable_memory_by_seccomp, nybl::test::refuse_executable_memory_by_mdwe}) {
        const std::string outcome = nybl::test::run_in_child([refuse]() -> std::string {
            // Handles made before the refusal, which have asked for no kernel of the calls below, and after
            // it.
            Stage before;
            if (!refuse())
                return "";
            Stage after;
            if (nybl_context_isa(after.context.get()) != NYBL_ISA_SCALAR) {
                // What was detected holds until a kernel is refused.
                run_all(after);
                Stage later;
                if (nybl_context_isa(later.context.get()) != NYBL_ISA_SCALAR)
                    return "the context does not say scalar";
            }
            const std::string wrong = first_difference(run_all(after), expected());
            return wrong.empty() ? first_difference(run_all(before), expected()) : wrong;
        });
        CHECK(outcome == "");
    }
}

#if defined(__x86_64__)
TEST_CASE(
    "faults: under any floating-point environment every public function gives the same bytes and keeps it",
    "[faults]") {
    Stage stage;
    // Flush to zero and denormals are zero, each rounding mode, and all exceptions unmasked.
    for (const unsigned csr : {0x9fc0u, 0x3f80u, 0x5f80u, 0x7f80u, 0xffc0u, 0x0000u}) {
        expected();
        _mm_setcsr(csr);
        const Results results = run_all(stage);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(0x1f80);
        INFO("MXCSR " << csr);
        CHECK(first_difference(results, expected()) == "");
        CHECK(after == csr);
    }
}
#endif

TEST_CASE("faults: signals during calls change no result", "[faults]") {
    Stage stage;
    expected();
    struct sigaction action {
    }, saved{};
    action.sa_handler = [](int) { ++g_signals; }; // without SA_RESTART: system calls are interrupted
    REQUIRE(sigaction(SIGALRM, &action, &saved) == 0);
    const itimerval often{{0, 200}, {0, 200}}, never{};
    REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    std::string wrong;
    size_t calls = 0;
    while (wrong.empty() && std::chrono::steady_clock::now() < end) {
        wrong = first_difference(run_all(stage), expected());
        calls += expected().size();
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &saved, nullptr);
    CHECK(wrong == "");
    WARN(g_signals << " signals during " << calls << " calls");
    CHECK(g_signals > 100);
}
