// Sizes at the ends of their types: bytes and elements beyond 2^32 in memory that is only reserved, products
// that overflow, strides that look negative, every alignment. Each is an error or right.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <sys/mman.h>

using namespace capi_test;

namespace {

constexpr size_t kGiB = size_t{1} << 30;

// Zeros as far as the eye reaches: pages take memory only once they are written.
class Sparse {
  public:
    explicit Sparse(size_t bytes) : bytes_(bytes) {
        data_ =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(data_ != MAP_FAILED);
    }
    ~Sparse() { munmap(data_, bytes_); }
    Sparse(const Sparse &) = delete;
    Sparse &operator=(const Sparse &) = delete;

    template <class T = uint8_t>
    T *at(size_t offset = 0) const {
        return reinterpret_cast<T *>(static_cast<uint8_t *>(data_) + offset);
    }

  private:
    size_t bytes_;
    void *data_;
};

// Rows of blocks, written so far apart.
void spread(const std::vector<uint8_t> &blocks, size_t row, size_t stride, uint8_t *to) {
    for (size_t i = 0; i * row < blocks.size(); ++i)
        std::memcpy(to + i * stride, &blocks[i * row], row);
}

constexpr uint16_t kHalfOne = 0x3C00;

} // namespace

TEST_CASE("limits: strides beyond 2^30 bytes address the right rows of w, x and y") {
    const size_t n = 20, k = 256, m = 5, stride = kGiB + 24;
    const Sparse far_w(n * stride), far_x(m * stride), far_y(m * stride);
    const nybl::Context ctx = make_context(3);
    const auto x = random_floats(m * k, 1);
    for (size_t i = 0; i < m; ++i)
        std::memcpy(far_x.at(i * stride), &x[i * k], 4 * k);
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_K, NYBL_Q6_K}) {
        const size_t row = nybl::row_bytes(format, k);
        const auto blocks = random_blocks(format, n, k, 2);
        spread(blocks, row, stride, far_w.at());
        const bool packs = format != NYBL_Q6_K;
        const nybl::Weights near(ctx, describe(format, n, k, blocks.data(), 1, NYBL_STORAGE_ORIGINAL));
        std::vector<float> expected(m * n);
        near.matmul(m, x.data(), expected.data());
        for (const auto storage : {NYBL_STORAGE_ORIGINAL, NYBL_STORAGE_PACKED}) {
            if (storage == NYBL_STORAGE_PACKED && !packs)
                continue;
            auto desc = describe(format, n, k, far_w.at(), 1, storage);
            desc.row_stride = stride;
            desc.data_size = (n - 1) * stride + row;
            desc.validate = 1;
            const nybl::Weights far(ctx, desc);
            auto args = f32_args(m, far_x.at<float>(), far_y.at<float>());
            args.x_stride = args.y_stride = stride;
            far.matmul(args);
            for (size_t i = 0; i < m; ++i) {
                INFO(format_name(format) << ", storage " << storage << ", row " << i);
                CHECK(std::memcmp(far_y.at(i * stride), &expected[i * n], 4 * n) == 0);
                std::memset(far_y.at(i * stride), 0xEE, 4 * n);
            }
        }
    }
}

TEST_CASE("limits: experts, tokens, slots and batches beyond 2^32 bytes from each other") {
    const size_t n = 17, k = 64, experts = 3, tokens = 4, slots = 2, stride = 5 * kGiB + 8;
    const Sparse far_w(experts * stride), far_x(tokens * stride), far_y(tokens * stride);
    const nybl::Context ctx = make_context(2);
    const auto blocks = random_blocks(NYBL_Q4_1, experts * n, k, 3);
    const size_t row = nybl::row_bytes(NYBL_Q4_1, k);
    spread(blocks, n * row, stride, far_w.at());
    const nybl::Weights near(ctx, describe(NYBL_Q4_1, n, k, blocks.data(), experts));
    auto desc = describe(NYBL_Q4_1, n, k, far_w.at(), experts);
    desc.expert_stride = stride;
    const nybl::Weights far(ctx, desc);

    const auto x = random_floats(tokens * k, 4);
    for (size_t t = 0; t < tokens; ++t)
        std::memcpy(far_x.at(t * stride), &x[t * k], 4 * k);
    const std::vector<int32_t> ids{2, 0, 1, -1, 0, 0, 2, 1};
    std::vector<float> expected(tokens * slots * n);
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = tokens;
    args.n_slots = slots;
    args.ids = ids.data();
    args.x = x.data();
    args.y = expected.data();
    near.matmul_id(args);
    args.x = far_x.at();
    args.x_token_stride = stride;
    args.y = far_y.at();
    args.y_token_stride = stride;
    args.y_slot_stride = 2 * kGiB;
    far.matmul_id(args);
    for (size_t t = 0; t < tokens; ++t)
        for (size_t s = 0; s < slots; ++s)
            CHECK(std::memcmp(far_y.at(t * stride + s * 2 * kGiB), &expected[(t * slots + s) * n], 4 * n) ==
                  0);

    // The same rows of x as a batch of products with one row each.
    const nybl::Weights one(ctx, describe(NYBL_Q4_1, n, k, blocks.data()));
    std::vector<float> product(tokens * n);
    one.matmul(tokens, x.data(), product.data());
    auto batch = f32_args(1, far_x.at<float>(), far_y.at<float>());
    batch.batch = tokens;
    batch.x_batch_stride = batch.y_batch_stride = stride;
    one.matmul(batch);
    for (size_t t = 0; t < tokens; ++t)
        CHECK(std::memcmp(far_y.at(t * stride), &product[t * n], 4 * n) == 0);
}

TEST_CASE("limits: codecs over strides beyond 2^30 bytes, and a fault behind 2^32 elements") {
    const size_t rows = 6, k = 512, stride = kGiB + 4;
    const Sparse far_values(rows * stride), far_blocks(rows * stride);
    const auto source = random_floats(rows * k, 5);
    for (size_t i = 0; i < rows; ++i)
        std::memcpy(far_values.at(i * stride), &source[i * k], 4 * k);
    for (const nybl_format format : {NYBL_Q8_0, NYBL_Q4_K}) {
        const size_t row = nybl::row_bytes(format, k);
        const auto blocks = nybl::quantize(format, rows, k, source.data());
        const auto values = nybl::dequantize(format, rows, k, blocks.data());
        nybl::check(
            nybl_quantize(format, rows, k, far_values.at<float>(), stride, nullptr, far_blocks.at(), stride));
        const Sparse back(rows * stride);
        nybl::check(nybl_dequantize(format, rows, k, far_blocks.at(), stride, back.at<float>(), stride));
        for (size_t i = 0; i < rows; ++i) {
            CHECK(std::memcmp(far_blocks.at(i * stride), &blocks[i * row], row) == 0);
            CHECK(std::memcmp(back.at(i * stride), &values[i * k], 4 * k) == 0);
        }
    }
    // 2^32 + 8192 elements of Q4_0, all zero but one.
    const size_t many = (size_t{1} << 20) + 2, long_k = 4096, row = nybl::row_bytes(NYBL_Q4_0, long_k);
    const Sparse zeros(many * row);
    const uint16_t infinity = 0x7C00;
    std::memcpy(zeros.at((many - 1) * row + 127 * 18), &infinity, 2);
    CHECK(nybl_validate(NYBL_Q4_0, many, long_k, zeros.at(), 0, many * row) == NYBL_INVALID_DATA);
    CHECK(last_error_has("row 1048577, block 127"));
}

TEST_CASE("limits: a product over more than 2^32 weights where they lie") {
    const size_t n = (size_t{1} << 20) + 3, k = 4096, row = nybl::row_bytes(NYBL_Q4_0, k);
    const Sparse w(n * row); // zeros: d = 0
    const auto blocks = random_blocks(NYBL_Q4_0, 3, k, 6);
    for (size_t i = 0; i < 3; ++i)
        std::memcpy(w.at((n - 3 + i) * row), &blocks[i * row], row);
    const nybl::Context ctx = make_context(2);
    const auto x = random_floats(k, 7);
    std::vector<float> few(3), y = unwritten(n);
    nybl::Weights(ctx, describe(NYBL_Q4_0, 3, k, blocks.data())).matmul(1, x.data(), few.data());
    const nybl::Weights all(ctx, describe(NYBL_Q4_0, n, k, w.at(), 1, NYBL_STORAGE_ORIGINAL));
    all.matmul(1, x.data(), y.data());
    CHECK(bits({y.end() - 3, y.end()}) == bits(few));
    CHECK(std::all_of(y.begin(), y.end() - 3, [](float value) { return value == 0.0f; }));
}

TEST_CASE("limits: more than 2^32 bytes of packed weights", "[.slow]") {
    const size_t n = (size_t{1} << 21) - 13, k = 4096, row = nybl::row_bytes(NYBL_Q4_0, k);
    const Sparse w(n * row);
    const auto blocks = random_blocks(NYBL_Q4_0, 3, k, 8);
    for (size_t i = 0; i < 3; ++i)
        std::memcpy(w.at((n - 3 + i) * row), &blocks[i * row], row);
    const nybl::Context ctx = make_context(2);
    const auto x = random_floats(33 * k, 9);
    std::vector<float> few(33 * 3);
    nybl::Weights(ctx, describe(NYBL_Q4_0, 3, k, blocks.data())).matmul(33, x.data(), few.data());
    const nybl::Weights all(ctx, describe(NYBL_Q4_0, n, k, w.at()));
    for (const size_t m : {1, 33}) {
        std::vector<float> y = unwritten(m * n);
        all.matmul(m, x.data(), y.data());
        for (size_t i = 0; i < m; ++i) {
            CHECK(std::memcmp(&y[(i + 1) * n - 3], &few[i * 3], 12) == 0);
            CHECK(std::all_of(&y[i * n], &y[(i + 1) * n - 3], [](float value) { return value == 0.0f; }));
        }
    }
}

TEST_CASE("limits: more than 2^31 terms in one sum", "[.slow]") {
    // Zeros, and a one at the far end of both sides.
    const size_t k = (size_t{1} << 31) + 64;
    const size_t row = nybl::row_bytes(NYBL_Q8_0, k), block = nybl::row_bytes(NYBL_Q8_0, 32);
    const Sparse w(row), x(2 * k);
    std::memcpy(w.at(row - block), &kHalfOne, 2); // d
    *w.at(row - 1) = 1;                           // the last code
    std::memcpy(x.at(2 * (k - 1)), &kHalfOne, 2);
    const nybl::Context ctx = make_context(1);
    const nybl::Weights weights(ctx, describe(NYBL_Q8_0, 1, k, w.at(), 1, NYBL_STORAGE_ORIGINAL));
    auto args = nybl::make<nybl_matmul_args>();
    float y = -1;
    args.m = 1;
    args.x = x.at();
    args.x_type = NYBL_F16;
    args.y = &y;
    const nybl_status status = nybl_matmul(weights.get(), &args);
    // Kernels that gather rows into panels take more scratch than most machines have.
    INFO(nybl_last_error());
    CHECK((status == NYBL_OK || status == NYBL_OUT_OF_MEMORY));
    CHECK(y == (status == NYBL_OK ? 127.0f * (1.0f / 127.0f) : -1.0f));
    // A dot product of blocks needs none.
    const size_t w_row = nybl::row_bytes(NYBL_Q4_0, k);
    std::memcpy(w.at(w_row - 18), &kHalfOne, 2);
    std::memset(w.at(w_row - 16), 0x99, 16); // 32 codes of 9 - 8
    const Sparse a(row);
    std::memcpy(a.at(row - block), &kHalfOne, 2);
    std::memset(a.at(row - 32), 3, 32);
    nybl::check(nybl_vec_dot(NYBL_Q4_0, k, w.at(), a.at(), &y));
    CHECK(y == 96.0f);
}

TEST_CASE("limits: more than 2^31 outputs", "[.slow]") {
    const size_t n = (size_t{1} << 16) + 16, m = (size_t{1} << 15) + 1, k = 32;
    const nybl::Context ctx = make_context(2);
    const auto blocks = random_blocks(NYBL_Q4_0, n, k, 10);
    const auto x = random_floats(m * k, 11);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, n, k, blocks.data()));
    const Sparse y(2 * m * n);
    auto args = f32_args(m, x.data(), nullptr);
    args.y = y.at();
    args.y_type = NYBL_BF16;
    w.matmul(args);
    std::vector<uint16_t> row(n);
    for (const size_t i : {size_t{0}, m / 2, m - 1}) {
        args.m = 1;
        args.x = &x[i * k];
        args.y = row.data();
        w.matmul(args);
        CHECK(std::memcmp(y.at(2 * i * n), row.data(), 2 * n) == 0);
    }
}

TEST_CASE("limits: sizes that overflow are refused by everything that plans") {
    const nybl::Context ctx = make_context(2);
    const auto blocks = random_blocks(NYBL_Q4_0, 16, 32, 12);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, 16, 32, blocks.data()));
    const nybl::Weights experts(ctx, describe(NYBL_Q4_0, 8, 32, blocks.data(), 2));
    // Growing any one size does not make the answer smaller (but for a tile's worth), and what was refused
    // stays refused.
    const auto grows = [](const char *what, const auto &plan) {
        constexpr size_t kTile = 1 << 16;
        size_t before = 0;
        bool refused = false;
        for (int bit = 0; bit < 64; ++bit)
            for (const uint64_t size : {uint64_t{1} << bit, (uint64_t{2} << bit) - 1}) {
                size_t bytes = 0;
                const nybl_status status = plan(size, &bytes);
                INFO(what << " " << size << ": " << nybl_status_string(status) << ", " << bytes << " bytes");
                CHECK((status == NYBL_OK || status == NYBL_INVALID_ARGUMENT || status == NYBL_UNSUPPORTED));
                CHECK((!refused || status != NYBL_OK));
                CHECK((status != NYBL_OK || bytes + kTile >= before));
                refused = status != NYBL_OK;
                before = status == NYBL_OK ? bytes : before;
            }
        CHECK(refused);
    };
    for (const nybl_format type : {NYBL_F32, NYBL_F16})
        for (const nybl_compute compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
            auto args = nybl::make<nybl_matmul_args>();
            args.x_type = args.y_type = type;
            args.compute = compute;
            grows("m", [&](uint64_t size, size_t *bytes) {
                args.m = size;
                return nybl_matmul_scratch_bytes(w.get(), &args, 2, bytes);
            });
            args.m = uint64_t{1} << 30;
            grows("batch", [&](uint64_t size, size_t *bytes) {
                args.batch = size;
                return nybl_matmul_scratch_bytes(w.get(), &args, 2, bytes);
            });
            args.x_batch_stride = args.y_batch_stride =
                64 * (type == NYBL_F32 ? 4 : 2); // overlapping batches
            grows("overlapping batch", [&](uint64_t size, size_t *bytes) {
                args.batch = size;
                return nybl_matmul_scratch_bytes(w.get(), &args, 2, bytes);
            });
            auto id_args = nybl::make<nybl_matmul_id_args>();
            id_args.x_type = id_args.y_type = type;
            id_args.compute = compute;
            id_args.n_slots = 3;
            grows("tokens", [&](uint64_t size, size_t *bytes) {
                id_args.n_tokens = size;
                return nybl_matmul_id_scratch_bytes(experts.get(), &id_args, 2, bytes);
            });
            id_args.n_tokens = 3;
            grows("slots", [&](uint64_t size, size_t *bytes) {
                id_args.n_slots = size;
                return nybl_matmul_id_scratch_bytes(experts.get(), &id_args, 2, bytes);
            });
        }
    for (const nybl_format format : kFormats) {
        auto desc = describe(format, 1, 256, nullptr);
        grows("n", [&](uint64_t size, size_t *bytes) {
            desc.n = size;
            return nybl_weights_bytes(ctx.get(), &desc, bytes);
        });
        desc.n = 100;
        grows("experts", [&](uint64_t size, size_t *bytes) {
            desc.n_experts = size;
            return nybl_weights_bytes(ctx.get(), &desc, bytes);
        });
        desc.n_experts = 1;
        grows("k", [&](uint64_t size, size_t *bytes) {
            desc.k = size / 256 * 256;
            return nybl_weights_bytes(ctx.get(), &desc, bytes);
        });
        grows("row", [&](uint64_t size, size_t *bytes) {
            return nybl_row_bytes(NYBL_F32, size, bytes) == NYBL_OK
                       ? nybl_row_bytes(format, size / 256 * 256, bytes)
                       : NYBL_INVALID_ARGUMENT;
        });
        auto affine = nybl::make<nybl_affine_desc>();
        affine.param_type = NYBL_F32;
        grows("affine n", [&](uint64_t size, size_t *bytes) {
            const nybl_status status = nybl_affine_sizes(format, size, 256, &affine);
            *bytes = affine.scales_size;
            return status;
        });
    }
}

TEST_CASE("limits: strides that look negative are refused, or never used") {
    const nybl::Context ctx = make_context();
    const size_t n = 4, k = 64;
    const auto blocks = random_blocks(NYBL_Q4_0, n, k, 13);
    const auto x = random_floats(2 * k, 14);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, n, k, blocks.data()));
    std::vector<float> expected(n);
    w.matmul(1, x.data(), expected.data());
    const size_t row = nybl::row_bytes(NYBL_Q4_0, k);
    for (const size_t magnitude : {size_t{4}, 4 * n, 4 * k, row, row * n, size_t{1} << 31, size_t{1} << 62}) {
        const size_t stride = 0 - magnitude / 4 * 4;
        for (const size_t m : {1, 2}) {
            INFO("stride -" << magnitude << ", m = " << m);
            for (size_t nybl_matmul_args::*field :
                 {&nybl_matmul_args::x_stride, &nybl_matmul_args::y_stride, &nybl_matmul_args::x_batch_stride,
                  &nybl_matmul_args::y_batch_stride}) {
                const bool batches =
                    field == &nybl_matmul_args::x_batch_stride || field == &nybl_matmul_args::y_batch_stride;
                std::vector<float> y = unwritten(2 * n);
                auto args = f32_args(batches ? 1 : m, x.data(), y.data());
                args.batch = batches ? m : 1;
                args.*field = stride;
                const nybl_status status = nybl_matmul(w.get(), &args);
                // With one row (or one matrix) there is no second one for the stride to lead to.
                CHECK(status == (m == 1 ? NYBL_OK : NYBL_INVALID_ARGUMENT));
                y.resize(n);
                CHECK(bits(y) == bits(m == 1 ? expected : unwritten(n)));
            }
        }
        auto desc = describe(NYBL_Q4_0, n, k, blocks.data());
        nybl_weights *made = nullptr;
        desc.row_stride = stride;
        CHECK(nybl_weights_create(ctx.get(), &desc, &made) == NYBL_INVALID_ARGUMENT);
        desc.row_stride = 0;
        desc.n = 2;
        desc.n_experts = 2;
        desc.expert_stride = stride;
        CHECK(nybl_weights_create(ctx.get(), &desc, &made) == NYBL_INVALID_ARGUMENT);
        std::vector<uint8_t> back(n * row, 0xAB);
        CHECK(nybl_weights_unpack(w.get(), back.data(), stride) == NYBL_INVALID_ARGUMENT);
        CHECK(nybl_quantize(NYBL_Q4_0, 2, k, x.data(), stride, nullptr, back.data(), 0) ==
              NYBL_INVALID_ARGUMENT);
        CHECK(nybl_quantize(NYBL_Q4_0, 2, k, x.data(), 0, nullptr, back.data(), stride) ==
              NYBL_INVALID_ARGUMENT);
        CHECK(nybl_validate(NYBL_Q4_0, 2, k, blocks.data(), stride, 0) == NYBL_INVALID_ARGUMENT);
        CHECK(back == std::vector<uint8_t>(n * row, 0xAB));
    }
}

TEST_CASE("limits: weights, scratch and activations at every alignment that is allowed") {
    const size_t n = 19, k = 256;
    const nybl::Context ctx = make_context(2);
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q5_1, NYBL_IQ4_NL, NYBL_Q5_K, NYBL_Q6_K, NYBL_Q8_0}) {
        const auto blocks = random_blocks(format, n, k, 15);
        for (const size_t m : {1, 5, 40}) {
            const auto x = random_floats(m * k, 16);
            std::vector<float> expected(m * n);
            nybl::Weights(ctx, describe(format, n, k, blocks.data(), 1, NYBL_STORAGE_ORIGINAL))
                .matmul(m, x.data(), expected.data());
            for (size_t offset = 1; offset < 64; offset += offset < 9 ? 1 : 9) {
                INFO(format_name(format) << ", m = " << m << ", offset " << offset);
                std::vector<uint8_t> moved(blocks.size() + offset);
                std::copy(blocks.begin(), blocks.end(), moved.begin() + std::ptrdiff_t(offset));
                const nybl::Weights w(ctx, describe(format, n, k, &moved[offset], 1, NYBL_STORAGE_ORIGINAL));
                std::vector<float> far_x(m * k + offset), y = unwritten(m * n + 2 * offset);
                std::copy(x.begin(), x.end(), far_x.begin() + std::ptrdiff_t(offset));
                const auto args = f32_args(m, &far_x[offset], &y[offset]);
                size_t bytes = 0;
                nybl::check(nybl_matmul_scratch_bytes(w.get(), &args, 1, &bytes));
                std::vector<uint8_t> scratch(bytes + offset);
                nybl::check(
                    nybl_matmul_part(w.get(), &args, 0, 1, &scratch[offset], bytes, nullptr, nullptr));
                const auto first = y.begin() + std::ptrdiff_t(offset);
                CHECK(bits({first, first + std::ptrdiff_t(m * n)}) == bits(expected));
                CHECK(bits({y.begin(), first}) == bits(unwritten(offset)));
                CHECK(bits({y.end() - std::ptrdiff_t(offset), y.end()}) == bits(unwritten(offset)));
            }
        }
    }
    // Packed bytes have an alignment of their own, which is checked.
    const auto blocks = random_blocks(NYBL_Q4_0, n, k, 15);
    const auto desc = describe(NYBL_Q4_0, n, k, blocks.data());
    const nybl::Weights w(ctx, desc);
    const void *packed = nullptr;
    size_t bytes = 0;
    uint64_t id = 0;
    nybl::check(nybl_weights_packed(w.get(), &packed, &bytes, &id));
    for (const size_t offset : {1, 4, 16, 32}) {
        nybl_weights *made = nullptr;
        CHECK(nybl_weights_from_packed(ctx.get(), &desc, static_cast<const uint8_t *>(packed) + offset, bytes,
                                       id, &made) == NYBL_INVALID_ARGUMENT);
        CHECK(made == nullptr);
    }
}
