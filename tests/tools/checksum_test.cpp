// XXH64 against values of the xxhash package.
#include "base/checksum.h"

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <numeric>
#include <vector>

TEST_CASE("checksums are XXH64's, for lengths that use every part of it") {
    CHECK(nybl::checksum(nullptr, 0) == 0xef46db3751d8e999);
    CHECK(nybl::checksum("abc", 3) == 0x44bc2cf5ad770999);
    CHECK(nybl::checksum("nybl, thirteen", 14) == 0x33f4c7d0c875de85);
    std::vector<uint8_t> ascending(101);
    std::iota(ascending.begin(), ascending.end(), uint8_t{0});
    CHECK(nybl::checksum(ascending.data(), 64) == 0xf7c67301db6713f0);
    CHECK(nybl::checksum(ascending.data(), 101) == 0xe99038495f85381e);
}
