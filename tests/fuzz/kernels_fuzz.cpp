// Products of any shape, stride, type, storage and thread count, of any bytes: every instruction set and
// every way to call gives the bits of the scalar kernels, and touches nothing beside its buffers.
#include <vector>

#include "cpu/isa.h"
#include "cpu/vec_dot.h"
#include "fenced.h"
#include "fuzz/input.h"

using namespace nybl::fuzz;
using nybl::test::Fenced;

namespace {

constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1,   NYBL_Q8_0,
                                    NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW};
constexpr nybl_format kTypes[] = {NYBL_F32, NYBL_F16, NYBL_BF16};
constexpr uint32_t kThreads[] = {1, 2, 3, 5};
constexpr uint8_t kUntouched = 0xA5;

// One context per instruction set and thread count, kept for all inputs.
nybl_context *context(nybl_isa isa, size_t threads) {
    static nybl_context *contexts[NYBL_ISA_AMX + 1][std::size(kThreads)];
    nybl_context *&ctx = contexts[isa][threads];
    if (!ctx)
        ctx = open_context(kThreads[threads], isa);
    return ctx;
}

size_t element_bytes(nybl_format type) {
    return type == NYBL_F32 ? 4 : 2;
}

bool is_nan(const uint8_t *element, nybl_format type) {
    if (type == NYBL_F32) {
        uint32_t bits = 0;
        std::memcpy(&bits, element, 4);
        return (bits & 0x7fffffff) > 0x7f800000;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, element, 2);
    return (bits & 0x7fff) > (type == NYBL_F16 ? 0x7c00 : 0x7f80);
}

struct Problem {
    nybl_format format, x_type, y_type;
    uint64_t m, n, k, experts, slots, batch;
    size_t row_bytes, w_stride, x_stride, y_stride;
    nybl_compute compute;
    bool has_bias, shared_x;

    size_t x_rows() const { return experts > 1 ? m * (shared_x ? 1 : slots) : m * batch; }
    size_t y_rows() const { return experts > 1 ? m * slots : m * batch; }
    size_t y_row_bytes() const { return n * element_bytes(y_type); }
};

Problem read_problem(Input &input) {
    Problem p{};
    p.format = input.one_of(kFormats);
    auto info = make<nybl_format_info>();
    require(nybl_format_get_info(p.format, &info) == NYBL_OK, "a format is unknown");
    p.x_type = input.one_of(kTypes), p.y_type = input.one_of(kTypes);
    p.m = 1 + input.below(70), p.n = 1 + input.below(200);
    p.k = info.block_size * (1 + input.below(info.block_size == 256 ? 5 : 20));
    p.experts = input.flag() && input.flag() ? 2 + input.below(3) : 1;
    p.slots = 1 + input.below(3);
    p.batch = 1 + input.below(3);
    p.shared_x = input.flag();
    if (p.experts > 1)
        p.m = 1 + p.m % 16;
    require(nybl_row_bytes(p.format, p.k, &p.row_bytes) == NYBL_OK, "a row has no size");
    p.w_stride = p.row_bytes + input.below(7);
    p.x_stride = (p.k + input.below(4)) * element_bytes(p.x_type);
    p.y_stride = (p.n + input.below(4)) * element_bytes(p.y_type);
    p.compute = input.below(4) == 0 ? NYBL_COMPUTE_F32 : NYBL_COMPUTE_DEFAULT;
    p.has_bias = input.flag();
    return p;
}

struct Buffers {
    const Fenced w, x, bias;
    std::vector<int32_t> ids;

    Buffers(const Problem &p, Input &input, Fenced::Fence fence)
        : w((p.experts * p.n - 1) * p.w_stride + p.row_bytes, fence),
          x((p.x_rows() - 1) * p.x_stride + p.k * element_bytes(p.x_type), fence), bias(4 * p.n, fence),
          ids(p.m * p.slots) {
        for (int32_t &id : ids)
            id = static_cast<int32_t>(input.below(static_cast<uint32_t>(p.experts) + 1)) - 1;
        input.fill(bias.data(), bias.size() < 64 ? bias.size() : 64);
        // Ordinary numbers as far as they go, then whatever the input says.
        for (size_t i = 0; i < x.size() / element_bytes(p.x_type); ++i) {
            const float value = static_cast<float>(static_cast<int>(i * 2654435761u >> 20 & 255) - 128) / 64;
            uint32_t bits = 0;
            std::memcpy(&bits, &value, 4);
            const auto half = static_cast<uint16_t>(bits >> 16);
            std::memcpy(x.data() + i * element_bytes(p.x_type),
                        p.x_type == NYBL_F32 ? static_cast<const void *>(&bits) : &half,
                        element_bytes(p.x_type));
        }
        const size_t odd = input.below(256), at = input.below(1024);
        if (at + odd <= x.size())
            input.fill(x.data() + at, odd);
        input.fill(w.data(), w.size(), input.take<uint8_t>());
    }
};

// The product into y; y holds a pattern where nothing is to be written.
void multiply(const Problem &p, const Buffers &b, nybl_context *ctx, nybl_storage storage, uint32_t threads,
              const Fenced &y) {
    std::memset(y.data(), kUntouched, y.size());
    auto desc = make<nybl_weights_desc>();
    desc.format = p.format, desc.n = p.n, desc.k = p.k, desc.n_experts = p.experts;
    desc.data = b.w.data(), desc.row_stride = p.w_stride, desc.data_size = b.w.size(), desc.storage = storage;
    nybl_weights *w = nullptr;
    if (nybl_weights_create(ctx, &desc, &w) == NYBL_UNSUPPORTED) { // no packed layout
        desc.storage = NYBL_STORAGE_ORIGINAL;
        require(nybl_weights_create(ctx, &desc, &w) == NYBL_OK, "no weights");
    }
    nybl_status status = NYBL_OK;
    if (p.experts > 1) {
        auto args = make<nybl_matmul_id_args>();
        args.n_tokens = p.m, args.n_slots = p.slots, args.ids = b.ids.data();
        args.x = b.x.data(), args.x_type = p.x_type;
        args.x_slot_stride = p.shared_x ? 0 : p.x_stride;
        args.x_token_stride = p.x_stride * (p.shared_x ? 1 : p.slots);
        args.y = y.data(), args.y_type = p.y_type, args.y_slot_stride = p.y_stride;
        args.y_token_stride = p.y_stride * p.slots;
        args.compute = p.compute;
        status = nybl_matmul_id(w, &args);
    } else {
        auto args = make<nybl_matmul_args>();
        args.m = p.m, args.batch = p.batch;
        args.x = b.x.data(), args.x_type = p.x_type, args.x_stride = p.x_stride;
        args.y = y.data(), args.y_type = p.y_type, args.y_stride = p.y_stride;
        args.bias = p.has_bias ? b.bias.as<float>() : nullptr;
        args.compute = p.compute;
        args.n_threads = threads;
        status = nybl_matmul(w, &args);
    }
    require(status == NYBL_OK, "a right product fails");
    require(y.intact(), "a product wrote beside its output");
    nybl_weights_destroy(w);
}

void compare(const Problem &p, const Fenced &got, const Fenced &expected) {
    const size_t element = element_bytes(p.y_type);
    for (size_t row = 0; row < p.y_rows(); ++row) {
        const size_t begin = row * p.y_stride, end = row + 1 == p.y_rows() ? got.size() : begin + p.y_stride;
        for (size_t at = begin; at < end; at += element) {
            const uint8_t *a = got.data() + at, *b = expected.data() + at;
            if (at - begin >= p.y_row_bytes())
                require(a[0] == kUntouched, "a product wrote between its rows");
            else
                require(std::memcmp(a, b, element) == 0 || (is_nan(a, p.y_type) && is_nan(b, p.y_type)),
                        "other bits than the scalar kernels");
        }
    }
}

void check_vec_dot(Input &input) {
    const nybl_format format = input.one_of(kFormats);
    auto info = make<nybl_format_info>(), a_info = info;
    require(nybl_format_get_info(format, &info) == NYBL_OK, "a format is unknown");
    if (nybl_format_get_info(info.vec_dot_type, &a_info) != NYBL_OK)
        return;
    const uint64_t k = info.block_size * uint64_t{1 + input.below(20)};
    const Fenced::Fence fence = input.flag() ? Fenced::Fence::Before : Fenced::Fence::Behind;
    const Fenced w(k / info.block_size * info.block_bytes, fence),
        a(k / a_info.block_size * a_info.block_bytes, fence);
    input.fill(w.data(), w.size(), 11);
    input.fill(a.data(), a.size(), 12);
    const nybl_vec_dot_fn reference = nybl::cpu::find_vec_dot(format, NYBL_ISA_SCALAR);
    require((reference != nullptr) == (info.row_extra_bytes == 0), "which formats have a dot product");
    if (!reference)
        return;
    float expected = 0;
    reference(k, w.data(), a.data(), &expected);
    for (int isa = NYBL_ISA_AVX2; isa <= NYBL_ISA_AVX512_VNNI; ++isa) {
        if (nybl::cpu::effective_isa(static_cast<nybl_isa>(isa)) != isa)
            continue;
        float got = 0;
        nybl::cpu::find_vec_dot(format, static_cast<nybl_isa>(isa))(k, w.data(), a.data(), &got);
        require(std::memcmp(&got, &expected, 4) == 0 || (got != got && expected != expected),
                "a dot product has other bits than the reference");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input input(data, size);
    const uint8_t mode = input.take<uint8_t>();
    if (mode % 8 == 0) {
        check_vec_dot(input);
        return 0;
    }
    const Problem p = read_problem(input);
    const size_t threads = input.below(std::size(kThreads));
    const uint32_t limit = input.below(4);
    const nybl_storage storage = input.flag() ? NYBL_STORAGE_ORIGINAL : NYBL_STORAGE_PACKED;
    const Fenced::Fence fence = mode & 64 ? Fenced::Fence::Before : Fenced::Fence::Behind;
    const Buffers buffers(p, input, fence);
    const size_t y_bytes = (p.y_rows() - 1) * p.y_stride + p.y_row_bytes();
    const Fenced expected(y_bytes), got(y_bytes, fence);
    multiply(p, buffers, context(NYBL_ISA_SCALAR, 0), NYBL_STORAGE_ORIGINAL, 0, expected);
    for (int isa = NYBL_ISA_SCALAR; isa <= NYBL_ISA_AMX; ++isa) {
        nybl_context *ctx = context(static_cast<nybl_isa>(isa), threads);
        if (nybl_context_isa(ctx) != isa)
            continue;
        multiply(p, buffers, ctx, storage, limit, got);
        compare(p, got, expected);
    }
    require(buffers.w.intact() && buffers.x.intact() && buffers.bias.intact(),
            "a product wrote to its inputs");
    return 0;
}
