// Prints a checksum per operation and format, through the C API: on every processor the same text.
#include <nybl/nybl.hpp>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kN = 37, kK = 512, kM = 9, kExperts = 3;
constexpr nybl_format kFormats[] = {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_0, NYBL_Q5_1,   NYBL_Q8_0,
                                    NYBL_Q4_K, NYBL_Q5_K, NYBL_Q6_K, NYBL_IQ4_NL, NYBL_IQ4_NL_ROW};

std::vector<float> numbers(size_t count, uint64_t state) {
    std::vector<float> values(count);
    for (float &value : values) {
        value = -2.0f;
        for (int i = 0; i < 4; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            value += static_cast<float>(state >> 40) * 0x1p-24f;
        }
    }
    return values;
}

template <class T>
void print(const std::string &what, std::vector<T> values) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (T &value : values) {
        uint8_t bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof value);
        for (const uint8_t byte : bytes)
            hash = (hash ^ byte) * 0x100000001B3u;
    }
    std::printf("%-40s %016" PRIx64 "\n", what.c_str(), hash);
}

nybl_weights_desc describe(nybl_format format, const void *data, nybl_storage storage, uint64_t experts) {
    auto desc = nybl::make<nybl_weights_desc>();
    desc.format = format;
    desc.n = kN;
    desc.k = kK;
    desc.n_experts = experts;
    desc.data = data;
    desc.storage = storage;
    desc.validate = 1;
    return desc;
}

void products(const nybl::Context &ctx, nybl_format format, const std::string &name,
              const std::vector<uint8_t> &blocks, const std::vector<float> &x) {
    for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL}) {
        const auto desc = describe(format, blocks.data(), storage, 1);
        nybl_weights *made = nullptr;
        const nybl_status status = nybl_weights_create(ctx.get(), &desc, &made);
        if (status == NYBL_UNSUPPORTED)
            continue; // no packed layout
        nybl::check(status);
        const nybl::Weights w(made);
        for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32})
            for (const nybl_format type : {NYBL_F32, NYBL_F16, NYBL_BF16}) {
                std::vector<uint16_t> y(2 * kM * kN);
                auto args = nybl::make<nybl_matmul_args>();
                args.m = kM;
                args.x = x.data();
                args.y = y.data();
                args.y_type = type;
                args.compute = compute;
                w.matmul(args);
                print(name + (storage ? " original" : " packed") + (compute ? " f32" : " int8") + " y type " +
                          std::to_string(type),
                      y);
            }
    }
}

void experts(const nybl::Context &ctx, nybl_format format, const std::string &name,
             const std::vector<uint8_t> &blocks, const std::vector<float> &x) {
    const nybl::Weights w(ctx, describe(format, blocks.data(), NYBL_STORAGE_ORIGINAL, kExperts));
    const std::vector<int32_t> ids{0, 2, 1, 1, -1, 2, 0, 0, 1, 2, 2, -1};
    std::vector<float> y(ids.size() * kN);
    auto args = nybl::make<nybl_matmul_id_args>();
    args.n_tokens = 6;
    args.n_slots = 2;
    args.ids = ids.data();
    args.x = x.data();
    args.y = y.data();
    w.matmul_id(args);
    print(name + " experts", y);
}

int run() {
    auto desc = nybl::make<nybl_context_desc>();
    desc.n_threads = 3;
    const nybl::Context ctx(desc);
    const auto source = numbers(kExperts * kN * kK, 1), x = numbers(kM * kK, 2);
    for (const nybl_format format : kFormats) {
        auto info = nybl::make<nybl_format_info>();
        nybl::check(nybl_format_get_info(format, &info));
        const std::string name = info.name;
        const auto blocks = nybl::quantize(format, kExperts * kN, kK, source.data());
        print(name + " blocks", blocks);
        print(name + " values", nybl::dequantize(format, kExperts * kN, kK, blocks.data()));
        products(ctx, format, name, blocks, x);
        experts(ctx, format, name, blocks, x);
        const auto a = nybl::quantize(info.vec_dot_type, 1, kK, x.data());
        std::vector<float> dot(1);
        const nybl_status status = nybl_vec_dot(format, kK, blocks.data(), a.data(), dot.data());
        print(name + " vec_dot " + nybl_status_string(status), dot);
        auto bad = blocks;
        std::memset(&bad[7 * nybl::row_bytes(format, kK)] + (format == NYBL_Q6_K ? 208 : 0), 0x7E, 2);
        std::printf("%s\n", nybl_validate(format, kN, kK, bad.data(), 0, 0) == NYBL_OK ? "accepted"
                                                                                       : nybl_last_error());
    }
    std::fprintf(stderr, "kernels: %s\n", nybl_isa_string(ctx.isa()));
    return 0;
}

} // namespace

int main() {
    try {
        return run();
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
