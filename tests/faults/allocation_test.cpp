// The system refuses heap memory, mappings, page protections or threads, at every place in turn where a
// public function asks: a status and words with nothing written, or the right result; nothing is lost, and
// the next call works.
#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <sys/mman.h>

#include "capi/symbols.h"
#include "faults/calls.h"
#include "faults/interpose.h"
#include "kernels/child_process.h"

using namespace nybl::fault;

namespace {

// What a child that met no refusal left for the others to compare with.
struct Clean {
    int64_t blocks, mappings; // lost or kept for good by the call
    uint8_t out[size_t{4} * Stage::kN * Stage::kK];
};
Clean *shared_memory() {
    void *pages = mmap(nullptr, sizeof(Clean), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<Clean *>(pages);
}

struct Kept {
    int64_t blocks, mappings;
};

constexpr const char *kNothingRefused = "nothing was refused";

// One call in this process, with a refusal in it, and again without.
std::string check_call(const PublicCall &call, Point point, uint64_t first, uint64_t count, Clean *clean) {
    const Kept before = {live_blocks(), live_mappings()};
    std::string wrong;
    {
        Stage stage;
        refuse(point, first, count);
        const nybl_status status = call.call(stage);
        if (end_refusals() == 0)
            return kNothingRefused;
        const auto same = [&] { return std::memcmp(stage.out.data(), clean->out, sizeof clean->out) == 0; };
        if (status == NYBL_OK) {
            if (!same())
                return "another result";
        } else {
            if (status != NYBL_OUT_OF_MEMORY)
                return std::string("status ") + nybl_status_string(status) + ": " + nybl_last_error();
            if (std::strlen(nybl_last_error()) < 20)
                return std::string("no words but '") + nybl_last_error() + "'";
            for (const uint8_t byte : stage.out)
                if (byte != Stage::kUntouched)
                    return "the output has changed";
        }
        stage.forget();
        if (call.call(stage) != NYBL_OK || !same())
            return std::string("the next call does not work: ") + nybl_last_error();
    }
    if (live_blocks() - before.blocks != clean->blocks ||
        live_mappings() - before.mappings != clean->mappings)
        wrong = "kept " + std::to_string(live_blocks() - before.blocks) + " blocks and " +
                std::to_string(live_mappings() - before.mappings) + " mappings, not " +
                std::to_string(clean->blocks) + " and " + std::to_string(clean->mappings);
    return wrong;
}

// The same without refusals: what a call writes, and what it keeps (kernels, threads' stacks).
std::string run_clean(const PublicCall &call, Clean *clean) {
    const Kept before = {live_blocks(), live_mappings()};
    {
        Stage stage;
        if (call.call(stage) != NYBL_OK)
            return std::string("fails by itself: ") + nybl_last_error();
        std::memcpy(clean->out, stage.out.data(), sizeof clean->out);
        stage.forget();
        if (call.call(stage) != NYBL_OK)
            return "fails the second time";
    }
    clean->blocks = live_blocks() - before.blocks;
    clean->mappings = live_mappings() - before.mappings;
    return "";
}

// Every request of every call in turn, each in a process that has generated no kernel yet. Returns how many
// were refused.
size_t refuse_each(Point point, uint64_t count) {
    Stage::data(); // here and not in every child
    Clean *clean = shared_memory();
    REQUIRE(clean);
    size_t refusals = 0;
    for (const PublicCall &call : public_calls()) {
        INFO(call.name);
        REQUIRE(nybl::test::run_in_child([&] { return run_clean(call, clean); }) == "");
        for (uint64_t i = 0;; ++i) {
            INFO("request " << i);
            const std::string outcome =
                nybl::test::run_in_child([&] { return check_call(call, point, i, count, clean); });
            if (outcome == kNothingRefused)
                break;
            CHECK(outcome == "");
            ++refusals;
            if (!outcome.empty())
                break;
        }
    }
    munmap(clean, sizeof *clean);
    return refusals;
}

} // namespace

TEST_CASE("faults: the table of calls has every public function", "[faults]") {
    const nybl_test_symbol *symbols = nullptr;
    const size_t count = nybl_test_symbols(&symbols);
    std::string names;
    for (const PublicCall &call : public_calls())
        names += std::string(call.name) + ", ";
    for (size_t i = 0; i < count; ++i)
        CHECK(names.find(std::string(symbols[i].name) + ",") != std::string::npos);
}

TEST_CASE("C24: every request for heap memory is refused in turn, in every public function", "[faults]") {
    const size_t refusals = refuse_each(Point::Heap, 1);
    WARN(refusals << " requests for heap memory refused");
    CHECK(refusals > 100);
}

TEST_CASE("C24: heap memory is refused from one request on", "[faults]") {
    CHECK(refuse_each(Point::Heap, UINT64_MAX) > 20);
}

TEST_CASE("faults: mappings and page protections are refused in turn", "[faults]") {
    const size_t mappings = refuse_each(Point::Map, 1), protections = refuse_each(Point::Protect, 1);
    WARN(mappings << " mappings and " << protections << " protections refused");
    CHECK(mappings > 20);
    CHECK(protections > 20);
    CHECK(refuse_each(Point::Map, UINT64_MAX) > 20);
}

TEST_CASE("faults: threads are refused, the first, the second or all, and every result is the same",
          "[faults]") {
    // Threads start while the stage is built, so the refusal stands from there to the last call.
    const auto run = [] {
        Stage stage(NYBL_ISA_SCALAR);
        return run_all(stage);
    };
    const Results expected = run();
    size_t refused = 0;
    for (const uint64_t first : {0, 1, 2, 3})
        for (const uint64_t count : {uint64_t{1}, UINT64_MAX}) {
            INFO("threads " << first << " ..., " << count << " in all");
            refuse(Point::Thread, first, count);
            const Results results = run();
            refused += end_refusals();
            CHECK(first_difference(results, expected) == "");
        }
    CHECK(refused >= 8);
}
