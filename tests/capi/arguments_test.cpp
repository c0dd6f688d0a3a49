// Wrong arguments: one line each. The status is right, the sentence names the argument, and nothing was
// written.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <functional>

using namespace capi_test;

namespace {

constexpr size_t kN = 8, kK = 256, kM = 2;
constexpr nybl_format kNoFormat = static_cast<nybl_format>(77);

// One call with one thing wrong, and a word that its error text must have.
struct Wrong {
    const char *text;
    nybl_status status;
    std::function<nybl_status()> call;
};

void expect_all(const std::vector<Wrong> &wrong) {
    for (size_t i = 0; i < wrong.size(); ++i) {
        const nybl_status status = wrong[i].call();
        INFO("line " << i << ", expected \"" << wrong[i].text << "\", text: " << nybl_last_error());
        CHECK(status == wrong[i].status);
        CHECK(last_error_has(wrong[i].text));
    }
}

template <class Struct>
Struct changed(Struct base, const std::function<void(Struct &)> &change) {
    change(base);
    return base;
}

template <class T>
T *misaligned(T *ptr) {
    return reinterpret_cast<T *>(reinterpret_cast<uintptr_t>(ptr) + 1);
}

} // namespace

TEST_CASE("C24: wrong arguments: formats and codecs") {
    const auto source = random_floats(kM * kK, 1);
    const auto blocks = nybl::quantize(NYBL_Q4_K, kM, kK, source.data());
    std::vector<uint8_t> dst(blocks.size() + 64, 0xab);
    std::vector<float> values = unwritten(kM * kK);
    auto info = nybl::make<nybl_format_info>();
    size_t bytes = 12345;
    const auto bad_value = changed<std::vector<float>>(source, [](auto &v) { v[kK + 33] = -1.0f / 0.0f; });
    auto importance = std::vector<float>(kK, 1.0f);
    importance[9] = -1;
    auto options = nybl::make<nybl_codec_options>();
    options.level = static_cast<nybl_level>(9);
    const auto quantize = [&](nybl_format f, uint64_t k, const float *src, size_t ss, const float *imp,
                              void *out,
                              size_t ds) { return nybl_quantize(f, kM, k, src, ss, imp, out, ds); };
    const auto dequantize = [&](nybl_format f, uint64_t k, const void *src, size_t ss, float *out,
                                size_t ds) { return nybl_dequantize(f, kM, k, src, ss, out, ds); };
    const size_t row = blocks.size() / kM;
    expect_all({
        {"info", NYBL_INVALID_ARGUMENT, [&] { return nybl_format_get_info(NYBL_Q4_0, nullptr); }},
        {"77", NYBL_INVALID_ARGUMENT, [&] { return nybl_format_get_info(kNoFormat, &info); }},
        {"bytes", NYBL_INVALID_ARGUMENT, [&] { return nybl_row_bytes(NYBL_Q4_0, 32, nullptr); }},
        {"32", NYBL_INVALID_ARGUMENT, [&] { return nybl_row_bytes(NYBL_Q4_0, 33, &bytes); }},
        {"256", NYBL_INVALID_ARGUMENT, [&] { return nybl_row_bytes(NYBL_Q4_K, 288, &bytes); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_row_bytes(NYBL_Q8_0, UINT64_MAX / 32 * 32, &bytes); }},
        {"64 bits", NYBL_INVALID_ARGUMENT, [&] { return nybl_row_bytes(NYBL_F32, UINT64_MAX / 2, &bytes); }},
        {"77", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(kNoFormat, kK, source.data(), 0, nullptr, dst.data(), 0); }},
        {"F16", NYBL_UNSUPPORTED,
         [&] { return quantize(NYBL_F16, kK, source.data(), 0, nullptr, dst.data(), 0); }},
        {"256", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, 96, source.data(), 0, nullptr, dst.data(), 0); }},
        {"src", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, nullptr, 0, nullptr, dst.data(), 0); }},
        {"dst", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, source.data(), 0, nullptr, nullptr, 0); }},
        {"src_stride", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, source.data(), 4 * kK - 4, nullptr, dst.data(), 0); }},
        {"src_stride", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, source.data(), 4 * kK + 2, nullptr, dst.data(), 0); }},
        {"dst_stride", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, source.data(), 0, nullptr, dst.data(), row - 1); }},
        {"src", NYBL_INVALID_ARGUMENT,
         [&] { return quantize(NYBL_Q4_K, kK, misaligned(source.data()), 0, nullptr, dst.data(), 0); }},
        {"importance", NYBL_INVALID_ARGUMENT,
         [&] {
             return quantize(NYBL_Q4_K, kK, source.data(), 0, misaligned(importance.data()), dst.data(), 0);
         }},
        {"importance 9", NYBL_INVALID_DATA,
         [&] { return quantize(NYBL_Q4_K, kK, source.data(), 0, importance.data(), dst.data(), 0); }},
        {"row 1, block 1", NYBL_INVALID_DATA,
         [&] { return quantize(NYBL_Q4_0, kK, bad_value.data(), 0, nullptr, dst.data(), 0); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_quantize(NYBL_Q4_0, UINT64_MAX, kK, source.data(), 0, nullptr, dst.data(), 0); }},
        {"level", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_quantize_with(&options, NYBL_Q4_0, kM, kK, source.data(), 0, nullptr, dst.data(), 0);
         }},
        {"77", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(kNoFormat, kK, blocks.data(), 0, values.data(), 0); }},
        {"256", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, 32, blocks.data(), 0, values.data(), 0); }},
        {"src", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, kK, nullptr, 0, values.data(), 0); }},
        {"dst", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, kK, blocks.data(), 0, nullptr, 0); }},
        {"src_stride", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, kK, blocks.data(), row - 1, values.data(), 0); }},
        {"dst_stride", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, kK, blocks.data(), 0, values.data(), 4 * kK + 1); }},
        {"dst", NYBL_INVALID_ARGUMENT,
         [&] { return dequantize(NYBL_Q4_K, kK, blocks.data(), 0, misaligned(values.data()), 0); }},
        {"src_size", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_validate(NYBL_Q4_K, kM, kK, blocks.data(), 0, blocks.size() - 1); }},
        {"src_size", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_validate(NYBL_Q4_K, kM, kK, blocks.data(), 0, blocks.size() + 1); }},
        {"src", NYBL_INVALID_ARGUMENT, [&] { return nybl_validate(NYBL_Q4_K, kM, kK, nullptr, 0, 0); }},
        {"256", NYBL_INVALID_ARGUMENT, [&] { return nybl_validate(NYBL_Q4_K, kM, 32, blocks.data(), 0, 0); }},
        {"77", NYBL_INVALID_ARGUMENT, [&] { return nybl_validate(kNoFormat, kM, kK, blocks.data(), 0, 0); }},
    });
    CHECK(bytes == 12345);
    CHECK(dst == std::vector<uint8_t>(dst.size(), 0xab));
    CHECK(bits(values) == bits(unwritten(values.size())));
    CHECK(nybl_validate(NYBL_Q4_K, kM, kK, blocks.data(), 0, blocks.size()) == NYBL_OK);
}

TEST_CASE("C24: wrong arguments: vec_dot") {
    const auto w = random_blocks(NYBL_Q4_0, 1, kK, 1), a = random_blocks(NYBL_Q8_0, 1, kK, 2);
    float out = -1;
    nybl_vec_dot_fn fn = nullptr;
    expect_all({
        {"77", NYBL_INVALID_ARGUMENT, [&] { return nybl_vec_dot(kNoFormat, kK, w.data(), a.data(), &out); }},
        {"Q8_K", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_vec_dot(NYBL_Q8_K, kK, w.data(), a.data(), &out); }},
        {"F32", NYBL_UNSUPPORTED, [&] { return nybl_vec_dot(NYBL_F32, kK, w.data(), a.data(), &out); }},
        {"32", NYBL_INVALID_ARGUMENT, [&] { return nybl_vec_dot(NYBL_Q4_0, 31, w.data(), a.data(), &out); }},
        {"w_row", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_vec_dot(NYBL_Q4_0, kK, nullptr, a.data(), &out); }},
        {"a_row", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_vec_dot(NYBL_Q4_0, kK, w.data(), nullptr, &out); }},
        {"out", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_vec_dot(NYBL_Q4_0, kK, w.data(), a.data(), nullptr); }},
        {"fn", NYBL_INVALID_ARGUMENT, [&] { return nybl_get_vec_dot(NYBL_Q4_0, nullptr); }},
        {"77", NYBL_INVALID_ARGUMENT, [&] { return nybl_get_vec_dot(kNoFormat, &fn); }},
    });
    CHECK(out == -1);
    CHECK(fn == nullptr);
    float same = 0;
    CHECK(nybl_vec_dot(NYBL_Q4_0, kK, w.data(), a.data(), &out) == NYBL_OK);
    REQUIRE(nybl_get_vec_dot(NYBL_Q4_0, &fn) == NYBL_OK);
    fn(kK, w.data(), a.data(), &same);
    CHECK(same == out);
    CHECK(nybl_vec_dot(NYBL_Q4_0, 0, nullptr, nullptr, &out) == NYBL_OK);
    CHECK(out == 0);
}

TEST_CASE("C24: wrong arguments: contexts") {
    nybl_context *ctx = nullptr;
    nybl_threadpool pool = nybl::make<nybl_threadpool>();
    nybl_allocator hook = nybl::make<nybl_allocator>();
    hook.deallocate = [](void *, void *, size_t) {};
    nybl_allocator half = nybl::make<nybl_allocator>();
    half.allocate = [](void *, size_t, size_t) -> void * { return nullptr; };
    using Desc = nybl_context_desc;
    const auto create = [&](const std::function<void(Desc &)> &change) {
        const Desc desc = changed(nybl::make<Desc>(), change);
        return nybl_context_create(&desc, &ctx);
    };
    auto stats = nybl::make<nybl_memory_stats>();
    expect_all({
        {"ctx", NYBL_INVALID_ARGUMENT, [&] { return nybl_context_create(nullptr, nullptr); }},
        {"struct_size", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.struct_size = 0; }); }},
        {"device 5", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.device = static_cast<nybl_device>(5); }); }},
        {"GPU", NYBL_UNSUPPORTED_HARDWARE,
         [&] { return create([](Desc &d) { d.device = NYBL_DEVICE_GPU, d.device_index = 9999; }); }},
        {"max_isa", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.max_isa = static_cast<nybl_isa>(-3); }); }},
        {"parallel_for", NYBL_INVALID_ARGUMENT,
         [&] { return create([&](Desc &d) { d.threadpool = &pool; }); }},
        {"allocate", NYBL_INVALID_ARGUMENT, [&] { return create([&](Desc &d) { d.allocator = &hook; }); }},
        {"deallocate", NYBL_INVALID_ARGUMENT, [&] { return create([&](Desc &d) { d.allocator = &half; }); }},
        {"ctx", NYBL_INVALID_ARGUMENT, [&] { return nybl_context_memory(nullptr, &stats); }},
    });
    CHECK(ctx == nullptr);
    const nybl::Context good = make_context();
    CHECK(nybl_context_memory(good.get(), nullptr) == NYBL_INVALID_ARGUMENT);
    CHECK(nybl_context_isa(nullptr) == NYBL_ISA_BEST);
    CHECK(nybl_context_isa(good.get()) != NYBL_ISA_BEST);
    nybl_context_destroy(nullptr);
    nybl_weights_destroy(nullptr);
    CHECK(std::string(nybl_isa_string(static_cast<nybl_isa>(99))) == "unknown");
    CHECK(nybl_status_string(static_cast<nybl_status>(99)) != nullptr);
}

TEST_CASE("C24: wrong arguments: weights") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_K, kN, kK, 1);
    const auto base = describe(NYBL_Q4_K, kN, kK, blocks.data());
    nybl_weights *w = nullptr;
    using Desc = nybl_weights_desc;
    const auto create = [&](const std::function<void(Desc &)> &change) {
        const Desc desc = changed(base, change);
        return nybl_weights_create(ctx.get(), &desc, &w);
    };
    const size_t row = blocks.size() / kN;
    size_t bytes = 12345;
    std::vector<uint8_t> back(blocks.size(), 0xab);
    const nybl::Weights good(ctx, base);
    const void *packed = nullptr;
    uint64_t id = 0;
    const auto bytes_of = [&](const std::function<void(Desc &)> &change) {
        const Desc desc = changed(base, change);
        return nybl_weights_bytes(ctx.get(), &desc, &bytes);
    };
    expect_all({
        {"ctx", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_create(nullptr, &base, &w); }},
        {"desc", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_create(ctx.get(), nullptr, &w); }},
        {"w", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_create(ctx.get(), &base, nullptr); }},
        {"77", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.format = kNoFormat; }); }},
        {"activations", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.format = NYBL_Q8_K; }); }},
        {"F32", NYBL_UNSUPPORTED, [&] { return create([](Desc &d) { d.format = NYBL_F32; }); }},
        {"256", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.k = 255; }); }},
        {"storage", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.storage = static_cast<nybl_storage>(2); }); }},
        {"data", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.data = nullptr; }); }},
        {"row_stride", NYBL_INVALID_ARGUMENT,
         [&] { return create([&](Desc &d) { d.row_stride = row - 1; }); }},
        {"expert_stride", NYBL_INVALID_ARGUMENT,
         [&] { return create([&](Desc &d) { d.expert_stride = row - 1; }); }},
        {"data_size", NYBL_INVALID_ARGUMENT,
         [&] { return create([&](Desc &d) { d.data_size = blocks.size() - 1; }); }},
        {"data_size", NYBL_INVALID_ARGUMENT,
         [&] {
             return create([&](Desc &d) {
                 d.data_size = blocks.size();
                 d.row_stride = row + 1;
             });
         }},
        {"64 bits", NYBL_INVALID_ARGUMENT, [&] { return create([](Desc &d) { d.n = UINT64_MAX; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.n_experts = UINT64_MAX / 16; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.k = UINT64_MAX / 256 * 256; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] { return create([](Desc &d) { d.row_stride = SIZE_MAX / 2; }); }},
        {"ctx", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_bytes(nullptr, &base, &bytes); }},
        {"desc", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_bytes(ctx.get(), nullptr, &bytes); }},
        {"bytes", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_bytes(ctx.get(), &base, nullptr); }},
        {"256", NYBL_INVALID_ARGUMENT, [&] { return bytes_of([](Desc &d) { d.k = 64; }); }},
        {"w is NULL", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_unpack(nullptr, back.data(), 0); }},
        {"dst", NYBL_INVALID_ARGUMENT, [&] { return nybl_weights_unpack(good.get(), nullptr, 0); }},
        {"row_stride", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_unpack(good.get(), back.data(), row - 1); }},
        {"w is NULL", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_packed(nullptr, &packed, &bytes, &id); }},
        {"packed", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_packed(good.get(), nullptr, &bytes, &id); }},
        {"bytes", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_packed(good.get(), &packed, nullptr, &id); }},
        {"layout_id", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_packed(good.get(), &packed, &bytes, nullptr); }},
        {"ctx", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_quantize(nullptr, &base, nullptr, 0, nullptr, nullptr, &w); }},
        {"src", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_quantize(ctx.get(), &base, nullptr, 0, nullptr, nullptr, &w); }},
        {"w", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_quantize(ctx.get(), &base, nullptr, 0, nullptr, nullptr, nullptr); }},
        {"ctx", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_from_packed(nullptr, &base, nullptr, 0, 0, &w); }},
        {"layout_id", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_weights_from_packed(ctx.get(), &base, nullptr, 0, 0, &w); }},
    });
    CHECK(w == nullptr);
    CHECK(bytes == 12345);
    CHECK(packed == nullptr);
    CHECK(id == 0);
    CHECK(back == std::vector<uint8_t>(back.size(), 0xab));
}

TEST_CASE("C24: wrong arguments: products") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, 2 * kN, kK, 1);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, kN, kK, blocks.data()));
    const nybl::Weights experts(ctx, describe(NYBL_Q4_0, kN, kK, blocks.data(), 2));
    const auto x = random_floats(kM * kK, 2);
    std::vector<float> y = unwritten(kM * kN + 16);
    using Args = nybl_matmul_args;
    const Args base = f32_args(kM, x.data(), y.data());
    const auto matmul = [&](const std::function<void(Args &)> &change) {
        const Args args = changed(base, change);
        return nybl_matmul(w.get(), &args);
    };
    size_t bytes = 12345;
    std::vector<uint8_t> scratch(1 << 20);
    const auto no_barrier = [](void *) { FAIL("the barrier was called"); };
    auto info = nybl::make<nybl_kernel_info>();
    const nybl_weights *handle = w.get();
    expect_all({
        {"w is NULL", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul(nullptr, &base); }},
        {"args", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul(w.get(), nullptr); }},
        {"experts", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul(experts.get(), &base); }},
        {"x is NULL", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x = nullptr; }); }},
        {"y is NULL", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y = nullptr; }); }},
        {"x_type", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x_type = NYBL_Q8_0; }); }},
        {"y_type", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y_type = kNoFormat; }); }},
        {"x_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x_stride = 4 * kK - 4; }); }},
        {"x_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x_stride = 4 * kK + 1; }); }},
        {"y_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y_stride = 4 * kN - 4; }); }},
        {"y_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y_stride = 4 * kN + 2; }); }},
        {"x_batch_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.x_batch_stride = 4; }); }},
        {"y_batch_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.y_batch_stride = 4 * kN + 3; }); }},
        {"x is not aligned", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.x = misaligned(x.data()); }); }},
        {"y is not aligned", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.y = misaligned(y.data()); }); }},
        {"bias", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.bias = misaligned(x.data()); }); }},
        {"compute", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.compute = static_cast<nybl_compute>(7); }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.m = UINT64_MAX; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.batch = UINT64_MAX; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT,
         [&] {
             return matmul([](Args &a) {
                 a.x_stride = SIZE_MAX / 4 * 4;
                 a.m = 3;
             });
         }},
        {"address space", NYBL_INVALID_ARGUMENT,
         [&] {
             return matmul([](Args &a) {
                 a.x_stride = SIZE_MAX / 2 + 1;
                 a.x_batch_stride = 4 * kK;
             });
         }},
        {"bytes", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_matmul_scratch_bytes(w.get(), &base, 1, nullptr); }},
        {"nth", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_scratch_bytes(w.get(), &base, 0, &bytes); }},
        {"w is NULL", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_matmul_scratch_bytes(nullptr, &base, 1, &bytes); }},
        {"nth", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_matmul_part(w.get(), &base, 0, 0, scratch.data(), scratch.size(), no_barrier,
                                     nullptr);
         }},
        {"ith", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_matmul_part(w.get(), &base, 2, 2, scratch.data(), scratch.size(), no_barrier,
                                     nullptr);
         }},
        {"barrier", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_matmul_part(w.get(), &base, 0, 2, scratch.data(), scratch.size(), nullptr, nullptr);
         }},
        {"scratch", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_matmul_part(w.get(), &base, 0, 1, nullptr, scratch.size(), nullptr, nullptr); }},
        {"scratch", NYBL_BUFFER_TOO_SMALL,
         [&] { return nybl_matmul_part(w.get(), &base, 0, 1, nullptr, 0, nullptr, nullptr); }},
        {"w is NULL", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_multi(1, nullptr, &base); }},
        {"args", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_multi(1, &handle, nullptr); }},
        {"w is NULL", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_explain(nullptr, 1, &info); }},
        {"info", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_explain(w.get(), 1, nullptr); }},
    });
    CHECK(bytes == 12345);
    CHECK(info.name[0] == '\0');
    CHECK(bits(y) == bits(unwritten(y.size())));
}

TEST_CASE("C24: wrong arguments: experts") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, 3 * kN, kK, 1);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, kN, kK, blocks.data(), 3));
    const auto x = random_floats(kM * 2 * kK, 2);
    std::vector<int32_t> ids{0, 2, 1, -1};
    std::vector<float> y = unwritten(kM * 2 * kN);
    using Args = nybl_matmul_id_args;
    Args base = nybl::make<Args>();
    base.n_tokens = kM;
    base.n_slots = 2;
    base.ids = ids.data();
    base.x = x.data();
    base.y = y.data();
    const auto matmul = [&](const std::function<void(Args &)> &change) {
        const Args args = changed(base, change);
        return nybl_matmul_id(w.get(), &args);
    };
    const std::vector<int32_t> high{0, 2, 3, -1}, low{0, 2, 1, -2};
    size_t bytes = 12345;
    std::vector<uint8_t> scratch(1 << 20);
    expect_all({
        {"w is NULL", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_id(nullptr, &base); }},
        {"args", NYBL_INVALID_ARGUMENT, [&] { return nybl_matmul_id(w.get(), nullptr); }},
        {"ids", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.ids = nullptr; }); }},
        {"token 1, slot 0", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.ids = high.data(); }); }},
        {"token 1, slot 1", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.ids = low.data(); }); }},
        {"ids", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([&](Args &a) { a.ids = misaligned(ids.data()); }); }},
        {"ids_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.ids_stride = 4; }); }},
        {"ids_stride", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.ids_stride = 9; }); }},
        {"x is NULL", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x = nullptr; }); }},
        {"y is NULL", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y = nullptr; }); }},
        {"x_type", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.x_type = NYBL_Q4_0; }); }},
        {"y_type", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.y_type = kNoFormat; }); }},
        {"x_token_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.x_token_stride = 4 * kK - 4; }); }},
        {"x_slot_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.x_slot_stride = 4; }); }},
        {"y_token_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.y_token_stride = 4 * kN + 1; }); }},
        {"y_slot_stride", NYBL_INVALID_ARGUMENT,
         [&] { return matmul([](Args &a) { a.y_slot_stride = 4 * kN - 4; }); }},
        {"compute", NYBL_UNSUPPORTED, [&] { return matmul([](Args &a) { a.compute = NYBL_COMPUTE_BF16; }); }},
        {"64 bits", NYBL_INVALID_ARGUMENT, [&] { return matmul([](Args &a) { a.n_tokens = UINT64_MAX; }); }},
        {"2^31", NYBL_UNSUPPORTED, [&] { return matmul([](Args &a) { a.n_tokens = uint64_t{1} << 31; }); }},
        {"bytes", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_matmul_id_scratch_bytes(w.get(), &base, 1, nullptr); }},
        {"nth", NYBL_INVALID_ARGUMENT,
         [&] { return nybl_matmul_id_scratch_bytes(w.get(), &base, 0, &bytes); }},
        {"ith", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_matmul_id_part(w.get(), &base, 1, 1, scratch.data(), scratch.size(), nullptr,
                                        nullptr);
         }},
        {"barrier", NYBL_INVALID_ARGUMENT,
         [&] {
             return nybl_matmul_id_part(w.get(), &base, 0, 2, scratch.data(), scratch.size(), nullptr,
                                        nullptr);
         }},
        {"scratch", NYBL_BUFFER_TOO_SMALL,
         [&] { return nybl_matmul_id_part(w.get(), &base, 0, 1, scratch.data(), 1, nullptr, nullptr); }},
    });
    CHECK(bytes == 12345);
    CHECK(bits(y) == bits(unwritten(y.size())));
}
