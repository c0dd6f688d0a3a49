// The header against itself: every function it declares exists and is in the C test, versions and texts are
// right.
#include "capi/support.h"
#include "capi/symbols.h"

#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

TEST_CASE("every function that the headers declare has an address in C") {
    const nybl_test_symbol *symbols = nullptr;
    std::set<std::string> linked;
    const size_t count = nybl_test_symbols(&symbols);
    for (size_t i = 0; i < count; ++i) {
        CHECK(symbols[i].address != nullptr);
        linked.insert(symbols[i].name);
    }
    std::stringstream buffer;
    for (const char *header : {"nybl.h", "nybl_pack.h"}) {
        std::ifstream file(std::string(NYBL_HEADERS) + header);
        REQUIRE(file.good());
        buffer << file.rdbuf();
    }
    const std::string text = buffer.str();
    std::set<std::string> declared;
    const std::regex declaration("NYBL_API [^;(]*?(nybl_\\w+)\\(");
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it)
        declared.insert((*it)[1]);
    CHECK(declared.size() > 30);
    CHECK(declared == linked);
}

TEST_CASE("version, build and status texts") {
    CHECK(nybl_version() == NYBL_TEST_VERSION);
    const uint32_t version = nybl_version();
    const std::string number = std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
                               '.' + std::to_string(version % 100);
    // "nybl 0.1.0, gcc 12.2.0, OpenCL"
    CHECK(std::regex_match(nybl_build_info(),
                           std::regex("nybl " + number + ", (gcc|clang) .*, (no GPU path|OpenCL.*)")));
    std::set<std::string> texts;
    for (int status = NYBL_OK; status <= NYBL_CANCELLED; ++status)
        texts.insert(nybl_status_string(static_cast<nybl_status>(status)));
    CHECK(texts.size() == NYBL_CANCELLED + 1);
    for (const char *name : {"scalar", "avx2", "avx_vnni", "avx512_vnni", "amx"})
        texts.insert(name);
    for (int isa = NYBL_ISA_SCALAR; isa <= NYBL_ISA_AMX; ++isa)
        CHECK(texts.count(nybl_isa_string(static_cast<nybl_isa>(isa))) == 1);
}

TEST_CASE("format facts: sizes, groups, minima and activation formats") {
    struct Facts {
        nybl_format format;
        const char *name;
        uint32_t block, bytes, group, min;
        nybl_format activations;
    };
    const Facts facts[] = {
        {NYBL_Q4_0, "Q4_0", 32, 18, 32, 0, NYBL_Q8_0},
        {NYBL_Q4_1, "Q4_1", 32, 20, 32, 1, NYBL_Q8_1},
        {NYBL_Q5_1, "Q5_1", 32, 24, 32, 1, NYBL_Q8_1},
        {NYBL_IQ4_NL, "IQ4_NL", 32, 18, 32, 0, NYBL_Q8_0},
        {NYBL_Q4_K, "Q4_K", 256, 144, 32, 1, NYBL_Q8_K},
        {NYBL_Q5_K, "Q5_K", 256, 176, 32, 1, NYBL_Q8_K},
        {NYBL_F32, "F32", 1, 4, 1, 0, NYBL_F32},
        {NYBL_F16, "F16", 1, 2, 1, 0, NYBL_F16},
        {NYBL_BF16, "BF16", 1, 2, 1, 0, NYBL_BF16},
        {NYBL_IQ4_NL_ROW, "IQ4_NL_ROW", 32, 17, 32, 0, NYBL_Q8_0},
    };
    for (const Facts &fact : facts) {
        auto info = nybl::make<nybl_format_info>();
        REQUIRE(nybl_format_get_info(fact.format, &info) == NYBL_OK);
        CHECK(std::string(info.name) == fact.name);
        CHECK(info.block_size == fact.block);
        CHECK(info.block_bytes == fact.bytes);
        CHECK(info.group_size == fact.group);
        CHECK(info.has_min == fact.min);
        CHECK(info.vec_dot_type == fact.activations);
        CHECK(info.row_extra_bytes == (fact.format == NYBL_IQ4_NL_ROW ? 4 : 0));
        CHECK(nybl::row_bytes(fact.format, 512) == 512 / fact.block * fact.bytes + info.row_extra_bytes);
        CHECK(nybl::row_bytes(fact.format, 0) == 0);
    }
}
