// The per-thread error sentence.
#include "base/status.h"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <thread>

TEST_CASE("fail() records the sentence and returns the status") {
    CHECK(nybl::fail(NYBL_INVALID_DATA, "row %d, block %d", 3, 17) == NYBL_INVALID_DATA);
    CHECK(std::string(nybl::last_error()) == "row 3, block 17");
}

TEST_CASE("one thread's error is not another's") {
    nybl::fail(NYBL_INTERNAL, "mine");
    std::string theirs = "unread";
    std::thread([&] { theirs = nybl::last_error(); }).join();
    CHECK(theirs.empty());
    CHECK(std::string(nybl::last_error()) == "mine");
}

TEST_CASE("a sentence longer than the buffer is cut, not overrun") {
    const std::string text(2000, 'x');
    nybl::fail(NYBL_INTERNAL, "%s", text.c_str());
    const std::string kept = nybl::last_error();
    CHECK(kept.size() < text.size());
    CHECK(kept == text.substr(0, kept.size()));
}
