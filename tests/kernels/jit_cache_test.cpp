// The code cache: one generation per key whoever asks, names by the grammar, memory that is never writable
// and executable, and systems that refuse executable memory.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "cpu/isa.h"
#include "cpu/jit/executable_memory.h"
#include "cpu/jit/generator.h"
#include "kernels/child_process.h"

using namespace nybl;
using namespace nybl::cpu::jit;

namespace {

// Returns its variant: enough to tell kernels apart, and free of any instruction set.
class Constant : public Generator {
  public:
    explicit Constant(const KernelKey &key) : Generator(key) { ++made; }
    static inline std::atomic<int> made = 0;

  protected:
    void emit() override {
        endbr64();
        mov(eax, key().variant);
        ret();
    }
};

// Takes long enough to generate that threads meet in it.
class Slow : public Constant {
  public:
    explicit Slow(const KernelKey &key) : Constant(key) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
};

class Broken : public Constant {
  public:
    using Constant::Constant;

  protected:
    void emit() override { throw Xbyak::Error(Xbyak::ERR_BAD_COMBINATION); }
};

using Function = int (*)();

constexpr KernelKey test_key(uint16_t variant, nybl_format format = NYBL_F32) {
    return {KernelKind::Test, format, NYBL_ISA_SCALAR, 1, 1, variant};
}

// Lines of /proc/self/maps whose permissions start with `permissions`.
std::vector<std::string> mappings(const std::string &permissions) {
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const size_t space = line.find(' ');
        if (space != std::string::npos && line.compare(space + 1, permissions.size(), permissions) == 0) {
            found.push_back(line);
        }
    }
    return found;
}

bool contains(const std::string &mapping, const void *address) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    std::sscanf(mapping.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end);
    const auto at = reinterpret_cast<uintptr_t>(address);
    return begin <= at && at < end;
}

std::string refused_in_this_process() {
    const void *entry = find_or_generate(test_key(900), make_generator<Constant>);
    if (entry != nullptr) {
        return "a kernel was generated all the same";
    }
    if (std::strstr(last_error(), "executable") == nullptr) {
        return std::string("the sentence does not say why: ") + last_error();
    }
    if (jit_refusal() == nullptr) {
        return "jit_refusal() knows of nothing";
    }
    if (cpu::effective_isa(NYBL_ISA_BEST) != NYBL_ISA_SCALAR) {
        return "the effective instruction set is not scalar";
    }
    // Refusals cost no system calls: many more change nothing.
    for (uint16_t i = 901; i < 1000; ++i) {
        if (find_or_generate(test_key(i), make_generator<Constant>) != nullptr) {
            return "a later kernel was generated";
        }
    }
    return Constant::made.load() > 1 ? "generators ran although nothing can be placed" : "";
}

#define REQUIRE_JIT()                                                                                        \
    if (jit_refusal() != nullptr) {                                                                          \
        SKIP(jit_refusal());                                                                                 \
    }

} // namespace

TEST_CASE("a kernel is generated once and found again", "[jit]") {
    REQUIRE_JIT();
    const int before = Constant::made;
    const size_t count = kernel_count();
    const auto first = kernel<Function>(test_key(100), make_generator<Constant>);
    REQUIRE(first != nullptr);
    CHECK(first() == 100);
    CHECK(kernel<Function>(test_key(100), make_generator<Constant>) == first);
    CHECK(Constant::made == before + 1);
    CHECK(kernel_count() == count + 1);
}

TEST_CASE("every field of the key tells kernels apart", "[jit]") {
    REQUIRE_JIT();
    std::set<const void *> entries;
    const KernelKey base{KernelKind::Test, NYBL_F16, NYBL_ISA_SCALAR, 16, 4, 0};
    std::vector<KernelKey> keys(7, base);
    keys[1].format = NYBL_BF16;
    keys[2].isa = NYBL_ISA_AMX;
    keys[3].rows = 4;
    keys[4].tokens = 16;
    keys[5].variant = 1;
    keys[6].variant = 256;
    for (const KernelKey &key : keys) {
        entries.insert(find_or_generate(key, make_generator<Constant>));
    }
    CHECK(entries.size() == keys.size());
    CHECK(entries.count(nullptr) == 0);
}

TEST_CASE("C14: eight threads that ask at once get one generation", "[jit]") {
    REQUIRE_JIT();
    for (uint16_t round = 200; round < 210; ++round) {
        const int before = Constant::made;
        std::atomic<int> ready = 0;
        std::vector<const void *> found(8);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < found.size(); ++i) {
            threads.emplace_back([&, i] {
                ++ready;
                while (ready < 8) {
                    std::this_thread::yield();
                }
                found[i] = find_or_generate(test_key(round), make_generator<Slow>);
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(Constant::made == before + 1);
        for (const void *entry : found) {
            CHECK(entry == found[0]);
            CHECK(entry != nullptr);
        }
    }
}

TEST_CASE("C14: calls of any number leave the number of kernels bounded", "[jit]") {
    REQUIRE_JIT();
    std::mt19937 random(7);
    const auto call = [&] {
        const uint16_t variant = static_cast<uint16_t>(300 + random() % 40);
        const auto function = kernel<Function>(test_key(variant), make_generator<Constant>);
        return function != nullptr && function() == variant;
    };
    bool right = true;
    for (int i = 0; i < 1000; ++i) {
        right = right && call();
    }
    const size_t kernels = kernel_count();
    const size_t executable = mappings("r-xp").size();
    for (int i = 0; i < 100000; ++i) {
        right = right && call();
    }
    CHECK(right);
    CHECK(kernel_count() == kernels);
    CHECK(mappings("r-xp").size() == executable);
}

TEST_CASE("a full table is an error in words", "[jit]") {
    REQUIRE_JIT();
    CHECK(test::run_in_child([]() -> std::string {
              for (uint32_t i = 0; i < 60000; ++i) {
                  const auto function =
                      kernel<Function>(test_key(static_cast<uint16_t>(i)), make_generator<Constant>);
                  if (function == nullptr) {
                      return std::strstr(last_error(), "full") != nullptr && i > 1000 ? "" : last_error();
                  }
                  if (function() != static_cast<int>(i)) {
                      return "the wrong kernel for variant " + std::to_string(i);
                  }
              }
              return "the table never filled";
          }) == "");
}

TEST_CASE("a generator that fails is asked once and says why", "[jit]") {
    REQUIRE_JIT();
    const int before = Constant::made;
    CHECK(find_or_generate(test_key(400), make_generator<Broken>) == nullptr);
    CHECK(std::string(last_error()).find("test_f32_1x1_scalar_v400") != std::string::npos);
    CHECK(std::string(last_error()).find("bad combination") != std::string::npos);
    fail(NYBL_INTERNAL, "something else");
    CHECK(find_or_generate(test_key(400), make_generator<Broken>) == nullptr);
    CHECK(std::string(last_error()).find("test_f32_1x1_scalar_v400") != std::string::npos);
    CHECK(Constant::made == before + 1);
}

TEST_CASE("names follow the grammar op_format_rowsxtokens_isa", "[jit]") {
    CHECK(std::string(kernel_name({KernelKind::Decode, NYBL_Q4_K, NYBL_ISA_AVX2, 16, 4}).text) ==
          "decode_q4_k_16x4_avx2");
    CHECK(std::string(kernel_name({KernelKind::VecDot, NYBL_IQ4_NL, NYBL_ISA_AVX512_VNNI, 1, 1, 3}).text) ==
          "vec_dot_iq4_nl_1x1_avx512_vnni_v3");
    const std::regex grammar(
        "(decode|prefill|decode_original|unpack|gather|quantize|vec_dot|dequantize|f32|test)_"
        "(f32|f16|bf16|q4_0|q4_1|q5_1|q4_k|q5_k|iq4_nl|q8_0|q8_1|q8_k)_"
        "[0-9]+x[0-9]+_(scalar|avx2|avx_vnni|avx512_vnni|amx)(_v[0-9]+)?");
    std::set<std::string> names;
    for (int kind = 1; kind <= static_cast<int>(KernelKind::Test); ++kind) {
        for (const nybl_format format : {NYBL_F32, NYBL_F16, NYBL_BF16, NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_1,
                                         NYBL_Q4_K, NYBL_Q5_K, NYBL_IQ4_NL}) {
            for (int isa = NYBL_ISA_SCALAR; isa <= NYBL_ISA_AMX; ++isa) {
                const KernelName name = kernel_name(
                    {static_cast<KernelKind>(kind), format, static_cast<nybl_isa>(isa), 255, 255, 65535});
                CHECK(std::regex_match(name.text, grammar));
                CHECK(names.insert(name.text).second);
            }
        }
    }
}

TEST_CASE("C11: kernels lie in memory that is executable and not writable", "[jit]") {
    REQUIRE_JIT();
    const void *entry = find_or_generate(test_key(500), make_generator<Constant>);
    REQUIRE(entry != nullptr);
    CHECK(mappings("rwx").empty());
    CHECK(mappings("-wx").empty());
    size_t holding = 0;
    for (const std::string &mapping : mappings("r-xp")) {
        holding += contains(mapping, entry);
    }
    CHECK(holding == 1);
}

TEST_CASE("C11: a seccomp filter on executable memory means no kernels, in words", "[jit]") {
    REQUIRE_JIT();
    CHECK(test::run_in_child([] {
              Constant::made = 0;
              return test::refuse_executable_memory_by_seccomp()
                         ? refused_in_this_process()
                         : std::string("no seccomp filter could be set");
          }) == "");
}

TEST_CASE("C11: memory-deny-write-execute means no kernels, in words", "[jit]") {
    REQUIRE_JIT();
    const std::string outcome = test::run_in_child([] {
        Constant::made = 0;
        return test::refuse_executable_memory_by_mdwe() ? refused_in_this_process() : std::string("no MDWE");
    });
    if (outcome == "no MDWE") {
        SKIP("this kernel has no PR_SET_MDWE (Linux 6.3)");
    }
    CHECK(outcome == "");
}
