// Files that override the dispatch table: what is read, what is refused and how that is told, and the way
// back.
#include "dispatch/tuning.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "benchmarks/tune_file.h"
#include "cpu/isa.h"
#include "dispatch/choose.h"

using namespace nybl;
using namespace nybl::dispatch;

namespace {

constexpr const char *kCpu = "A CPU @ 3 GHz";
const std::string kHead = "nybl-tuning 1\ncpu A CPU @ 3 GHz\n";

void check_is_table(const Tuning &tuning) {
    CHECK(tuning.from_file == 0);
    for (size_t s = 0; s < kKernelSetCount; ++s)
        for (const SettingKey &key : kSettingKeys) {
            CHECK((tuning.sets[s].*key.member).value == (kBuiltInTuning.sets[s].*key.member).value);
            CHECK_FALSE((tuning.sets[s].*key.member).from_file);
        }
}

struct Folder {
    std::filesystem::path path;
    Folder() {
        char name[] = "/tmp/nybl-tuning-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        path = name;
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string file(const std::string &text) const {
        std::ofstream(path / "tuning") << text;
        return path / "tuning";
    }
};

} // namespace

TEST_CASE("the built-in table keeps to what kernels accept") {
    CHECK(kBuiltInTuning.refusal[0] == '\0');
    check_is_table(kBuiltInTuning);
    for (const KernelSet &set : kBuiltInTuning.sets)
        for (const SettingKey &key : kSettingKeys) {
            INFO(cpu::isa_name(set.isa) << "." << key.name);
            CHECK((set.*key.member).value >= key.least);
            CHECK((set.*key.member).value <= most_allowed(key, set.isa));
        }
    CHECK(kBuiltInTuning.find(NYBL_ISA_SCALAR) == nullptr);
    CHECK(kBuiltInTuning.find(NYBL_ISA_AMX)->isa == NYBL_ISA_AMX);
}

TEST_CASE("a right tuning file overrides what it names and nothing else") {
    const Tuning tuning =
        parse_tuning(kHead + "# measured on a quiet day\n\navx2.stream_max_m 11\n"
                             "avx2.tiled_tokens 16\navx2.tiled_panels 4\namx.tiled_panels 1",
                     kCpu);
    CHECK(std::string(tuning.refusal) == "");
    CHECK(tuning.from_file == 4);
    const KernelSet &avx2 = *tuning.find(NYBL_ISA_AVX2);
    CHECK(avx2.stream_max_m == 11);
    CHECK(std::string(avx2.stream_max_m.source()) == "file");
    CHECK(avx2.tiled_tokens == 16);
    CHECK(avx2.tiled_panels == 4);
    CHECK(avx2.stream_tokens == kBuiltInTuning.find(NYBL_ISA_AVX2)->stream_tokens);
    CHECK(std::string(avx2.stream_tokens.source()) == "table");
    const KernelSet &vnni = *tuning.find(NYBL_ISA_AVX_VNNI);
    CHECK(vnni.stream_max_m == kBuiltInTuning.find(NYBL_ISA_AVX_VNNI)->stream_max_m);
    check_is_table(parse_tuning(kHead, kCpu)); // nothing overridden is no fault
    CHECK(parse_tuning(kHead, kCpu).refusal[0] == '\0');
}

TEST_CASE("a tuning file with one wrong line is ignored as a whole, and the reason names the line") {
    const struct {
        std::string text, reason;
    } cases[] = {
        {"", "no line with the CPU"},
        {"nybl-tuning 1\n", "no line with the CPU"},
        {"nybl-tuning 2\ncpu A CPU @ 3 GHz\n", "line 1: no \"nybl-tuning 1\" but \"nybl-tuning 2\""},
        {"nybl-tuning 1 \ncpu A CPU @ 3 GHz\n", "line 1"},
        {"nybl-tuning 1\r\ncpu A CPU @ 3 GHz\r\n", "line 1: no \"nybl-tuning 1\" but \"nybl-tuning 1?\""},
        {"\n" + kHead, "line 1"},
        {"cpu A CPU @ 3 GHz\nnybl-tuning 1\n", "line 1"},
        {"nybl-tuning 1\ncpu Another\navx2.stream_max_m 9\n", "line 2: made for the CPU \"Another\""},
        {"nybl-tuning 1\navx2.stream_max_m 9\ncpu A CPU\n", "line 3: made for the CPU \"A CPU\""},
        {kHead + "cpu A CPU @ 3 GHz\n", "line 3: a second CPU"},
        {kHead + "avx2.stream_max_m 9\navx2.speed 3\n", "line 4: unknown key \"avx2.speed\""},
        {kHead + "scalar.stream_max_m 9\n", "line 3: unknown key"},
        {kHead + "AVX2.stream_max_m 9\n", "line 3: unknown key"},
        {kHead + "avx2.stream_max_m\n", "line 3: \"avx2.stream_max_m\" is no key and value"},
        {kHead + " avx2.stream_max_m 9\n", "line 3: unknown key \"\""},
        {kHead + "avx2.stream_max_m 0\n", "line 3: avx2.stream_max_m 0: not in 1 .. 128"},
        {kHead + "avx2.stream_max_m 129\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m 4294967297\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m 99999999999999999999999999\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m -1\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m +9\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m 9x\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m  9\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m 9.5\n", "not in 1 .. 128"},
        {kHead + "avx2.stream_max_m \n", "not in 1 .. 128"},
        {kHead + "avx2.stream_tokens 17\n", "not in 1 .. 16"},
        {kHead + "avx512_vnni.tiled_tokens 17\n", "not in 1 .. 16"},
        {kHead + "avx512_vnni.tiled_panels 5\n", "not in 1 .. 4"},
        {kHead + "amx.tiled_panels 2\n", "line 3: amx.tiled_panels 2: not in 1 .. 1"},
        {kHead + "avx2.stream_max_m 9\navx2.stream_max_m 9\n", "line 4: avx2.stream_max_m a second time"},
        {kHead + std::string("avx2.stream_max_m 9\0", 20) + "\n", "not in 1 .. 128"},
        {kHead + "# " + std::string(kMaxTuningFileBytes, '-') + "\n", "longer than 4096 bytes"},
    };
    for (const auto &[text, reason] : cases) {
        INFO(text);
        const Tuning tuning = parse_tuning(text, kCpu);
        check_is_table(tuning);
        INFO(tuning.refusal);
        CHECK(std::string(tuning.refusal).find(reason) != std::string::npos);
    }
}

TEST_CASE(
    "whatever bytes a tuning file holds, its settings stay in their ranges and its refusal is plain text") {
    std::mt19937 random(1);
    const std::string good =
        kHead + "avx2.stream_max_m 11\navx512_vnni.tiled_panels 3\namx.tiled_tokens 12\n";
    size_t refused = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string text = good;
        for (unsigned change = random() % 4; change-- > 0;)
            text[random() % text.size()] = char(random());
        text.resize(random() % 8 == 0 ? random() % text.size() : text.size());
        const Tuning tuning = parse_tuning(text, kCpu);
        refused += tuning.refusal[0] != '\0';
        bool right = tuning.refusal[0] == '\0' || tuning.from_file == 0;
        for (const KernelSet &set : tuning.sets)
            for (const SettingKey &key : kSettingKeys)
                right = right && (set.*key.member).value >= key.least &&
                        (set.*key.member).value <= most_allowed(key, set.isa);
        right = right && std::memchr(tuning.refusal, '\0', sizeof tuning.refusal) != nullptr;
        for (const char *c = tuning.refusal; right && *c; ++c)
            right = *c >= ' ' && *c <= '~';
        if (!right)
            FAIL("from the text: " << text << "\nrefusal: " << tuning.refusal);
    }
    CHECK(refused > 1000);
    CHECK(refused < 20000);
}

TEST_CASE("files that are missing, no files or too long are told apart from right ones") {
    const Folder folder;
    const std::string name = folder.path / "tuning";
    const auto refusal = [&](const std::string &path) {
        const Tuning tuning = read_tuning(path.c_str(), kCpu);
        check_is_table(tuning);
        return std::string(tuning.refusal);
    };
    CHECK(refusal(name) == "it cannot be read");
    CHECK(refusal(folder.path) == "it cannot be read");
    REQUIRE(mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
    CHECK(refusal(folder.path / "pipe") == "it cannot be read"); // and nobody waits for a writer
    CHECK(refusal(folder.file("")) == "it has no line with the CPU's name");
    CHECK(refusal(folder.file(kHead + std::string(1 << 20, '\n'))) == "it is longer than 4096 bytes");
    CHECK(read_tuning(folder.file(kHead + "avx2.tiled_tokens 3\n").c_str(), kCpu).from_file == 1);
}

TEST_CASE("what the tuner writes is what the library reads") {
    const Folder folder;
    std::string text = kHead;
    for (const KernelSet &set : kBuiltInTuning.sets)
        for (const SettingKey &key : kSettingKeys)
            text += std::string(cpu::isa_name(set.isa)) + "." + key.name + " " +
                    std::to_string(most_allowed(key, set.isa)) + "\n";
    const Tuning tuning = parse_tuning(text, kCpu);
    CHECK(tuning.from_file == kKernelSetCount * kSettingKeyCount);
    const std::string path = folder.path / "made" / "on" / "the" / "way";
    bench::write_tuning_file(path, bench::tuning_text(tuning, kCpu));
    const Tuning again = read_tuning(path.c_str(), kCpu);
    CHECK(std::string(again.refusal) == "");
    CHECK(again.from_file == tuning.from_file);
    CHECK(bench::tuning_text(again, kCpu) == bench::tuning_text(tuning, kCpu));
    CHECK(bench::tuning_text(kBuiltInTuning, kCpu).find("avx2.") == std::string::npos);
}

TEST_CASE("the tuner does not take the place of what is no regular file") {
    const Folder folder;
    const std::string pipe = folder.path / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(bench::write_tuning_file(pipe, "text"),
                      "cannot write " + pipe + ": it is there, and no regular file");
    CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("dispatch obeys the tuning it is given, and says whose threshold decided") {
    const Tuning tuning = parse_tuning(kHead + "avx512_vnni.stream_max_m 11\navx512_vnni.stream_tokens 5\n"
                                               "avx512_vnni.tiled_tokens 7\navx512_vnni.tiled_panels 3\n",
                                       kCpu);
    REQUIRE(tuning.from_file == 4);
    Shape shape{};
    shape.format = NYBL_Q4_K;
    shape.n = shape.k = 4096;
    shape.n_experts = 1;
    shape.isa = NYBL_ISA_AVX512_VNNI;
    shape.threads = 1;
    shape.tuning = &tuning;
    const auto at = [&](size_t m) {
        shape.m = m;
        return choose(shape);
    };
    CHECK(at(11).kernel.strategy == cpu::Strategy::Stream);
    CHECK(at(11).kernel.mr == 4); // three tiles of at most 5
    CHECK(std::string(at(11).reason).starts_with("M = 11 <= 11 (file): weights are read once"));
    CHECK(at(12).kernel.strategy == cpu::Strategy::Tiled);
    CHECK(at(12).kernel.mr == 6);
    CHECK(at(12).kernel.nr == 48);
    CHECK(at(12).kernel.stream_max_m == 11); // experts with so few tokens
    CHECK(std::string(at(12).reason).starts_with("M = 12 > 11 (file): each panel is unpacked once"));

    shape.isa = NYBL_ISA_AVX2; // which the file says nothing about
    const uint32_t most = kBuiltInTuning.find(NYBL_ISA_AVX2)->stream_max_m;
    CHECK(std::string(at(most).reason)
              .starts_with("M = " + std::to_string(most) + " <= " + std::to_string(most) + " (table): "));
    CHECK(std::string(at(most + 1).name).starts_with("prefill_"));

    Tuning refused = parse_tuning("nybl-tuning 9\n", kCpu);
    shape.tuning = &refused;
    const std::string reason = at(1).reason;
    CHECK(reason.find("(table): ") != std::string::npos);
    CHECK(reason.find("; NYBL_TUNING is ignored: line 1: no \"nybl-tuning 1\" but \"nybl-tuning 9\"") !=
          std::string::npos);
    std::memset(refused.refusal, 'x', sizeof refused.refusal - 1);
    CHECK(std::strlen(at(SIZE_MAX).reason) == sizeof Choice::reason - 1);
}

TEST_CASE("the processor's name is one line of text without space around it") {
    const std::string name = cpu::cpu_model().text;
    CHECK(!name.empty());
    CHECK(name.front() != ' ');
    CHECK(name.back() != ' ');
    CHECK(name.find('\n') == std::string::npos);
}
