// Generated activation quantizers against the plain one, byte for byte.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "cpu/isa.h"
#include "cpu/jit/generator.h"
#include "cpu/jit/quantize_kernel.h"
#include "cpu/jit/weight_generator.h"
#include "fenced.h"
#include "kernels/canary.h"
#include "kernels/product.h"

using namespace nybl;
using namespace nybl::cpu;

namespace {

constexpr nybl_format kTypes[] = {NYBL_F32, NYBL_F16, NYBL_BF16};
constexpr uint8_t kUntouched = 0xA5;

size_t element_bytes(nybl_format type) {
    return type == NYBL_F32 ? 4 : 2;
}

void put(nybl_format type, std::vector<uint8_t> &row, size_t i, float value) {
    const uint16_t half = type == NYBL_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (type == NYBL_F32)
        std::memcpy(row.data() + 4 * i, &value, 4);
    else
        std::memcpy(row.data() + 2 * i, &half, 2);
}

std::vector<uint8_t> row_of(nybl_format type, size_t k, const std::function<float(size_t)> &value) {
    std::vector<uint8_t> row(k * element_bytes(type));
    for (size_t i = 0; i < k; ++i)
        put(type, row, i, value(i));
    return row;
}

// The bytes of a tile with NaNs made alike: any NaN equals any NaN.
std::vector<uint8_t> comparable(std::vector<uint8_t> tile, size_t groups, size_t tile_rows) {
    for (size_t g = 0; g < groups; ++g)
        for (size_t i = 0; i < 2 * tile_rows; ++i) { // d and ds
            uint8_t *at = tile.data() + kActivationBytes * tile_rows * g + 32 * tile_rows + 4 * i;
            float value;
            std::memcpy(&value, at, 4);
            if (std::isnan(value))
                std::memset(at, 0xFF, 4);
        }
    return tile;
}

// Quantises the row both ways as row t of a tile; bytes that neither may touch are compared too.
void check_row(nybl_format type, nybl_isa isa, const std::vector<uint8_t> &row, size_t tile_rows, size_t t,
               uint8_t fields = kAllActivationFields) {
    using test::Fenced;
    const size_t groups = row.size() / element_bytes(type) / 32;
    std::vector<ActivationGroup> plain(groups);
    quantize_row(dot_family(isa), type, row.data(), 32 * groups, plain.data());
    std::vector<uint8_t> expected(activation_bytes(tile_rows, 32 * groups), kUntouched);
    // The fences of the two change sides from row to row of a tile.
    const Fenced x(row.size(), t % 2 ? Fenced::Fence::Before : Fenced::Fence::Behind),
        tile(expected.size(), t % 2 ? Fenced::Fence::Behind : Fenced::Fence::Before);
    std::copy(row.begin(), row.end(), x.data());
    std::fill_n(tile.data(), tile.size(), kUntouched);
    scatter_row(plain.data(), groups, t, tile_rows, expected.data());
    for (size_t g = 0; g < groups; ++g)
        for (size_t i = 0; i < kActivationFields; ++i)
            if ((fields >> i & 1) == 0)
                std::memset(expected.data() + kActivationBytes * tile_rows * g + 32 * tile_rows +
                                4 * (i * tile_rows + t),
                            kUntouched, 4);
    const jit::QuantizeFn kernel = jit::quantize_kernel(type, isa, fields);
    REQUIRE(kernel != nullptr);
    const jit::QuantizeArgs args{.x = x.data(),
                                 .q = tile.data() + 32 * t,
                                 .fields = tile.data() + 32 * tile_rows + 4 * t,
                                 .tile_rows = tile_rows,
                                 .groups = groups};
    kernel(&args);
    const std::vector<uint8_t> got(tile.data(), tile.data() + tile.size());
    CAPTURE(type, isa_name(isa), tile_rows, t);
    REQUIRE(tile.intact());
    REQUIRE(comparable(expected, groups, tile_rows) == comparable(got, groups, tile_rows));
}

// Whatever is asked of a quantizer: everything, or what the kernels of some format read.
std::vector<uint8_t> field_sets() {
    std::vector<uint8_t> sets{kAllActivationFields};
    for (const nybl_format format : test::kPanelFormats) {
        const uint8_t fields = jit::activation_fields(*find_panel_layout(format));
        if (std::find(sets.begin(), sets.end(), fields) == sets.end())
            sets.push_back(fields);
    }
    return sets;
}

// Each call asks for the next set of fields.
void check_everywhere(size_t k, const std::function<float(size_t)> &value) {
    static size_t calls = 0;
    const std::vector<uint8_t> sets = field_sets();
    const uint8_t fields = sets[calls++ % sets.size()];
    for (const nybl_format type : kTypes)
        for (const nybl_isa isa : test::runnable_isas())
            check_row(type, isa, row_of(type, k, value), 1, 0, fields);
}

} // namespace

TEST_CASE("quantizers equal the plain one on ordinary data, in every place of a tile", "[quantize]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const nybl_format type : kTypes)
        for (const nybl_isa isa : test::runnable_isas())
            for (const size_t groups : {1, 2, 3, 17})
                for (const size_t tile_rows : {1, 2, 4, 6, 24})
                    for (size_t t = 0; t < tile_rows; ++t)
                        check_row(type, isa,
                                  row_of(type, 32 * groups, [&](size_t) { return normal(random); }),
                                  tile_rows, t);
}

TEST_CASE("quantizers write the fields that a format's kernels read", "[quantize]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const uint8_t fields : field_sets())
        for (const nybl_format type : kTypes)
            for (const nybl_isa isa : test::runnable_isas())
                for (const size_t groups : {5, 8, 19})
                    check_row(type, isa, row_of(type, 32 * groups, [&](size_t) { return normal(random); }), 3,
                              1, fields);
}

TEST_CASE("quantizers equal the plain one on every pattern of bits", "[quantize]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    std::mt19937 random(2);
    constexpr size_t kElements = 32 * 4096;
    for (const nybl_format type : kTypes) {
        std::vector<uint8_t> row(kElements * element_bytes(type));
        for (size_t i = 0; i < row.size(); ++i)
            row[i] = uint8_t(random());
        // Random bits are huge or tiny: also groups of one magnitude each, subnormal ones among them.
        std::vector<uint8_t> even = row_of(type, kElements, [&](size_t i) {
            return std::ldexp(float(int(random() % 2001) - 1000) / 1000, int(i / 32 % 280) - 150);
        });
        for (const nybl_isa isa : test::runnable_isas())
            for (const uint8_t fields : field_sets()) {
                check_row(type, isa, row, 1, 0, fields);
                check_row(type, isa, even, 1, 0, fields);
            }
    }
}

TEST_CASE("quantizers round ties to even and reach 127 exactly", "[quantize]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    // Maximum 127, so r = 1: x.5 is a tie in every type.
    check_everywhere(256, [](size_t i) { return i % 32 == 5 ? 127.0f : float(int(i) - 128) / 2; });
    check_everywhere(256, [](size_t i) { return i % 32 == 31 ? -127.0f : float(int(i) - 128) / 2; });
    // Every maximum of one binade: x*r of the maximum itself may round to either side of 127.
    check_everywhere(32 * 2048, [](size_t i) {
        const float maximum = 1 + float(i / 32) / 2048;
        return i % 2 ? maximum : -maximum;
    });
}

TEST_CASE("C2: groups that cannot be quantised: zeros, tiny values, Inf, NaN", "[quantize]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float max = std::numeric_limits<float>::max(), min = std::numeric_limits<float>::denorm_min();
    const float specials[] = {0.0f, -0.0f, min, -min, 3.7e-37f, 3.8e-37f, 4e-37f,   -4e-37f,
                              inf,  -inf,  nan, -nan, max,      -max,     65504.0f, 5.9e-8f};
    for (const float special : specials)
        for (size_t position = 0; position < 32; ++position)
            for (const float rest : {0.0f, -0.0f, 1e-38f, 0.75f}) {
                CAPTURE(special, position, rest);
                // The special group between two ordinary ones, which it must not touch.
                check_everywhere(96, [&](size_t i) {
                    return i / 32 != 1 ? float(i) : i % 32 == position ? special : rest;
                });
            }
    // r is finite from some subnormal d on: every maximum around that edge.
    const uint32_t edge = std::bit_cast<uint32_t>(127.0f / max);
    std::vector<float> maxima;
    for (uint32_t bits = edge - 3000; bits < edge + 3000; ++bits)
        maxima.push_back(std::bit_cast<float>(bits));
    check_everywhere(32 * maxima.size(),
                     [&](size_t i) { return maxima[i / 32] * (i % 32 == 7 ? 1.0f : float(i % 32) / 32); });
    // What the field says of a group with an Inf: no quants, NaN scales.
    for (const nybl_isa isa : test::runnable_isas()) {
        ActivationGroup group;
        const std::vector<uint8_t> row = row_of(NYBL_F32, 32, [&](size_t i) { return i == 3 ? inf : 1.0f; });
        const jit::QuantizeArgs args{row.data(), reinterpret_cast<uint8_t *>(group.q),
                                     reinterpret_cast<uint8_t *>(&group.d), 1, 1};
        jit::quantize_kernel(NYBL_F32, isa)(&args);
        CHECK(std::all_of(group.q, group.q + 32, [](int8_t q) { return q == 0; }));
        CHECK((std::isnan(group.d) && std::isnan(group.ds)));
        CHECK((group.init0 == 0 && group.init1 == 0));
    }
}

TEST_CASE("quantizers keep the promises of the calling convention", "[quantize][jit]") {
    if (test::runnable_isas().empty())
        SKIP("this machine has no AVX2");
    const std::vector<uint8_t> row = row_of(NYBL_F32, 64, [](size_t i) { return float(i); });
    ActivationGroup groups[2];
    const jit::QuantizeArgs args{row.data(), reinterpret_cast<uint8_t *>(groups[0].q),
                                 reinterpret_cast<uint8_t *>(&groups[0].d), 1, 2};
    for (const nybl_isa isa : test::runnable_isas())
        CHECK(test::broken_by_call(reinterpret_cast<const void *>(jit::quantize_kernel(NYBL_F32, isa)), &args,
                                   jit::kHostAbi) == "");
}
