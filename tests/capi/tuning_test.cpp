// NYBL_TUNING through the C API: read once by a process, told by explain and the log, and without effect on
// results. A process reads it early, so each file gets a process of its own.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/isa.h"
#include "dispatch/tuning.h"

using namespace capi_test;

namespace {

constexpr const char *kCaseName =
    "whatever the tuning of this process the results are those of the scalar kernels";
constexpr const char *kReasonVariable = "NYBL_TEST_TUNING_REASON", *kLogVariable = "NYBL_TEST_TUNING_LOG";

std::string variable(const char *name, const char *otherwise) {
    const char *value = std::getenv(name);
    return value ? value : otherwise;
}

nybl::Context logged_context(nybl_isa isa, std::string *log) {
    auto desc = nybl::make<nybl_context_desc>();
    desc.n_threads = 2;
    desc.max_isa = isa;
    desc.log = [](void *user, int level, const char *message) {
        static_cast<std::string *>(user)
            ->append(std::to_string(level))
            .append(": ")
            .append(message)
            .append("\n");
    };
    desc.log_user = log;
    return nybl::Context(desc);
}

// Sets NYBL_MAX_ISA for a scope.
class MaxIsa {
  public:
    explicit MaxIsa(const char *value) : before_(variable("NYBL_MAX_ISA", "")) {
        setenv("NYBL_MAX_ISA", value, 1);
    }
    ~MaxIsa() { before_.empty() ? unsetenv("NYBL_MAX_ISA") : setenv("NYBL_MAX_ISA", before_.c_str(), 1); }

  private:
    const std::string before_;
};

// Runs the test case of that name in a new process.
int run_case(const std::vector<std::string> &added_environment, std::string out = "--out=-") {
    std::vector<std::string> variables = added_environment;
    for (char **entry = environ; *entry; ++entry)
        if (std::string(*entry).rfind("NYBL_TUNING=", 0) != 0)
            variables.emplace_back(*entry);
    std::vector<char *> environment;
    for (std::string &entry : variables)
        environment.push_back(entry.data());
    environment.push_back(nullptr);
    std::string program = std::filesystem::read_symlink("/proc/self/exe"), name = kCaseName;
    char *arguments[] = {program.data(), name.data(), out.data(), nullptr};
    pid_t child = 0;
    REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment.data()) == 0);
    int state = 0;
    REQUIRE(waitpid(child, &state, 0) == child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

std::vector<uint32_t> experts_bits(const nybl::Context &ctx, nybl_format format,
                                   const std::vector<uint8_t> &blocks, const std::vector<float> &x,
                                   const std::vector<int32_t> &ids, size_t n, size_t k) {
    const nybl::Weights w(ctx, describe(format, n, k, blocks.data(), 3));
    std::vector<float> y = unwritten(ids.size() * n);
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = ids.size();
    args.n_slots = 1;
    args.ids = ids.data();
    args.x = x.data();
    args.y = y.data();
    w.matmul_id(args);
    return bits(y);
}

} // namespace

TEST_CASE("a NYBL_MAX_ISA that names no instruction set is told by the log, and caps nothing") {
    std::string log;
    nybl_isa uncapped;
    {
        const MaxIsa variable("");
        uncapped = logged_context(NYBL_ISA_BEST, &log).isa();
        CHECK(log.find("NYBL_MAX_ISA") == std::string::npos);
    }
    {
        const MaxIsa variable("AVX2"); // names are lower-case
        CHECK(logged_context(NYBL_ISA_BEST, &log).isa() == uncapped);
        CHECK(log.find("1: NYBL_MAX_ISA is ignored: \"AVX2\" is none of scalar, avx2") != std::string::npos);
    }
    log.clear();
    const MaxIsa variable("scalar");
    CHECK(logged_context(NYBL_ISA_BEST, &log).isa() == NYBL_ISA_SCALAR);
    CHECK(log.find("NYBL_MAX_ISA") == std::string::npos);
}

TEST_CASE(kCaseName) {
    const std::string reason = variable(kReasonVariable, "(table): "), line = variable(kLogVariable, "");
    const nybl::Context scalar = make_context(1, NYBL_ISA_SCALAR);
    constexpr size_t n = 85, k = 512, most = 70;
    const auto x = random_floats(most * k, 4);
    // Two experts with few tokens, one with many.
    std::vector<int32_t> ids(most);
    for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = i < 3 ? 0 : i < 10 ? 1 : 2;
    for (const nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX}) {
        std::string log;
        const nybl::Context ctx = logged_context(isa, &log);
        INFO(log);
        CHECK(log.find(line) != std::string::npos);
        if (line.empty())
            CHECK(log.find("NYBL_TUNING") == std::string::npos);
        if (ctx.isa() != isa)
            continue; // this machine has none of it
        for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_K}) {
            const auto blocks = random_blocks(format, 3 * n, k, 3);
            for (const nybl_storage storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
                const auto desc = describe(format, n, k, blocks.data(), 1, storage);
                const nybl::Weights w(ctx, desc), plain(scalar, desc);
                for (const size_t m : {1, 2, 3, 9, 17, 40, 70}) {
                    INFO(w.explain(m).name << ": " << w.explain(m).reason);
                    std::vector<float> y = unwritten(m * n), expected = unwritten(m * n);
                    w.matmul(m, x.data(), y.data());
                    plain.matmul(m, x.data(), expected.data());
                    CHECK(bits(y) == bits(expected));
                    CHECK(std::string(w.explain(m).reason).find(reason) != std::string::npos);
                }
            }
            CHECK(experts_bits(ctx, format, blocks, x, ids, n, k) ==
                  experts_bits(scalar, format, blocks, x, ids, n, k));
        }
    }
}

TEST_CASE("NYBL_TUNING: a right file decides and a wrong one is told and ignored, and no result changes") {
    using namespace nybl;
    char name[] = "/tmp/nybl-tuning-XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    close(file);
    const std::string head = "nybl-tuning 1\ncpu " + std::string(cpu::cpu_model().text) + "\n";
    std::string right = head, most = head, least = head;
    for (const dispatch::KernelSet &set : dispatch::kBuiltInTuning.sets) {
        const std::string isa = cpu::isa_name(set.isa);
        right += isa + ".stream_max_m 5\n" + isa + ".stream_tokens 3\n" + isa + ".tiled_tokens 7\n" +
                 (set.isa == NYBL_ISA_AMX ? "" : isa + ".tiled_panels 3\n");
        for (const dispatch::SettingKey &key : dispatch::kSettingKeys) {
            most += isa + "." + key.name + " " + std::to_string(dispatch::most_allowed(key, set.isa)) + "\n";
            least += isa + "." + key.name + " " + std::to_string(key.least) + "\n";
        }
    }
    const std::string gives = "0: the file that NYBL_TUNING names gives ",
                      ignored = "1: the file that NYBL_TUNING names is ignored: ";
    const struct {
        std::string text, reason, log;
    } cases[] = {
        {right, "5 (file): ", gives + "15 dispatch settings"},
        {most, "128 (file): ", gives + "16 dispatch settings"},
        {least, "1 (file): ", gives + "16 dispatch settings"},
        {right + "avx2.nonsense 1\n", "NYBL_TUNING is ignored: line 18: unknown",
         ignored + "line 18: unknown key \"avx2.nonsense\""},
        {"nybl-tuning 1\ncpu Another\n", "NYBL_TUNING is ignored: line 2: made for",
         ignored + "line 2: made for"},
    };
    for (const auto &[text, reason, log] : cases) {
        INFO(text);
        std::ofstream(name) << text;
        CHECK(run_case({std::string("NYBL_TUNING=") + name, std::string(kReasonVariable) + "=" + reason,
                        std::string(kLogVariable) + "=" + log}) == 0);
    }
    std::filesystem::remove(name);
    CHECK(run_case({std::string("NYBL_TUNING=") + name,
                    std::string(kReasonVariable) + "=NYBL_TUNING is ignored: it cannot be read",
                    std::string(kLogVariable) + "=" + ignored + "it cannot be read"}) == 0);
    CHECK(run_case({"NYBL_TUNING="}) == 0); // empty: none
    // That a wrong expectation fails, so that the zeros above mean something.
    CHECK(run_case({"NYBL_TUNING=", std::string(kLogVariable) + "=" + gives}, "--out=/dev/null") != 0);
}
