// The affine export in every format, layout and parameter type, against the formulas of the format
// description.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <nybl/nybl.h>
#include <random>
#include <string>

#include "gpu/affine.h"
#include "gpu/formula.h"

namespace nybl::test {
namespace {

struct Export {
    nybl_affine_desc desc;
    std::vector<uint8_t> codes, scales, zeros;
    nybl_status status;
};

Export run_export(const AffineBlockFormat &format, size_t n, size_t k, const std::vector<uint8_t> &blocks,
                  nybl_format param, nybl_param_layout layout, bool k_major) {
    Export e{};
    e.desc.struct_size = sizeof e.desc;
    e.desc.param_type = param;
    e.desc.layout = layout;
    e.desc.codes_k_major = k_major;
    REQUIRE(nybl_affine_sizes(format.id, n, k, &e.desc) == NYBL_OK);
    e.codes.assign(e.desc.codes_size, 0xa5);
    e.scales.assign(e.desc.scales_size, 0xa5);
    e.zeros.assign(e.desc.zeros_size, 0xa5);
    e.desc.codes = e.codes.data();
    e.desc.scales = e.scales.data();
    e.desc.zeros = format.has_zero ? e.zeros.data() : nullptr;
    e.desc.max_rounding_error = -1;
    e.status = nybl_affine_export(format.id, n, k, blocks.data(), 0, &e.desc);
    return e;
}

int code_at(const AffineBlockFormat &format, const std::vector<uint8_t> &codes, size_t e) {
    const int raw = format.code_bits == 4 ? codes[e / 2] >> (e % 2 ? 4 : 0) & 15 : codes[e];
    const int half = 1 << (format.code_bits - 1);
    return format.is_signed && raw >= half ? raw - 2 * half : raw;
}

double param_at(nybl_format type, const std::vector<uint8_t> &params, size_t e) {
    if (type == NYBL_F32) {
        float value;
        std::memcpy(&value, &params[4 * e], 4);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, &params[2 * e], 2);
    if (type == NYBL_F16)
        return f16_value(bits);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

// Half a unit in the last place, relative: what one rounding to nearest may cost.
double unit_roundoff(nybl_format type) {
    return type == NYBL_F32 ? 0x1p-24 : type == NYBL_F16 ? 0x1p-11 : 0x1p-8;
}

double rounding_error(double stored, double exact) {
    return stored == exact ? 0 : std::fabs((stored - exact) / exact);
}

// Looks at every element and parameter of an export; returns the largest relative error of a parameter
// against f32.
double check_export(const AffineBlockFormat &format, size_t n, size_t k, const std::vector<uint8_t> &blocks,
                    const Export &e) {
    const size_t groups = k / format.group, row_bytes = k / format.block * format.bytes;
    size_t wrong_codes = 0;
    double worst = 0;
    for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < k; ++j) {
            const AffineElement want = affine_element(format, &blocks[i * row_bytes], j);
            wrong_codes +=
                code_at(format, e.codes, e.desc.codes_k_major ? j * n + i : i * k + j) != want.code;
            const size_t at =
                e.desc.layout == NYBL_N_MAJOR ? i * groups + j / format.group : j / format.group * n + i;
            // The format defines d*sc and dmin*mn as f32 values; both products are exact in f32.
            REQUIRE(static_cast<double>(static_cast<float>(want.scale)) == want.scale);
            worst = std::max(worst, rounding_error(param_at(e.desc.param_type, e.scales, at), want.scale));
            if (format.has_zero)
                worst = std::max(worst, rounding_error(param_at(e.desc.param_type, e.zeros, at), want.zero));
        }
    CHECK(wrong_codes == 0);
    return worst;
}

} // namespace

TEST_CASE("affine export: every format, layout and parameter type equals the format's formula",
          "[gpu][affine]") {
    for (const auto &format : affine_formats())
        for (const size_t n : {size_t(1), size_t(2), size_t(7), size_t(64), size_t(67), size_t(130)})
            for (const size_t k : {format.block, 3 * format.block}) {
                const auto blocks = random_blocks(format, n, k, static_cast<uint32_t>(n * 31 + k));
                for (const auto param : {NYBL_F16, NYBL_BF16, NYBL_F32})
                    for (const auto layout : {NYBL_N_MAJOR, NYBL_GROUP_MAJOR})
                        for (const bool k_major : {false, true}) {
                            INFO(format.name << " n " << n << " k " << k << " param " << param << " layout "
                                             << layout << " k_major " << k_major);
                            const Export e = run_export(format, n, k, blocks, param, layout, k_major);
                            REQUIRE(e.status == NYBL_OK);
                            const double worst = check_export(format, n, k, blocks, e);
                            CHECK(worst <= unit_roundoff(param));
                            CHECK(static_cast<float>(worst) == e.desc.max_rounding_error);
                            if (param == NYBL_F32 || (param == NYBL_F16 && format.block == 32))
                                CHECK(e.desc.max_rounding_error == 0.0f);
                        }
            }
}

namespace {

// Weights by the export's parameters, and by the same scales with zero points rounded to integers.
struct BothWeights {
    std::vector<double> exact, scaled, rounded; // [n, k]
};

BothWeights weights_of(const AffineBlockFormat &format, size_t n, size_t k, nybl_param_layout layout) {
    const auto blocks = random_blocks(format, n, k, 5);
    const Export e = run_export(format, n, k, blocks, NYBL_F16, layout, layout == NYBL_GROUP_MAJOR);
    REQUIRE(e.status == NYBL_OK);
    BothWeights w;
    for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < k; ++j) {
            const auto exact = affine_element(format, &blocks[i * (k / format.block) * format.bytes], j);
            const size_t at = layout == NYBL_N_MAJOR ? i * (k / 32) + j / 32 : j / 32 * n + i;
            const int code = code_at(format, e.codes, e.desc.codes_k_major ? j * n + i : i * k + j);
            w.exact.push_back(exact.scale * exact.code - exact.zero);
            w.scaled.push_back(param_at(NYBL_F16, e.scales, at) * code - param_at(NYBL_F16, e.zeros, at));
            // Where the scale is 0 no zero point exists: that costs the other side nothing here.
            w.rounded.push_back(exact.scale == 0
                                    ? -exact.zero
                                    : exact.scale * (code - std::nearbyint(exact.zero / exact.scale)));
        }
    return w;
}

// Root of the sum of squares of X * (W - exact)^T, [batch, m] rows of X.
double product_error(const std::vector<double> &w, const std::vector<double> &exact, size_t n, size_t k,
                     size_t batch, size_t m) {
    std::mt19937 random(static_cast<uint32_t>(batch * 100 + m));
    std::normal_distribution<double> normal;
    double squares = 0;
    std::vector<double> x(k);
    for (size_t row = 0; row < batch * m; ++row) {
        for (auto &value : x)
            value = normal(random);
        for (size_t i = 0; i < n; ++i) {
            double y = 0;
            for (size_t j = 0; j < k; ++j)
                y += x[j] * (w[i * k + j] - exact[i * k + j]);
            squares += y * y;
        }
    }
    return std::sqrt(squares);
}

} // namespace

TEST_CASE("affine export: products are at least four times closer than with rounded zero points",
          "[gpu][affine]") {
    constexpr size_t n = 48, k = 512;
    struct Shape {
        size_t batch, m;
    };
    for (const auto &format : affine_formats()) {
        if (!format.has_zero)
            continue;
        for (const auto layout : {NYBL_N_MAJOR, NYBL_GROUP_MAJOR}) {
            const BothWeights w = weights_of(format, n, k, layout);
            for (const Shape shape : {Shape{1, 1}, Shape{1, 7}, Shape{3, 1}, Shape{3, 5}}) { // 2D and 3D
                const double ours = product_error(w.scaled, w.exact, n, k, shape.batch, shape.m);
                const double theirs = product_error(w.rounded, w.exact, n, k, shape.batch, shape.m);
                INFO(format.name << " layout " << layout << " batch " << shape.batch << " m " << shape.m
                                 << ": error " << ours << ", with rounded zero points " << theirs);
                CHECK(4 * ours <= theirs);
            }
        }
    }
}

TEST_CASE("affine export: items of a threaded export give the bytes of a serial one, in any order",
          "[gpu][affine]") {
    for (const auto &format : affine_formats())
        for (const size_t n : {size_t(129), size_t(200)})
            for (const bool k_major : {false, true}) {
                const size_t k = 3 * format.block;
                const auto blocks = random_blocks(format, n, k, 77);
                const Export serial = run_export(format, n, k, blocks, NYBL_F16, NYBL_N_MAJOR, k_major);
                gpu::AffinePlan plan;
                REQUIRE(gpu::plan_affine(format.id, n, k, NYBL_F16, NYBL_N_MAJOR, k_major, &plan) == NYBL_OK);
                std::vector<uint8_t> codes(plan.codes_size, 0x5a), scales(plan.scales_size),
                    zeros(plan.zeros_size);
                const size_t items = gpu::affine_items(plan);
                REQUIRE(items >= 3);
                float worst = 0;
                for (size_t i = items; i-- > 0;)
                    worst = std::max(worst, gpu::export_affine(plan, {blocks.data(), blocks.size() / n},
                                                               {codes.data(), scales.data(), zeros.data()}, i,
                                                               i + 1));
                INFO(format.name << " n " << n << " k_major " << k_major);
                CHECK(codes == serial.codes);
                CHECK(scales == serial.scales);
                CHECK(zeros == serial.zeros);
                CHECK(worst == serial.desc.max_rounding_error);
            }
}

TEST_CASE("affine export: a parameter that overflows its type is refused, with row and block, and nothing is "
          "written",
          "[gpu][affine]") {
    const auto &format = affine_formats()[3]; // Q4_K
    constexpr size_t n = 5, k = 768;
    auto blocks = random_blocks(format, n, k, 3);
    uint8_t *block = &blocks[(3 * 3 + 1) * format.bytes]; // row 3, block 1
    block[0] = 0xff, block[1] = 0x7b;                     // d = 65504
    block[4] = 2;                                         // sc of group 0
    Export e = run_export(format, n, k, blocks, NYBL_F16, NYBL_N_MAJOR, false);
    CHECK(e.status == NYBL_INVALID_DATA);
    CHECK(std::string(nybl_last_error()).find("row 3, block 1") != std::string::npos);
    CHECK(e.desc.max_rounding_error == -1.0f);
    for (const auto *bytes : {&e.codes, &e.scales, &e.zeros})
        CHECK(std::count(bytes->begin(), bytes->end(), 0xa5) == static_cast<std::ptrdiff_t>(bytes->size()));
    e = run_export(format, n, k, blocks, NYBL_F32, NYBL_N_MAJOR, false);
    CHECK(e.status == NYBL_OK);
    CHECK(check_export(format, n, k, blocks, e) == 0);
    CHECK(run_export(format, n, k, blocks, NYBL_BF16, NYBL_GROUP_MAJOR, true).status == NYBL_OK);

    block[2] = 0x00, block[3] = 0x7c; // dmin = Inf
    CHECK(run_export(format, n, k, blocks, NYBL_F32, NYBL_N_MAJOR, false).status == NYBL_INVALID_DATA);
    CHECK(std::string(nybl_last_error()).find("row 3, block 1") != std::string::npos);
}

TEST_CASE("affine export: wrong arguments are refused in words", "[gpu][affine]") {
    nybl_affine_desc desc{};
    desc.struct_size = sizeof desc;
    desc.param_type = NYBL_F16;
    CHECK(nybl_affine_sizes(NYBL_Q4_K, 4, 256, nullptr) == NYBL_INVALID_ARGUMENT);
    CHECK(nybl_affine_sizes(NYBL_Q8_K, 4, 256, &desc) == NYBL_INVALID_ARGUMENT); // activations
    CHECK(nybl_affine_sizes(NYBL_Q4_K, 4, 128, &desc) == NYBL_INVALID_ARGUMENT);
    CHECK(std::string(nybl_last_error()).find("multiple of 256") != std::string::npos);
    CHECK(nybl_affine_sizes(NYBL_Q4_0, UINT64_MAX / 2, 256, &desc) == NYBL_INVALID_ARGUMENT);
    CHECK(desc.codes_size == 0);
    desc.param_type = NYBL_Q4_0;
    CHECK(nybl_affine_sizes(NYBL_Q4_0, 4, 256, &desc) == NYBL_INVALID_ARGUMENT);
    desc.param_type = NYBL_F16;
    desc.layout = static_cast<nybl_param_layout>(2);
    CHECK(nybl_affine_sizes(NYBL_Q4_0, 4, 256, &desc) == NYBL_INVALID_ARGUMENT);
    desc.layout = NYBL_N_MAJOR;

    const auto &format = affine_formats()[1]; // Q4_1
    const auto blocks = random_blocks(format, 2, 32, 1);
    std::array<uint8_t, 64> codes{}, scales{}, zeros{};
    REQUIRE(nybl_affine_sizes(NYBL_Q4_1, 2, 32, &desc) == NYBL_OK);
    CHECK(desc.codes_size == 32);
    CHECK(desc.scales_size == 4);
    CHECK(desc.zeros_size == 4);
    desc.codes = codes.data(), desc.scales = scales.data();
    CHECK(nybl_affine_export(NYBL_Q4_1, 2, 32, blocks.data(), 0, &desc) ==
          NYBL_INVALID_ARGUMENT); // zeros NULL
    desc.zeros = zeros.data();
    CHECK(nybl_affine_export(NYBL_Q4_1, 2, 32, nullptr, 0, &desc) == NYBL_INVALID_ARGUMENT);
    CHECK(nybl_affine_export(NYBL_Q4_1, 2, 32, blocks.data(), 19, &desc) == NYBL_INVALID_ARGUMENT);
    desc.codes_size = 31;
    CHECK(nybl_affine_export(NYBL_Q4_1, 2, 32, blocks.data(), 0, &desc) == NYBL_BUFFER_TOO_SMALL);
    desc.codes_size = 32;
    CHECK(nybl_affine_export(NYBL_Q4_1, 2, 32, blocks.data(), 0, &desc) == NYBL_OK);
    CHECK(nybl_affine_export(NYBL_Q4_1, 0, 32, nullptr, 0, &desc) == NYBL_OK);
}

} // namespace nybl::test
