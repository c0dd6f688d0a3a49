// Checks the kernels of every instruction set that this CPU has; runs natively and, linked the same, on an
// emulated CPU (run_emulated.py).
//
//   nybl_test_emulated [--prefix WORDS] [--require ISA]... [--brief]
//
// --prefix goes before the name of each test case; an instruction set that --require names and the CPU lacks
// is a failure.
#include <cstdio>
#include <cstring>
#include <vector>

#include "cpu/isa.h"
#include "report.h"

namespace nybl::emulated {

void Report::ok(const std::string &name) {
    std::printf("ok %s%s\n", prefix_.c_str(), name.c_str());
    std::fflush(stdout);
}

void Report::fail(const std::string &name, const std::string &why) {
    std::printf("not ok %s%s: %s\n", prefix_.c_str(), name.c_str(), why.c_str());
    std::fflush(stdout);
    ++failures_;
}

void Report::skip(const std::string &name, const std::string &why) {
    std::printf("skip %s%s: %s\n", prefix_.c_str(), name.c_str(), why.c_str());
    std::fflush(stdout);
}

namespace {

constexpr nybl_isa kIsas[] = {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX};

void check_isas(Report &report, const std::vector<nybl_isa> &required) {
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    for (nybl_isa isa : kIsas)
        std::printf("%s: %s\n", cpu::isa_name(isa),
                    cpu::isa_available(registers, isa) ? "available" : "not on this CPU");
    for (nybl_isa isa : required)
        report.check(std::string("detects ") + cpu::isa_name(isa), cpu::isa_available(registers, isa),
                     "the library does not see the instruction set that this CPU has");
}

} // namespace
} // namespace nybl::emulated

int main(int argc, char **argv) {
    using namespace nybl;
    std::string prefix;
    std::vector<nybl_isa> required;
    bool brief = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--brief") == 0) {
            brief = true;
        } else if (std::strcmp(argv[i], "--prefix") == 0 && i + 1 < argc) {
            prefix = std::string(argv[++i]) + " ";
        } else if (std::strcmp(argv[i], "--require") == 0 && i + 1 < argc &&
                   cpu::isa_from_name(argv[i + 1]) != NYBL_ISA_BEST) {
            required.push_back(cpu::isa_from_name(argv[++i]));
        } else {
            std::fprintf(stderr, "%s: cannot use the argument %s\n", argv[0], argv[i]);
            return 2;
        }
    }
    emulated::Report report(prefix);
    emulated::check_isas(report, required);
    emulated::check_instructions(report);
    emulated::check_vec_dots(report);
    emulated::check_kernels(report, brief);
    return report.failures() > 0;
}
