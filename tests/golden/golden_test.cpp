// The codecs against golden bytes and values: bit for bit where the format defines them, by error where it
// leaves a choice.
#include "golden/golden.h"

#include "cpu/isa.h"
#include "quant/codec.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace nybl::quant;

namespace {

struct NamedFormat {
    const char *name; // in golden.bin
    nybl_format id;
    bool plain_bytes; // without importance the bytes are defined
};
constexpr NamedFormat kWeightFormats[] = {
    {"q4_0", NYBL_Q4_0, true},  {"q4_1", NYBL_Q4_1, true},  {"q5_0", NYBL_Q5_0, true},
    {"q5_1", NYBL_Q5_1, true},  {"q8_0", NYBL_Q8_0, true},  {"iq4_nl", NYBL_IQ4_NL, false},
    {"q4_k", NYBL_Q4_K, false}, {"q5_k", NYBL_Q5_K, false}, {"q6_k", NYBL_Q6_K, false},
};

std::vector<float> dequantize(const Format &format, const uint8_t *bytes, size_t rows, size_t k) {
    std::vector<float> values(rows * k);
    dequantize_rows(format, nybl::cpu::effective_isa(NYBL_ISA_BEST), {0, rows}, k, {bytes, 0}, values.data(),
                    0);
    return values;
}

std::vector<uint8_t> quantize(const Format &format, nybl_level level, const golden::Tensor &source,
                              const float *importance) {
    const std::vector<float> x = source.floats();
    size_t row = 0;
    REQUIRE(row_bytes(format, source.k, &row) == NYBL_OK);
    REQUIRE(check_source(format, {0, source.rows}, source.k, {x.data(), 0}) == NYBL_OK);
    std::vector<uint8_t> bytes(source.rows * row);
    quantize_rows(format, nybl::cpu::effective_isa(NYBL_ISA_BEST), level, {0, source.rows}, source.k,
                  {x.data(), 0}, importance, {bytes.data(), 0});
    return bytes;
}

// Root of the weighted mean of squared errors.
double rmse(const std::vector<float> &values, const std::vector<float> &x, const float *importance,
            size_t k) {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double w = importance ? importance[i % k] : 1.0, e = double(values[i]) - double(x[i]);
        sum += w * e * e;
        weights += w;
    }
    return std::sqrt(sum / weights);
}

} // namespace

TEST_CASE("dequantised golden blocks equal the golden values bit for bit", "[golden]") {
    for (const NamedFormat &named : kWeightFormats)
        for (const std::string &distribution : golden::distributions())
            for (const char *variant : {"", ".im"}) {
                const std::string name = distribution + "." + named.name + variant;
                INFO(name);
                const golden::Tensor &blocks = golden::tensor(name);
                REQUIRE(static_cast<int>(blocks.format) == named.id);
                const std::vector<float> values =
                    dequantize(*find_format(named.id), blocks.data, blocks.rows, blocks.k);
                const std::vector<uint64_t> hashes = golden::tensor(name + ".deq").hashes();
                for (size_t r = 0; r < blocks.rows; ++r) {
                    INFO("row " << r);
                    CHECK(golden::hash(&values[r * blocks.k], blocks.k) == hashes[r]);
                }
            }
}

TEST_CASE("activation blocks equal the golden bytes", "[golden]") {
    const std::pair<const char *, nybl_format> formats[] = {
        {"act_q8_0", NYBL_Q8_0}, {"act_q8_1", NYBL_Q8_1}, {"act_q8_k", NYBL_Q8_K}};
    for (const auto &[name, id] : formats)
        for (const std::string &distribution : golden::distributions()) {
            INFO(distribution << "." << name);
            const golden::Tensor &expected = golden::tensor(distribution + "." + name);
            const golden::Tensor &source = golden::tensor(distribution + ".f32");
            const std::vector<uint8_t> bytes = quantize(*find_format(id), NYBL_LEVEL_PLAIN, source, nullptr);
            REQUIRE(bytes.size() == expected.bytes);
            for (size_t r = 0; r < source.rows; ++r) {
                INFO("row " << r);
                CHECK(std::memcmp(&bytes[r * expected.row_bytes()], expected.row(r), expected.row_bytes()) ==
                      0);
            }
        }
}

TEST_CASE("plain encoders give the golden bytes", "[golden]") {
    for (const NamedFormat &named : kWeightFormats)
        for (const std::string &distribution : golden::distributions())
            for (const nybl_level level : {NYBL_LEVEL_PLAIN, NYBL_LEVEL_FAST}) {
                if (!named.plain_bytes)
                    continue;
                INFO(distribution << "." << named.name << " level " << level);
                const golden::Tensor &expected = golden::tensor(distribution + "." + named.name);
                const std::vector<uint8_t> bytes =
                    quantize(*find_format(named.id), level, golden::tensor(distribution + ".f32"), nullptr);
                REQUIRE(bytes.size() == expected.bytes);
                CHECK(std::memcmp(bytes.data(), expected.data, expected.bytes) == 0);
            }
}

namespace {

// Error of the level's bytes as a share of that of the golden bytes.
double error_ratio(const NamedFormat &named, const std::string &distribution, bool with_importance,
                   nybl_level level) {
    const Format &format = *find_format(named.id);
    const golden::Tensor &source = golden::tensor(distribution + ".f32");
    const golden::Tensor &other =
        golden::tensor(distribution + "." + named.name + (with_importance ? ".im" : ""));
    const std::vector<float> x = source.floats(),
                             weights = golden::tensor(distribution + ".imatrix").floats();
    const float *importance = with_importance ? weights.data() : nullptr;
    const auto error = [&](const uint8_t *bytes) {
        return rmse(dequantize(format, bytes, source.rows, source.k), x, importance, source.k);
    };
    const std::vector<uint8_t> bytes = quantize(format, level, source, importance);
    const double ours = error(bytes.data()), theirs = error(other.data);
    return ours == theirs ? 1.0 : ours / theirs; // both may be exact
}

} // namespace

TEST_CASE("the default encoders beat the golden bytes' error everywhere, and by 2 or 3 % on average",
          "[golden]") {
    for (const NamedFormat &named : kWeightFormats) {
        double sum = 0;
        int count = 0;
        for (const std::string &distribution : golden::distributions())
            for (const bool with_importance : {false, true}) {
                const double ratio = error_ratio(named, distribution, with_importance, NYBL_LEVEL_DEFAULT);
                INFO(distribution << "." << named.name << (with_importance ? " with importance" : ""));
                CHECK(ratio <= 1.0); // false for a NaN, too
                if (std::getenv("NYBL_PRINT_RMSE"))
                    std::printf("%-16s %-7s im=%d ratio %.4f\n", distribution.c_str(), named.name,
                                with_importance, ratio);
                sum += ratio;
                ++count;
            }
        const bool one_scale = !find_format(named.id)->has_min && find_format(named.id)->block_size == 32;
        INFO(named.name);
        if (std::getenv("NYBL_PRINT_RMSE"))
            std::printf("%-7s mean %.4f\n", named.name, sum / count);
        CHECK(sum / count <= (one_scale ? 0.97 : 0.98));
    }
}

TEST_CASE("the other levels' errors: BEST is no worse than DEFAULT, the quick ones stay near golden bytes",
          "[golden]") {
    for (const NamedFormat &named : kWeightFormats)
        for (const std::string &distribution : golden::distributions())
            for (const bool with_importance : {false, true}) {
                INFO(distribution << "." << named.name << (with_importance ? " with importance" : ""));
                const auto ratio = [&](nybl_level level) {
                    return error_ratio(named, distribution, with_importance, level);
                };
                CHECK(ratio(NYBL_LEVEL_BEST) <= ratio(NYBL_LEVEL_DEFAULT));
                CHECK(ratio(NYBL_LEVEL_FAST) <= 1.02);
                CHECK(ratio(NYBL_LEVEL_PLAIN) <= 1.02);
            }
}
