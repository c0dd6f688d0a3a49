// Block-level dot products of every instruction set against the scalar contract.
#include <cstring>
#include <random>

#include "cpu/isa.h"
#include "cpu/vec_dot.h"
#include "kernels/vec_dot_rows.h"
#include "report.h"

namespace nybl::emulated {
namespace {

// Block counts around every unrolling, and one that goes round the loop a few times.
constexpr size_t kBlocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31};

std::string difference(nybl_vec_dot_fn got, nybl_vec_dot_fn want, const test::VecDotFormat &format) {
    std::mt19937 random(static_cast<unsigned>(format.id));
    for (size_t blocks : kBlocks)
        for (auto fence : {test::Fenced::Fence::Behind, test::Fenced::Fence::Before}) {
            test::VecDotRows rows(format, blocks, fence);
            rows.fill(random);
            float results[2] = {};
            want(rows.k(), rows.w.data(), rows.a.data(), &results[0]);
            got(rows.k(), rows.w.data(), rows.a.data(), &results[1]);
            if (std::memcmp(&results[0], &results[1], sizeof(float)) != 0)
                return "differs from the scalar contract over " + std::to_string(blocks) + " blocks";
        }
    return "";
}

} // namespace

void check_vec_dots(Report &report) {
    const cpu::CpuRegisters registers = cpu::read_cpu_registers();
    for (nybl_isa isa : {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI}) {
        if (!cpu::isa_available(registers, isa))
            continue;
        for (const test::VecDotFormat &format : test::vec_dot_formats()) {
            const std::string name = std::string(format.name) + " " + cpu::isa_name(isa) + " vec_dot";
            const nybl_vec_dot_fn reference = cpu::find_vec_dot(format.id, NYBL_ISA_SCALAR);
            const nybl_vec_dot_fn generated = cpu::find_vec_dot(format.id, isa);
            if (generated == reference) {
                report.fail(name, "no kernel was generated");
                continue;
            }
            const std::string why = difference(generated, reference, format);
            report.check(name, why.empty(), why);
        }
    }
}

} // namespace nybl::emulated
