// GPU contexts through the C API: products, experts, sharing, memory, and what happens where there is no
// device.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nybl/nybl.h>
#include <string>

#include "base/half.h"
#include "gpu/device_case.h"
#include "gpu/skip.h"

namespace nybl::test {
namespace {

constexpr double kF32Nmse = 1e-11, kHalfOutputNmse = 1e-6, kBf16OutputNmse = 1e-4;

struct CloseContext {
    void operator()(nybl_context *ctx) const { nybl_context_destroy(ctx); }
};
struct CloseWeights {
    void operator()(nybl_weights *w) const { nybl_weights_destroy(w); }
};
using Context = std::unique_ptr<nybl_context, CloseContext>;
using Weights = std::unique_ptr<nybl_weights, CloseWeights>;

nybl_status try_open(Context *ctx, uint32_t index = 0) {
    nybl_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = NYBL_DEVICE_GPU;
    desc.device_index = index;
    nybl_context *made = nullptr;
    const nybl_status status = nybl_context_create(&desc, &made);
    ctx->reset(made);
    return status;
}

Context open_or_skip() {
    skip_under_sanitizers();
    Context ctx;
    if (try_open(&ctx) != NYBL_OK)
        SKIP(nybl_last_error());
    return ctx;
}

Weights create(const Context &ctx, const DeviceWeightsCase &w, nybl_storage storage = NYBL_STORAGE_PACKED) {
    nybl_weights_desc desc{};
    desc.struct_size = sizeof desc;
    desc.format = w.format.id;
    desc.n = w.n;
    desc.k = w.k;
    desc.n_experts = w.n_experts;
    desc.data = w.blocks.data();
    desc.storage = storage;
    nybl_weights *made = nullptr;
    REQUIRE(nybl_weights_create(ctx.get(), &desc, &made) == NYBL_OK);
    return Weights(made);
}

nybl_memory_stats memory_of(const Context &ctx) {
    nybl_memory_stats stats{};
    stats.struct_size = sizeof stats;
    REQUIRE(nybl_context_memory(ctx.get(), &stats) == NYBL_OK);
    return stats;
}

nybl_kernel_info explain(const Weights &w, size_t m) {
    nybl_kernel_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nybl_matmul_explain(w.get(), m, &info) == NYBL_OK);
    return info;
}

double dot(const DeviceWeightsCase &w, size_t expert, size_t row, const float *x) {
    double sum = 0;
    for (size_t j = 0; j < w.k; ++j)
        sum += w.exact[(expert * w.n + row) * w.k + j] * static_cast<double>(x[j]);
    return sum;
}

size_t bytes_of(nybl_format type) {
    return type == NYBL_F32 ? 4 : 2;
}

void put(nybl_format type, uint8_t *at, float value) {
    const uint16_t half = type == NYBL_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (type == NYBL_F32)
        std::memcpy(at, &value, 4);
    else
        std::memcpy(at, &half, 2);
}

float get(nybl_format type, const uint8_t *at) {
    uint16_t half;
    float value;
    std::memcpy(&half, at, 2);
    std::memcpy(&value, at, bytes_of(type));
    return type == NYBL_F32 ? value : type == NYBL_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

// Products of [batch, m, k] activations whose rows and batches have room between them; checks every output
// and that nothing between them changed.
double strided_nmse(const DeviceWeightsCase &w, const Weights &weights, size_t m, nybl_format x_type,
                    nybl_format y_type) {
    constexpr size_t batch = 2, gap = 12;
    constexpr uint8_t kFence = 0xb5;
    const size_t x_stride = w.k * bytes_of(x_type) + gap, y_stride = w.n * bytes_of(y_type) + gap;
    const size_t x_batch = m * x_stride + gap, y_batch = m * y_stride + gap;
    std::vector<uint8_t> x(batch * x_batch), y(batch * y_batch, kFence);
    const auto values = random_activations(batch * m * w.k, 3);
    for (size_t i = 0; i < values.size(); ++i)
        put(x_type, &x[i / w.k / m * x_batch + i / w.k % m * x_stride + i % w.k * bytes_of(x_type)],
            values[i]);
    nybl_matmul_args args{};
    args.struct_size = sizeof args;
    args.m = m;
    args.x = x.data(), args.x_type = x_type, args.x_stride = x_stride, args.x_batch_stride = x_batch;
    args.y = y.data(), args.y_type = y_type, args.y_stride = y_stride, args.y_batch_stride = y_batch;
    args.batch = batch;
    REQUIRE(nybl_matmul(weights.get(), &args) == NYBL_OK);
    std::vector<float> got;
    std::vector<double> exact;
    for (size_t row = 0; row < batch * m; ++row) {
        std::vector<float> rounded(w.k);
        for (size_t j = 0; j < w.k; ++j)
            rounded[j] = get(x_type, &x[row / m * x_batch + row % m * x_stride + j * bytes_of(x_type)]);
        uint8_t *out = &y[row / m * y_batch + row % m * y_stride];
        for (size_t i = 0; i < w.n; ++i) {
            got.push_back(get(y_type, out + i * bytes_of(y_type)));
            exact.push_back(dot(w, 0, i, rounded.data()));
        }
        std::memset(out, kFence, w.n * bytes_of(y_type));
    }
    CHECK(static_cast<size_t>(std::count(y.begin(), y.end(), kFence)) == y.size());
    return nmse(got, exact);
}

} // namespace

TEST_CASE("gpu context: products with every element type, strides and batches", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const DeviceWeightsCase w(affine_formats()[3], 40, 512, 1, 1); // Q4_K
    const Weights weights = create(ctx, w);
    for (const size_t m : {1, 12})
        for (const auto x_type : {NYBL_F32, NYBL_F16, NYBL_BF16})
            for (const auto y_type : {NYBL_F32, NYBL_F16, NYBL_BF16}) {
                INFO("m " << m << " x_type " << x_type << " y_type " << y_type);
                CHECK(explain(weights, 2 * m).device == NYBL_DEVICE_GPU);
                CHECK(strided_nmse(w, weights, m, x_type, y_type) < (y_type == NYBL_F32   ? kF32Nmse
                                                                     : y_type == NYBL_F16 ? kHalfOutputNmse
                                                                                          : kBf16OutputNmse));
            }
}

TEST_CASE("gpu context: several weights on one x", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const DeviceWeightsCase a(affine_formats()[3], 40, 256, 1, 1), b(affine_formats()[0], 7, 256, 1, 2);
    const Weights wa = create(ctx, a), wb = create(ctx, b);
    constexpr size_t m = 3;
    const auto x = random_activations(m * 256, 5);
    std::vector<float> ya(m * a.n, NAN), yb(m * b.n, NAN);
    nybl_matmul_args args[2] = {};
    for (auto &arg : args) {
        arg.struct_size = sizeof arg;
        arg.m = m;
        arg.x = x.data();
    }
    args[0].y = ya.data();
    args[1].y = yb.data();
    const nybl_weights *const both[] = {wa.get(), wb.get()};
    REQUIRE(nybl_matmul_multi(2, both, args) == NYBL_OK);
    std::vector<double> exact_a, exact_b;
    for (size_t t = 0; t < m; ++t) {
        for (size_t i = 0; i < a.n; ++i)
            exact_a.push_back(dot(a, 0, i, &x[t * 256]));
        for (size_t i = 0; i < b.n; ++i)
            exact_b.push_back(dot(b, 0, i, &x[t * 256]));
    }
    CHECK(nmse(ya, exact_a) < kF32Nmse);
    CHECK(nmse(yb, exact_b) < kF32Nmse);
}

TEST_CASE("C1: gpu context: a group's sum of activations that f16 could not hold", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const auto multiply_blocks = [&](size_t f, const std::vector<uint8_t> &blocks) {
        const AffineBlockFormat &format = affine_formats()[f];
        DeviceWeightsCase w(format, 1, format.block, 1, 1);
        w.blocks = blocks;
        const Weights weights = create(ctx, w);
        const std::vector<float> x(format.block, 2048.0f);
        float y = NAN;
        nybl_matmul_args args{};
        args.struct_size = sizeof args;
        args.m = 1, args.x = x.data(), args.y = &y;
        REQUIRE(nybl_matmul(weights.get(), &args) == NYBL_OK);
        return y;
    };
    std::vector<uint8_t> q4_1(20), q4_k(144);
    CHECK(multiply_blocks(1, q4_1) == 0.0f); // d = m = 0
    q4_1[3] = 0x3c;                          // m = 1
    CHECK(multiply_blocks(1, q4_1) == 65536.0f);
    q4_k[3] = 0x3c;                             // dmin = 1, every minimum 1, d = 0
    std::fill_n(&q4_k[8], 4, uint8_t(1));       // minima of groups 0..3
    std::fill_n(&q4_k[12], 4, uint8_t(1 << 4)); // of groups 4..7
    CHECK(multiply_blocks(3, q4_k) == -524288.0f);
}

TEST_CASE("gpu context: experts, absent ones and repeated ones included", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    constexpr size_t n_experts = 5, n_slots = 2;
    for (const size_t f : {size_t(1), size_t(4)}) // Q4_1, Q5_K
        for (const size_t n_tokens : {size_t(2), size_t(60)})
            for (const bool shared : {true, false}) {
                const DeviceWeightsCase w(affine_formats()[f], 24, 256, n_experts, 9);
                const Weights weights = create(ctx, w);
                const size_t rows = n_tokens * n_slots;
                const auto x = random_activations((shared ? n_tokens : rows) * w.k, 4);
                std::vector<int32_t> ids(rows);
                for (size_t i = 0; i < rows; ++i)
                    ids[i] = i % 7 == 3 ? -1 : static_cast<int32_t>(i * i % 3); // experts 3 and 4 stay idle
                std::vector<float> y(rows * w.n, NAN);
                nybl_matmul_id_args args{};
                args.struct_size = sizeof args;
                args.n_tokens = n_tokens, args.n_slots = n_slots, args.ids = ids.data();
                args.x = x.data(), args.x_slot_stride = shared ? 0 : w.k * 4;
                args.y = y.data();
                REQUIRE(nybl_matmul_id(weights.get(), &args) == NYBL_OK);
                std::vector<double> exact;
                for (size_t i = 0; i < rows; ++i)
                    for (size_t row = 0; row < w.n; ++row)
                        exact.push_back(ids[i] < 0 ? 0.0
                                                   : dot(w, static_cast<size_t>(ids[i]), row,
                                                         &x[(shared ? i / n_slots : i) * w.k]));
                INFO(w.format.name << " tokens " << n_tokens << " shared " << shared);
                CHECK(nmse(y, exact) < kF32Nmse);
                for (size_t i = 0; i < y.size(); ++i)
                    if (ids[i / w.n] < 0)
                        REQUIRE(y[i] == 0.0f);
            }
}

TEST_CASE("gpu context: equal weights share their device memory, and the last handle frees it",
          "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const DeviceWeightsCase w(affine_formats()[3], 64, 1024, 1, 1),
        other(affine_formats()[3], 64, 1024, 1, 2);
    CHECK(memory_of(ctx).device_bytes == 0);
    Weights first = create(ctx, w);
    const auto one = memory_of(ctx);
    CHECK(one.device_bytes == w.panels.size());
    CHECK(one.device_peak_bytes == w.panels.size()); // nothing besides the final copy
    CHECK(one.device_param_bytes == 4 * 4 * 256);    // panels x super-blocks x (d, dmin, 12 scale bytes) x 16
    const Weights second = create(ctx, w);
    CHECK(memory_of(ctx).device_bytes == one.device_bytes);
    CHECK(memory_of(ctx).device_param_bytes == one.device_param_bytes);
    {
        const Weights third = create(ctx, other);
        CHECK(memory_of(ctx).device_bytes == 2 * one.device_bytes);
    }
    first.reset();
    CHECK(memory_of(ctx).device_bytes == one.device_bytes);
    CHECK(strided_nmse(w, second, 2, NYBL_F32, NYBL_F32) < kF32Nmse);
}

TEST_CASE("gpu context: what no GPU kernel serves runs on the CPU, and explain says so", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const DeviceWeightsCase w(affine_formats()[3], 20, 256, 1, 1);
    const Weights original = create(ctx, w, NYBL_STORAGE_ORIGINAL);
    const auto info = explain(original, 1);
    CHECK(info.device == NYBL_DEVICE_CPU);
    CHECK(std::string(info.reason).find("original storage") != std::string::npos);
    CHECK(strided_nmse(w, original, 1, NYBL_F32, NYBL_F32) < 1e-3);
    CHECK(memory_of(ctx).device_bytes == 0);
    const Weights packed = create(ctx, w);
    CHECK(std::string(explain(packed, 1).name).rfind("opencl:gemv Q4_K", 0) == 0);
    CHECK(std::string(explain(packed, 64).name).rfind("opencl:gemm Q4_K", 0) == 0);
}

TEST_CASE("C17: gpu context: a device that is not there is refused in words", "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    Context none;
    CHECK(try_open(&none, 1000) == NYBL_UNSUPPORTED_HARDWARE);
    CHECK(std::string(nybl_last_error()).find("no device 1000") != std::string::npos);
}

TEST_CASE("C18: gpu context: packed weights give their blocks again, and one row's result survives many rows",
          "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    for (const size_t f : {size_t(2), size_t(3)}) // Q5_1, Q4_K
        for (const size_t n : {size_t(1), size_t(7), size_t(17)}) {
            const DeviceWeightsCase w(affine_formats()[f], n, 256, 1, static_cast<uint32_t>(n));
            const Weights weights = create(ctx, w);
            std::vector<uint8_t> again(w.blocks.size());
            REQUIRE(nybl_weights_unpack(weights.get(), again.data(), 0) == NYBL_OK);
            CHECK(again == w.blocks);
            const auto x = random_activations(64 * w.k, 3);
            const auto multiply_rows = [&](size_t m) {
                std::vector<float> y(m * n, NAN);
                nybl_matmul_args args{};
                args.struct_size = sizeof args;
                args.m = m, args.x = x.data(), args.y = y.data();
                REQUIRE(nybl_matmul(weights.get(), &args) == NYBL_OK);
                return y;
            };
            const auto first = multiply_rows(1);
            CHECK(nmse(multiply_rows(64), multiply_exactly(w, 64, x, nullptr)) < kF32Nmse);
            CHECK(multiply_rows(1) == first);
        }
}

// Run by the next case, under a cap that these weights exceed.
TEST_CASE("gpu context with a small device", "[.child]") {
    Context ctx;
    REQUIRE(try_open(&ctx) == NYBL_OK);
    const DeviceWeightsCase large(affine_formats()[3], 64, 1024, 1, 1),
        small(affine_formats()[3], 20, 256, 1, 1);
    const Weights on_cpu = create(ctx, large), on_gpu = create(ctx, small);
    const std::string why = explain(on_cpu, 1).reason;
    CHECK(why.find("cpu: the weights are not on the device") == 0);
    CHECK(memory_of(ctx).device_bytes == small.panels.size());
    CHECK(explain(on_cpu, 1).device == NYBL_DEVICE_CPU);
    CHECK(strided_nmse(large, on_cpu, 1, NYBL_F32, NYBL_F32) < 1e-3);
    CHECK(explain(on_gpu, 1).device == NYBL_DEVICE_GPU);
    CHECK(strided_nmse(small, on_gpu, 1, NYBL_F32, NYBL_F32) < kF32Nmse);
    // Activations beyond the cap: the CPU computes this one product.
    CHECK(strided_nmse(small, on_gpu, 20, NYBL_F32, NYBL_F32) < 1e-3);
}

TEST_CASE("C17: gpu context: weights and activations beyond the device's largest buffer run on the CPU",
          "[gpu][opencl]") {
    const Context ctx = open_or_skip();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command =
        "NYBL_OPENCL_MAX_BUFFER=20000 '" + self + "' 'gpu context with a small device' >/dev/null 2>&1";
    CHECK(std::system(command.c_str()) == 0);
}

// Run by the next case in a process of its own: libraries and drivers are looked for once per process.
TEST_CASE("gpu context in a process without OpenCL", "[.child]") {
    Context none;
    CHECK(try_open(&none) == NYBL_UNSUPPORTED_HARDWARE);
    const std::string why = nybl_last_error();
    CHECK(why.find("GPU: ") == 0);
    const char *words = std::getenv("NYBL_EXPECTED_WORDS");
    REQUIRE(words);
    CHECK(why.find(words) != std::string::npos);
    nybl_context *cpu = nullptr;
    REQUIRE(nybl_context_create(nullptr, &cpu) == NYBL_OK);
    const Context ctx(cpu);
    const DeviceWeightsCase w(affine_formats()[3], 20, 256, 1, 1);
    CHECK(strided_nmse(w, create(ctx, w), 1, NYBL_F32, NYBL_F32) < 1e-3);
}

TEST_CASE("C17: gpu context: no library and no driver are refused in words, and the CPU goes on", "[gpu]") {
    skip_under_sanitizers();
    Context ctx;
    const bool here = try_open(&ctx) == NYBL_OK;
    if (!here && std::string(nybl_last_error()).find("this build has no GPU path") != std::string::npos)
        SKIP(nybl_last_error());
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto child_passes = [&](const std::string &environment, const std::string &words) {
        const std::string command = "env " + environment + " NYBL_EXPECTED_WORDS='" + words + "' '" + self +
                                    "' 'gpu context in a process without OpenCL' >/dev/null 2>&1";
        return std::system(command.c_str()) == 0;
    };
    CHECK(child_passes("NYBL_OPENCL_LIBRARY=/nonexistent/libOpenCL.so",
                       "/nonexistent/libOpenCL.so cannot be loaded"));
    CHECK(child_passes("NYBL_OPENCL_LIBRARY=libc.so.6", "libc.so.6 has no cl"));
    if (here) // there is a loader, which can be told to look for drivers elsewhere
        CHECK(child_passes("OCL_ICD_VENDORS=/nonexistent/ OCL_ICD_FILENAMES=", "knows no driver"));
}

} // namespace nybl::test
