// Files of packed weights that are damaged, foreign or made to deceive: refused in words, and never read
// past.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstring>
#include <functional>

#include "base/checksum.h"
#include "base/pack_format.h"
#include "capi/support.h"
#include "tools/support.h"

using namespace tools_test;
using capi_test::last_error_has;
using nybl::pack::Header;
using nybl::pack::Record;

namespace {

template <class T>
T get(const std::vector<uint8_t> &bytes, size_t at) {
    T value;
    std::memcpy(&value, &bytes[at], sizeof value);
    return value;
}

template <class T>
void set(std::vector<uint8_t> &bytes, size_t at, T value) {
    std::memcpy(&bytes[at], &value, sizeof value);
}

// Opens bytes as a file and, where that works, reads every byte of every tensor as a caller would.
nybl_status open_bytes(const Folder &folder, const std::vector<uint8_t> &bytes, bool verify = false) {
    const std::string path = folder.file("changed.nybl");
    write_file(path, bytes);
    const nybl::Context ctx = capi_test::make_context();
    auto options = nybl::make<nybl_pack_options>();
    options.verify = verify;
    nybl_pack *file = nullptr;
    const nybl_status status = nybl_pack_open(ctx.get(), path.c_str(), &options, &file);
    if (status != NYBL_OK) {
        CHECK(file == nullptr);
        CHECK(last_error_has("changed.nybl: "));
        return status;
    }
    uint64_t count = 0, sum = 0;
    nybl::check(nybl_pack_count(file, &count));
    for (uint64_t i = 0; i < count; ++i) {
        auto tensor = nybl::make<nybl_pack_tensor>();
        nybl::check(nybl_pack_at(file, i, &tensor));
        sum += std::strlen(tensor.name) + nybl::checksum(tensor.data, tensor.data_size);
        nybl_weights *w = nullptr;
        if (nybl_pack_weights(file, tensor.name, &w) == NYBL_OK && tensor.n_experts == 1 && tensor.k < 4096 &&
            tensor.n < 4096) {
            const std::vector<float> x(tensor.k, 1.f);
            std::vector<float> y(tensor.n);
            const nybl_matmul_args args = capi_test::f32_args(1, x.data(), y.data());
            nybl::check(nybl_matmul(w, &args));
        }
        nybl_weights_destroy(w);
    }
    nybl_pack_close(file);
    CHECK(sum != 1); // keeps the reads
    return NYBL_OK;
}

// As a deceiver would: every checksum made right again.
void reseal(std::vector<uint8_t> &bytes) {
    auto header = get<Header>(bytes, 0);
    for (nybl::pack::Section *section : {&header.metadata, &header.table})
        if (section->offset <= bytes.size() && section->bytes <= bytes.size() - section->offset)
            section->checksum = nybl::checksum(&bytes[section->offset], section->bytes);
    header.checksum = nybl::checksum(&header, offsetof(Header, checksum));
    set(bytes, 0, header);
}

struct Fixture {
    Folder folder;
    std::vector<uint8_t> good = read_file(pack(folder, sample_model().bytes()));
    Header header = get<Header>(good, 0);

    size_t record_at(size_t i) const { return header.table.offset + i * sizeof(Record); }
};

} // namespace

TEST_CASE("every bit of header, table and metadata is under a checksum") {
    const Fixture fixture;
    REQUIRE(open_bytes(fixture.folder, fixture.good) == NYBL_OK);
    const auto flip_all = [&](size_t begin, size_t size, size_t step) {
        for (size_t at = begin; at < begin + size; at += step) {
            auto bytes = fixture.good;
            bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1 << at % 8);
            INFO("byte " << at);
            const nybl_status status = open_bytes(fixture.folder, bytes);
            CHECK((status == NYBL_INVALID_DATA || status == NYBL_UNSUPPORTED));
        }
    };
    flip_all(0, sizeof(Header), 1);
    flip_all(fixture.header.table.offset, fixture.header.table.bytes, 7);
    flip_all(fixture.header.metadata.offset, fixture.header.metadata.bytes, 7);
}

TEST_CASE("a file that is cut short or longer than it was is refused") {
    const Fixture fixture;
    for (size_t size = 0; size < fixture.good.size(); size += 1 + fixture.good.size() / 97) {
        const std::vector<uint8_t> bytes(fixture.good.begin(),
                                         fixture.good.begin() + static_cast<ptrdiff_t>(size));
        CHECK(open_bytes(fixture.folder, bytes) == NYBL_INVALID_DATA);
    }
    auto bytes = fixture.good;
    bytes.pop_back();
    CHECK(open_bytes(fixture.folder, bytes) == NYBL_INVALID_DATA);
    CHECK(last_error_has("cut short"));
    bytes.resize(fixture.good.size() + 1);
    CHECK(open_bytes(fixture.folder, bytes) == NYBL_INVALID_DATA);
    CHECK(last_error_has("grown"));
}

TEST_CASE("hostile values in any field, with checksums made right, are refused or harmless") {
    const Fixture fixture;
    const uint64_t hostile[] = {0,
                                1,
                                63,
                                64,
                                65,
                                0x7fffffff,
                                0xffffffff,
                                fixture.good.size() - 1,
                                fixture.good.size(),
                                1ull << 62,
                                1ull << 63,
                                ~0ull - 63,
                                ~0ull};
    const auto try_all = [&](size_t begin, size_t end) {
        for (size_t at = begin; at + 8 <= end; at += 8)
            for (const uint64_t value : hostile) {
                auto bytes = fixture.good;
                set(bytes, at, value);
                reseal(bytes);
                INFO("byte " << at << ", value " << value);
                const nybl_status status = open_bytes(fixture.folder, bytes);
                CHECK((status == NYBL_OK || status == NYBL_INVALID_DATA || status == NYBL_UNSUPPORTED ||
                       status == NYBL_INVALID_ARGUMENT));
            }
    };
    try_all(0, offsetof(Header, checksum));
    try_all(fixture.record_at(0), fixture.record_at(2));
}

TEST_CASE("what a deceiver may try is refused by name") {
    const Fixture fixture;
    struct Attempt {
        const char *what, *words;
        nybl_status status;
        std::function<void(std::vector<uint8_t> &)> change;
    };
    const size_t first = fixture.record_at(0), second = fixture.record_at(1);
    const auto field = [](size_t record, size_t offset) { return record + offset; };
    const Attempt attempts[] = {
        {"another file", "does not start with", NYBL_INVALID_DATA, [](auto &b) { b[0] = 'G'; }},
        {"another version of the file format", "pack the model again", NYBL_UNSUPPORTED,
         [](auto &b) { set(b, offsetof(Header, version), uint32_t{2}); }},
        {"another layout", "pack the model again", NYBL_UNSUPPORTED,
         [&](auto &b) {
             set(b, field(first, offsetof(Record, layout_id)),
                 get<uint64_t>(b, field(first, offsetof(Record, layout_id))) + 0x10000);
         }},
        {"data outside the file", "not inside the file", NYBL_INVALID_DATA,
         [&](auto &b) { set(b, field(first, 0), uint64_t{b.size() / 64 * 64}); }},
        {"data off its alignment", "not aligned", NYBL_INVALID_DATA,
         [&](auto &b) { set(b, field(first, 0), get<uint64_t>(b, first) + 1); }},
        {"more rows than bytes", "where its shape needs", NYBL_INVALID_DATA,
         [&](auto &b) { set(b, field(first, offsetof(Record, n)), uint64_t{1000}); }},
        {"names out of order", "ascending order", NYBL_INVALID_DATA,
         [&](auto &b) {
             set(b, field(second, offsetof(Record, name_offset)),
                 get<uint64_t>(b, field(first, offsetof(Record, name_offset))));
         }},
        {"a name outside the table", "not inside the table", NYBL_INVALID_DATA,
         [&](auto &b) { set(b, field(first, offsetof(Record, name_offset)), uint64_t{1} << 40); }},
        {"a name without an end", "not inside the table", NYBL_INVALID_DATA,
         [&](auto &b) { b[fixture.header.table.offset + fixture.header.table.bytes - 1] = 'x'; }},
        {"more tensors than the table holds", "do not fit", NYBL_INVALID_DATA,
         [](auto &b) { set(b, offsetof(Header, count), uint64_t{1} << 60); }},
    };
    for (const Attempt &attempt : attempts) {
        INFO(attempt.what);
        auto bytes = fixture.good;
        attempt.change(bytes);
        reseal(bytes);
        CHECK(open_bytes(fixture.folder, bytes) == attempt.status);
        INFO(nybl_last_error());
        CHECK(last_error_has(attempt.words));
    }
}

TEST_CASE("verify finds a damaged byte in any tensor, and names the tensor") {
    const Fixture fixture;
    CHECK(open_bytes(fixture.folder, fixture.good, true) == NYBL_OK);
    for (size_t i = 0; i < fixture.header.count; ++i) {
        const auto record = get<Record>(fixture.good, fixture.record_at(i));
        auto bytes = fixture.good;
        bytes[record.data.offset + record.data.bytes / 2] ^= 0x10;
        CHECK(open_bytes(fixture.folder, bytes) == NYBL_OK);
        CHECK(open_bytes(fixture.folder, bytes, true) == NYBL_INVALID_DATA);
        CHECK(last_error_has("checksum differs"));
    }
}

TEST_CASE("verify can be stopped, and files that cannot be mapped say why") {
    const Fixture fixture;
    const nybl::Context ctx = capi_test::make_context();
    auto options = nybl::make<nybl_pack_options>();
    options.verify = 1;
    options.progress = [](void *, uint64_t, uint64_t) { return 1; };
    nybl_pack *file = nullptr;
    CHECK(nybl_pack_open(ctx.get(), fixture.folder.file("model.nybl").c_str(), &options, &file) ==
          NYBL_CANCELLED);
    CHECK(nybl_pack_open(ctx.get(), fixture.folder.file("missing").c_str(), nullptr, &file) ==
          NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("No such file"));
    CHECK(nybl_pack_open(ctx.get(), fixture.folder.file("").c_str(), nullptr, &file) ==
          NYBL_INVALID_ARGUMENT);
    CHECK(last_error_has("not a regular file"));
    CHECK(file == nullptr);
}
