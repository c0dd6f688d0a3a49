// Dispatch is a pure function: kernels by name, also for instruction sets that this machine lacks.
#include "dispatch/choose.h"

#include <catch2/catch_test_macros.hpp>

#include <set>
#include <string>

#include "cpu/isa.h"

using namespace nybl;

namespace {

constexpr nybl_format kPacked[] = {NYBL_Q4_0,   NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1, NYBL_Q8_0,
                                   NYBL_IQ4_NL, NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL_ROW};
constexpr nybl_isa kGenerated[] = {NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI, NYBL_ISA_AMX};

dispatch::Shape shape(nybl_format format, size_t m, nybl_isa isa) {
    dispatch::Shape out{};
    out.format = format;
    out.m = m;
    out.n = out.k = 4096;
    out.n_experts = 1;
    out.isa = isa;
    out.threads = 1;
    return out;
}

bool starts_with(const std::string &text, const std::string &start) {
    return text.rfind(start, 0) == 0;
}

} // namespace

TEST_CASE("few tokens stream the weights, many unpack them first, and a scalar machine runs the reference") {
    for (const nybl_format format : kPacked) {
        for (const nybl_isa isa : kGenerated) {
            const size_t most = dispatch::kBuiltInTuning.find(isa)->stream_max_m;
            for (const size_t m : {size_t{1}, size_t{4}, most}) {
                const auto choice = choose(shape(format, m, isa));
                CHECK(choice.kernel.strategy == cpu::Strategy::Stream);
                CHECK(starts_with(choice.name, "decode_"));
            }
            for (const size_t m : {most + 1, 2 * most, size_t{4096}}) {
                const auto choice = choose(shape(format, m, isa));
                CHECK(choice.kernel.strategy == cpu::Strategy::Tiled);
                CHECK(starts_with(choice.name, "prefill_"));
            }
        }
        const auto scalar = choose(shape(format, 1, NYBL_ISA_SCALAR));
        CHECK(scalar.kernel.strategy == cpu::Strategy::Reference);
        CHECK(scalar.kernel.mr == 1);
        CHECK(starts_with(scalar.name, "reference_"));
        CHECK(std::string(scalar.reason).find("scalar") != std::string::npos);
    }
    CHECK(std::string(choose(shape(NYBL_Q4_K, 4, NYBL_ISA_SCALAR)).name) == "reference_q4_k_16x1_scalar");
}

TEST_CASE("a kernel never needs more than the machine has, and its name says which instructions it uses") {
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_K, NYBL_Q8_0, NYBL_Q6_K})
        for (int isa = NYBL_ISA_SCALAR; isa <= NYBL_ISA_AMX; ++isa)
            for (const size_t m : {0, 1, 3, 16, 17, 33, 49, 512})
                for (const size_t experts : {1, 64})
                    for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
                        auto asked = shape(format, m, static_cast<nybl_isa>(isa));
                        asked.n_experts = experts;
                        asked.compute = compute;
                        const auto choice = choose(asked);
                        INFO(choice.name << ": " << choice.reason);
                        CHECK(choice.kernel.isa <= asked.isa);
                        // AVX-512 machines may lack AVX-VNNI.
                        if (isa > NYBL_ISA_AVX_VNNI)
                            CHECK(choice.kernel.isa != NYBL_ISA_AVX_VNNI);
                        CHECK(choice.kernel.mr >= 1);
                        CHECK(choice.kernel.nr % cpu::kPanelRows == 0);
                        const std::string end = std::string("_") + cpu::isa_name(choice.kernel.isa);
                        const std::string name = choice.name;
                        CHECK(name.substr(name.size() - end.size()) == end);
                        CHECK(choice.reason[0] != '\0');
                        CHECK((choice.kernel.strategy == cpu::Strategy::F32) ==
                              (compute == NYBL_COMPUTE_F32));
                    }
}

TEST_CASE("tiles of experts are those for the tokens that one of them meets") {
    for (const nybl_isa isa : kGenerated) {
        const dispatch::KernelSet &set = *dispatch::kBuiltInTuning.find(isa);
        auto asked = shape(NYBL_Q4_1, 64, isa);
        asked.n_experts = 64;
        for (const size_t rows : {0, 8 * 64}) { // not known, or eight slots
            asked.rows = rows;
            CHECK(choose(asked).kernel.mr == set.stream_tokens);
        }
        asked.m = 1024;
        asked.rows = 8 * asked.m;
        CHECK(choose(asked).kernel.mr == set.tiled_tokens);
    }
}

TEST_CASE("products of one call share the tiles of the activations, whatever their formats") {
    for (const nybl_isa isa : kGenerated)
        for (const size_t m : {1, 2, 5, 16, 17, 49, 100}) {
            std::set<uint32_t> tiles;
            for (const nybl_format format : kPacked)
                tiles.insert(choose(shape(format, m, isa)).kernel.mr);
            CHECK(tiles.size() == 1);
        }
}
