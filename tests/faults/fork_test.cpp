// Forks at bad moments: while another thread generates kernels. Files that are cut under a mapping.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "cpu/jit/executable_memory.h"
#include "cpu/jit/generator.h"
#include "faults/calls.h"
#include "kernels/child_process.h"

using namespace nybl::fault;

namespace {

// Takes long enough to generate that most forks fall into it.
class Return : public nybl::cpu::jit::Generator {
  public:
    explicit Return(const nybl::cpu::jit::KernelKey &key) : Generator(key) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

  protected:
    void emit() override { ret(); }
};

} // namespace

TEST_CASE("C10: a child forked while another thread generates kernels can generate its own", "[faults]") {
    using namespace nybl::cpu::jit;
    if (const char *refusal = jit_refusal())
        SKIP(refusal);
    Stage scalar(NYBL_ISA_SCALAR);
    const Results expected = run_all(scalar);
    std::atomic<bool> stop{false};
    std::atomic<int> generated{0};
    std::thread generating([&] {
        for (uint16_t variant = 1; variant < 1500 && !stop; ++variant, ++generated)
            find_or_generate(
                {.kind = KernelKind::Test, .format = NYBL_F32, .isa = NYBL_ISA_SCALAR, .variant = variant},
                make_generator<Return>);
    });
    int met = 0;
    for (int round = 0; round < 40; ++round) {
        const int before = generated;
        CHECK(nybl::test::run_in_child([&] {
                  alarm(5);
                  Stage stage;
                  return first_difference(run_all(stage), expected);
              }) == "");
        met += generated != before;
    }
    stop = true;
    generating.join();
    CHECK(met > 0);
}

TEST_CASE("faults: a mapped file that is cut before the handle is made is refused, and after it the process "
          "gets SIGBUS",
          "[faults]") {
    const auto &blocks = Stage::data().q4_k;
    char name[] = "/tmp/nybl-cut-XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    unlink(name);
    REQUIRE(write(file, blocks.data(), blocks.size()) == static_cast<ssize_t>(blocks.size()));
    const void *data = mmap(nullptr, blocks.size(), PROT_READ, MAP_SHARED, file, 0);
    REQUIRE(data != MAP_FAILED);
    auto desc = capi_test::describe(NYBL_Q4_K, Stage::kN, Stage::kK, data, 1, NYBL_STORAGE_ORIGINAL);
    const auto use = [&](size_t size_before, size_t size_after) -> std::string {
        if (ftruncate(file, static_cast<off_t>(size_before)) != 0)
            return "ftruncate failed";
        desc.data_size = size_before;
        const nybl::Context context = capi_test::make_context(1);
        nybl_weights *made = nullptr;
        if (nybl_weights_create(context.get(), &desc, &made) != NYBL_OK)
            return nybl_last_error();
        const nybl::Weights weights(made);
        if (ftruncate(file, static_cast<off_t>(size_after)) != 0)
            return "ftruncate failed";
        std::vector<float> y(Stage::kN);
        weights.matmul(1, Stage::data().x.data(), y.data());
        return "";
    };
    CHECK(nybl::test::run_in_child([&] { return use(blocks.size(), blocks.size()); }) == "");
    const std::string refused = nybl::test::run_in_child([&] { return use(blocks.size() - 1, 0); });
    CHECK(refused.find(std::to_string(blocks.size() - 1)) != std::string::npos);
    const std::string cut = nybl::test::run_in_child([&] { return use(blocks.size(), 0); });
    CHECK(cut.find("signal " + std::to_string(SIGBUS)) != std::string::npos);
    munmap(const_cast<void *>(data), blocks.size());
    close(file);
}
