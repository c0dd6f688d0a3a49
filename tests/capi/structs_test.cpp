// Structs that grow: shorter ones have defaults, longer ones are accepted where the unknown tail is zero.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstring>

using namespace capi_test;

namespace {

// The struct with room for members of a later version behind it.
template <class Struct>
struct Grown {
    Struct known{};
    unsigned char later[24] = {};
};

} // namespace

TEST_CASE("a longer struct is accepted while its unknown tail is zero") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, 4, 64, 1);
    Grown<nybl_weights_desc> desc;
    desc.known = describe(NYBL_Q4_0, 4, 64, blocks.data());
    desc.known.struct_size = sizeof desc;
    nybl_weights *made = nullptr;
    REQUIRE(nybl_weights_create(ctx.get(), &desc.known, &made) == NYBL_OK);
    const nybl::Weights w(made);

    const auto x = random_floats(64, 2);
    std::vector<float> y = unwritten(4), expected(4);
    w.matmul(1, x.data(), expected.data());
    Grown<nybl_matmul_args> args;
    args.known = f32_args(1, x.data(), y.data());
    args.known.struct_size = sizeof args;
    CHECK(nybl_matmul(w.get(), &args.known) == NYBL_OK);
    CHECK(bits(y) == bits(expected));
    forget(y);
    args.later[23] = 1;
    CHECK(nybl_matmul(w.get(), &args.known) == NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("newer"));
    CHECK(bits(y) == bits(unwritten(4)));

    // Output structs keep what the library does not know.
    Grown<nybl_kernel_info> info;
    info.known.struct_size = sizeof info;
    CHECK(nybl_matmul_explain(w.get(), 1, &info.known) == NYBL_OK);
    CHECK(info.known.struct_size == sizeof info);
    CHECK(info.known.name[0] != '\0');

    // An array of longer structs is walked with their size.
    Grown<nybl_matmul_args> several[2];
    std::vector<float> z = unwritten(8);
    for (size_t i = 0; i < 2; ++i) {
        several[i].known = f32_args(1, x.data(), z.data() + 4 * i);
        several[i].known.struct_size = sizeof several[i];
    }
    const nybl_weights *handles[2] = {w.get(), w.get()};
    CHECK(nybl_matmul_multi(2, handles, &several[0].known) == NYBL_OK);
    expected.insert(expected.end(), expected.begin(), expected.begin() + 4);
    CHECK(bits(z) == bits(expected));
}

TEST_CASE("a shorter struct has defaults for the rest, and nothing past its end is read or written") {
    const nybl::Context ctx = make_context();
    const auto blocks = random_blocks(NYBL_Q4_0, 4, 64, 1);
    const nybl::Weights w(ctx, describe(NYBL_Q4_0, 4, 64, blocks.data()));
    const auto x = random_floats(64, 2);
    std::vector<float> y(4), expected(4);
    w.matmul(1, x.data(), expected.data());
    auto args = f32_args(1, x.data(), y.data());
    args.struct_size = offsetof(nybl_matmul_args, bias);
    std::memset(reinterpret_cast<char *>(&args) + args.struct_size, 0x5a, sizeof args - args.struct_size);
    CHECK(nybl_matmul(w.get(), &args) == NYBL_OK);
    CHECK(bits(y) == bits(expected));

    auto stats = nybl::make<nybl_memory_stats>();
    std::memset(&stats, 0x5a, sizeof stats);
    const auto before = stats;
    stats.struct_size = offsetof(nybl_memory_stats, host_peak_bytes);
    CHECK(nybl_context_memory(ctx.get(), &stats) == NYBL_OK);
    CHECK(stats.struct_size == offsetof(nybl_memory_stats, host_peak_bytes));
    CHECK(stats.host_bytes == ctx.memory().host_bytes);
    CHECK(stats.host_peak_bytes == before.host_peak_bytes);
    CHECK(stats.device_bytes == before.device_bytes);

    // Nothing but the size: every member has its default.
    auto desc = nybl::make<nybl_context_desc>();
    desc.struct_size = sizeof(size_t);
    std::memset(reinterpret_cast<char *>(&desc) + sizeof(size_t), 0x5a, sizeof desc - sizeof(size_t));
    CHECK_NOTHROW(nybl::Context(desc));
    for (const size_t size : {size_t{0}, size_t{7}, SIZE_MAX, size_t{1} << 40}) {
        desc.struct_size = size;
        nybl_context *made = nullptr;
        CHECK(nybl_context_create(&desc, &made) == NYBL_INVALID_ARGUMENT);
        CHECK(last_error_has("struct_size"));
    }
}
