// Contexts whose device has oneDNN's CPU engine attached: the whole path below nybl_matmul, memory as
// nybl_context_memory counts it, and how much closer scaled zero points are than rounded ones.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nybl/nybl.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "../capi/context.h"
#include "gpu/device_case.h"
#include "gpu/onednn.h"

namespace nybl::test {
namespace {

// A context on oneDNN's CPU engine, beside whatever OpenCL device there is.
struct Engine {
    Engine() {
        nybl_context_desc desc = make<nybl_context_desc>();
        desc.device = NYBL_DEVICE_GPU;
        if (nybl_context_create(&desc, &ctx) != NYBL_OK)
            SKIP(nybl_last_error());
        REQUIRE(gpu::attach_onednn(*ctx->device, {.cpu_engine = true, .params = NYBL_F32}) == NYBL_OK);
    }
    ~Engine() { nybl_context_destroy(ctx); }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    nybl_weights *weights(const DeviceWeightsCase &w) const {
        auto desc = make<nybl_weights_desc>();
        desc.format = w.format.id, desc.n = w.n, desc.k = w.k, desc.n_experts = w.n_experts;
        desc.data = w.blocks.data();
        nybl_weights *made = nullptr;
        REQUIRE(nybl_weights_create(ctx, &desc, &made) == NYBL_OK);
        return made;
    }
    nybl_memory_stats memory() const {
        auto stats = make<nybl_memory_stats>();
        REQUIRE(nybl_context_memory(ctx, &stats) == NYBL_OK);
        return stats;
    }

    nybl_context *ctx = nullptr;
};

nybl_kernel_info explain(const nybl_weights *w, size_t m) {
    auto info = make<nybl_kernel_info>();
    REQUIRE(nybl_matmul_explain(w, m, &info) == NYBL_OK);
    return info;
}

// Rows of [batch, m, k] times the weights, by nybl_matmul.
std::vector<float> multiply(const nybl_weights *weights, const DeviceWeightsCase &w, size_t batch, size_t m,
                            const std::vector<float> &x) {
    std::vector<float> y(batch * m * w.n, NAN);
    auto args = make<nybl_matmul_args>();
    args.m = m, args.batch = batch;
    args.x = x.data(), args.y = y.data();
    REQUIRE(nybl_matmul(weights, &args) == NYBL_OK);
    return y;
}

} // namespace

TEST_CASE("onednn context: device memory is one copy of the final form, shared by equal weights",
          "[gpu][onednn]") {
    const Engine engine;
    const size_t n = 200, k = 1024, codes = n * k / 2, params = 2 * n * (k / 32) * sizeof(float);
    const DeviceWeightsCase w(affine_formats()[3], n, k, 1, 1), other(affine_formats()[3], n, k, 1, 2);
    CHECK(engine.memory().device_bytes == 0);
    nybl_weights *first = engine.weights(w);
    CHECK(engine.memory().device_bytes == codes + params);
    CHECK(engine.memory().device_peak_bytes ==
          codes + params); // no copy of the parameters besides the final one
    CHECK(engine.memory().device_param_bytes == params);
    nybl_weights *second = engine.weights(w), *third = engine.weights(other);
    CHECK(engine.memory().device_bytes == 2 * (codes + params));
    CHECK(engine.memory().device_peak_bytes == 2 * (codes + params));
    nybl_weights_destroy(first);
    CHECK(engine.memory().device_param_bytes == 2 * params);
    const auto x = random_activations(3 * k, 3);
    CHECK(nmse(multiply(second, w, 1, 3, x), multiply_exactly(w, 3, x, nullptr)) < 1e-11);
    nybl_weights_destroy(second);
    CHECK(engine.memory().device_param_bytes == params);
    CHECK(nmse(multiply(third, other, 1, 3, x), multiply_exactly(other, 3, x, nullptr)) < 1e-11);
    nybl_weights_destroy(third);
    CHECK(engine.memory().device_param_bytes == 0);
}

TEST_CASE(
    "onednn context: explain names oneDNN's implementation, its mode and its rows, and who runs the rest",
    "[gpu][onednn]") {
    const Engine engine;
    const DeviceWeightsCase w(affine_formats()[3], 40, 256, 1, 1),
        experts(affine_formats()[3], 40, 256, 3, 1);
    nybl_weights *weights = engine.weights(w), *of_experts = engine.weights(experts);
    const nybl_kernel_info info = explain(weights, 40);
    INFO(info.name << ": " << info.reason);
    CHECK(info.device == NYBL_DEVICE_GPU);
    CHECK(std::string(info.name).find("onednn:") == 0);
    CHECK(std::string(info.name).find(" two-term") != std::string::npos);
    CHECK(std::string(info.reason).find("u4/32 f32 f32 64x40x256 two-term") != std::string::npos);
    CHECK(info.mr == 64);
    CHECK(std::string(explain(of_experts, 1).name).find("opencl:gemv") == 0);
    CHECK(std::string(explain(of_experts, 1).reason).find("oneDNN multiplies no experts") !=
          std::string::npos);

    // The calls that oneDNN's form of the weights does not serve have the CPU's result.
    const auto x = random_activations(2 * w.k, 4);
    std::vector<float> y(2 * w.n, NAN);
    auto args = make<nybl_matmul_args>();
    args.m = 2, args.x = x.data(), args.y = y.data(), args.compute = NYBL_COMPUTE_F32;
    REQUIRE(nybl_matmul(weights, &args) == NYBL_OK);
    CHECK(nmse(y, multiply_exactly(w, 2, x, nullptr)) < 1e-11);
    nybl_weights_destroy(weights);
    nybl_weights_destroy(of_experts);
}

namespace {

// The same product with zero points rounded to integers, which oneDNN takes as they are: u8 for u4 codes, s8
// for u8 codes. Parameters come from the export, in either layout; oneDNN's own is [groups, N].
std::vector<float> multiply_rounded(const DeviceWeightsCase &w, nybl_param_layout layout, size_t m,
                                    const std::vector<float> &x) {
    using dnnl::memory;
    using Type = memory::data_type;
    auto desc = make<nybl_affine_desc>();
    desc.param_type = NYBL_F32, desc.layout = layout;
    REQUIRE(nybl_affine_sizes(w.format.id, w.n, w.k, &desc) == NYBL_OK);
    std::vector<uint8_t> codes(desc.codes_size);
    std::vector<float> scales(desc.scales_size / 4), zeros(desc.zeros_size / 4);
    desc.codes = codes.data(), desc.scales = scales.data(), desc.zeros = zeros.data();
    REQUIRE(nybl_affine_export(w.format.id, w.n, w.k, w.blocks.data(), 0, &desc) == NYBL_OK);
    const size_t groups = w.k / 32;
    std::vector<float> by_group(groups * w.n);
    std::vector<uint8_t> rounded(groups * w.n);
    const bool four_bits = w.format.code_bits == 4;
    for (size_t g = 0; g < groups; ++g)
        for (size_t i = 0; i < w.n; ++i) {
            const size_t from = layout == NYBL_N_MAJOR ? i * groups + g : g * w.n + i;
            const float zero = std::nearbyint(zeros[from] / scales[from]);
            REQUIRE((four_bits ? zero >= 0 && zero < 256 : zero >= -128 && zero < 128));
            by_group[g * w.n + i] = scales[from];
            rounded[g * w.n + i] = static_cast<uint8_t>(static_cast<int>(zero));
        }
    const auto dim = [](size_t size) { return static_cast<memory::dim>(size); };
    const memory::dim rows = dim(m), n = dim(w.n), k = dim(w.k);
    const Type zero_type = four_bits ? Type::u8 : Type::s8;
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    dnnl::primitive_attr attr;
    attr.set_fpmath_mode(dnnl::fpmath_mode::strict, true);
    attr.set_scales(DNNL_ARG_WEIGHTS, 3, {32, 1}, Type::f32);
    attr.set_zero_points(DNNL_ARG_WEIGHTS, 3, {32, 1}, zero_type);
    const memory::desc x_desc({rows, k}, Type::f32, memory::dims{k, 1}),
        w_desc({k, n}, four_bits ? Type::u4 : Type::u8, memory::dims{1, k}),
        y_desc({rows, n}, Type::f32, memory::dims{n, 1});
    const auto filled = [&](const memory::desc &of, const void *from) {
        memory made(of, engine);
        void *to = made.map_data();
        std::memcpy(to, from, of.get_size());
        made.unmap_data(to);
        return made;
    };
    const memory::dims param_dims{dim(groups), n}, param_steps{n, 1};
    memory y_mem(y_desc, engine);
    dnnl::matmul(dnnl::matmul::primitive_desc(engine, x_desc, w_desc, y_desc, attr))
        .execute(stream, {{DNNL_ARG_SRC, filled(x_desc, x.data())},
                          {DNNL_ARG_WEIGHTS, filled(w_desc, codes.data())},
                          {DNNL_ARG_DST, y_mem},
                          {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                           filled({param_dims, Type::f32, param_steps}, by_group.data())},
                          {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS,
                           filled({param_dims, zero_type, param_steps}, rounded.data())}});
    stream.wait();
    const float *result = static_cast<const float *>(y_mem.map_data());
    std::vector<float> y(result, result + m * w.n);
    y_mem.unmap_data(const_cast<float *>(result));
    return y;
}

// Blocks whose zero points are non-integer multiples of their scales, within what oneDNN's integers can hold.
std::vector<uint8_t> mild_blocks(const AffineBlockFormat &format, size_t n, size_t k) {
    auto blocks = random_blocks(format, n, k, 11);
    for (size_t at = 0; at < blocks.size(); at += format.bytes) {
        blocks[at + 1] = 0x20;                              // d: 2^-7 and a fraction
        blocks[at + 3] = format.block == 256 ? 0x20 : 0xa4; // dmin alike; m = -2^-6 and a fraction
        for (size_t i = 4; format.block == 256 && i < 16;
             ++i) // 6-bit scales of 16 or more, minima at most 31
            blocks[at + i] = static_cast<uint8_t>(i < 8    ? 16 + blocks[at + i] % 48
                                                  : i < 12 ? blocks[at + i] % 32
                                                           : 0xf);
    }
    return blocks;
}

} // namespace

TEST_CASE("onednn context: products are at least four times closer than with rounded zero points",
          "[gpu][onednn]") {
    const Engine engine;
    struct Shape {
        size_t batch, m;
    };
    for (const size_t f : {1, 2, 3, 4}) { // u4 and u8 codes
        const AffineBlockFormat &format = affine_formats()[f];
        const DeviceWeightsCase w(format, 512, mild_blocks(format, 48, 512));
        nybl_weights *weights = engine.weights(w);
        for (const auto layout : {NYBL_N_MAJOR, NYBL_GROUP_MAJOR})
            for (const Shape shape : {Shape{1, 1}, Shape{1, 7}, Shape{3, 1}, Shape{3, 5}}) { // 2D and 3D
                const size_t rows = shape.batch * shape.m;
                const auto x = random_activations(rows * w.k, 6);
                const auto exact = multiply_exactly(w, rows, x, nullptr);
                const double ours = nmse(multiply(weights, w, shape.batch, shape.m, x), exact);
                const double theirs = nmse(multiply_rounded(w, layout, rows, x), exact);
                INFO(format.name << " layout " << layout << " batch " << shape.batch << " m " << shape.m
                                 << ": nmse " << ours << ", with rounded zero points " << theirs);
                CHECK(16 * ours <= theirs); // squares
                CHECK(theirs > 1e-7);       // rounding is seen at all
            }
        nybl_weights_destroy(weights);
    }
}

} // namespace nybl::test
