// Perf maps, jitdump and raw dumps: written when asked for, and nothing otherwise.
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "cpu/jit/executable_memory.h"
#include "cpu/jit/generator.h"
#include "kernels/child_process.h"

namespace fs = std::filesystem;
using namespace nybl::cpu::jit;

namespace {

class Return : public Generator {
  public:
    using Generator::Generator;
    explicit Return(const KernelKey &key) : Generator(key) {}

  protected:
    void emit() override {
        endbr64();
        mov(eax, key().variant);
        ret();
    }
};
constexpr size_t kCodeBytes = 10; // endbr64, mov eax, ret

const void *generate(uint16_t variant) {
    return find_or_generate({KernelKind::Test, NYBL_BF16, NYBL_ISA_SCALAR, 2, 3, variant},
                            make_generator<Return>);
}

std::string read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A directory that goes with the test.
class Directory {
  public:
    Directory() {
        std::string pattern = (fs::temp_directory_path() / "nybl-jit-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~Directory() { fs::remove_all(path_); }
    const fs::path &path() const { return path_; }

  private:
    fs::path path_;
};

fs::path perf_map() {
    return "/tmp/perf-" + std::to_string(getpid()) + ".map";
}

template <class T>
T at(const std::string &bytes, size_t offset) {
    T value{};
    if (offset + sizeof value <= bytes.size()) {
        std::memcpy(&value, bytes.data() + offset, sizeof value);
    }
    return value;
}

std::string hex(const void *address) {
    std::ostringstream text;
    text << std::hex << reinterpret_cast<uintptr_t>(address);
    return text.str();
}

} // namespace

TEST_CASE("NYBL_PERF=map names kernels for perf", "[jit]") {
    if (jit_refusal() != nullptr) {
        SKIP(jit_refusal());
    }
    CHECK(nybl::test::run_in_child([]() -> std::string {
              setenv("NYBL_PERF", "map", 1);
              const void *first = generate(1);
              const void *second = generate(2);
              generate(1); // found, not generated: no line
              const std::string expected = hex(first) + " a nybl:test_bf16_2x3_scalar_v1\n" + hex(second) +
                                           " a nybl:test_bf16_2x3_scalar_v2\n";
              const std::string found = read_file(perf_map());
              fs::remove(perf_map());
              return found == expected ? "" : "found: " + found;
          }) == "");
}

TEST_CASE("a perf map is never written through a link", "[jit]") {
    if (jit_refusal() != nullptr) {
        SKIP(jit_refusal());
    }
    const Directory directory;
    CHECK(nybl::test::run_in_child([&]() -> std::string {
              setenv("NYBL_PERF", "map", 1);
              fs::create_symlink(directory.path() / "victim", perf_map());
              const bool generated = generate(1) != nullptr;
              const bool written = fs::exists(directory.path() / "victim");
              fs::remove(perf_map());
              return !generated ? "the kernel was not generated" : written ? "the link was followed" : "";
          }) == "");
}

TEST_CASE("NYBL_PERF=jitdump records code for perf inject", "[jit]") {
    if (jit_refusal() != nullptr) {
        SKIP(jit_refusal());
    }
    const Directory directory;
    CHECK(nybl::test::run_in_child([&]() -> std::string {
              setenv("NYBL_PERF", "jitdump", 1);
              setenv("JITDUMPDIR", directory.path().c_str(), 1);
              const void *entries[] = {generate(1), generate(2)};
              const std::string dump =
                  read_file(directory.path() / ("jit-" + std::to_string(getpid()) + ".dump"));
              if (dump.compare(0, 4, "DTiJ") != 0 || at<uint32_t>(dump, 4) != 1 ||
                  at<uint32_t>(dump, 8) != 40 || at<uint32_t>(dump, 12) != 62 ||
                  at<uint32_t>(dump, 20) != static_cast<uint32_t>(getpid())) {
                  return "bad header, " + std::to_string(dump.size()) + " bytes";
              }
              size_t record = 40;
              uint64_t index = 0;
              for (const void *entry : entries) {
                  const std::string name = "nybl:test_bf16_2x3_scalar_v" + std::to_string(index + 1);
                  const size_t bytes = 56 + name.size() + 1 + kCodeBytes;
                  const auto address = reinterpret_cast<uintptr_t>(entry);
                  if (at<uint32_t>(dump, record) != 0 || at<uint32_t>(dump, record + 4) != bytes ||
                      at<uint64_t>(dump, record + 24) != address ||
                      at<uint64_t>(dump, record + 32) != address ||
                      at<uint64_t>(dump, record + 40) != kCodeBytes ||
                      at<uint64_t>(dump, record + 48) != index ||
                      dump.compare(record + 56, name.size() + 1, name.c_str(), name.size() + 1) != 0 ||
                      std::memcmp(dump.data() + record + bytes - kCodeBytes, entry, kCodeBytes) != 0) {
                      return "bad record " + std::to_string(index);
                  }
                  record += bytes;
                  ++index;
              }
              return record == dump.size() ? "" : "bytes after the last record";
          }) == "");
}

TEST_CASE("NYBL_JIT_DUMP leaves bytes and the command that reads them", "[jit]") {
    if (jit_refusal() != nullptr) {
        SKIP(jit_refusal());
    }
    const Directory directory;
    CHECK(nybl::test::run_in_child([&]() -> std::string {
              setenv("NYBL_JIT_DUMP", directory.path().c_str(), 1);
              const void *entry = generate(1);
              const std::string name = "test_bf16_2x3_scalar_v1";
              const std::string bytes = read_file(directory.path() / (name + ".bin"));
              if (bytes.size() != kCodeBytes || std::memcmp(bytes.data(), entry, kCodeBytes) != 0) {
                  return "the bytes are not the code";
              }
              const std::string text = read_file(directory.path() / (name + ".txt"));
              const std::string command = "objdump -D -b binary -m i386:x86-64 -M intel --adjust-vma=0x" +
                                          hex(entry) + " " + name + ".bin\n";
              return text.find(command) != std::string::npos ? "" : "no such command: " + text;
          }) == "");
}

TEST_CASE("nothing is written unasked, and a folder that is missing fails nothing", "[jit]") {
    if (jit_refusal() != nullptr) {
        SKIP(jit_refusal());
    }
    const Directory directory;
    CHECK(nybl::test::run_in_child([&]() -> std::string {
              unsetenv("NYBL_PERF");
              unsetenv("NYBL_JIT_DUMP");
              setenv("JITDUMPDIR", directory.path().c_str(), 1);
              fs::current_path(directory.path());
              if (generate(1) == nullptr) {
                  return "the kernel was not generated";
              }
              if (fs::exists(perf_map()) || !fs::is_empty(directory.path())) {
                  return "something was written";
              }
              setenv("NYBL_PERF", "jitdump", 1);
              setenv("NYBL_JIT_DUMP", "/nonexistent", 1);
              setenv("JITDUMPDIR", "/nonexistent", 1);
              return generate(2) != nullptr ? "" : "profiling failed a kernel";
          }) == "");
}
