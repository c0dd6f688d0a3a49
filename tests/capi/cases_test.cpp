// Cases from the field that no other test names: sums beyond f16, tiny activations, memory while packing.
#include "capi/support.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace capi_test;

namespace {

constexpr nybl_isa kIsas[] = {NYBL_ISA_SCALAR, NYBL_ISA_AVX2, NYBL_ISA_AVX_VNNI, NYBL_ISA_AVX512_VNNI,
                              NYBL_ISA_AMX};
constexpr uint16_t kHalfOne = 0x3C00;

// One row of Q4_1 or Q5_1: scale 0, every minimum `minimum`, any codes.
std::vector<uint8_t> row_of_minimums(nybl_format format, uint16_t minimum) {
    std::vector<uint8_t> row(nybl::row_bytes(format, 32), 0x5A);
    row[0] = row[1] = 0;
    row[2] = uint8_t(minimum);
    row[3] = uint8_t(minimum >> 8);
    return row;
}

// One row of Q4_K or Q5_K with K = 256: d 0, dmin 1, every 6-bit minimum 1.
std::vector<uint8_t> row_of_k_minimums(nybl_format format) {
    std::vector<uint8_t> row(nybl::row_bytes(format, 256), 0x5A);
    row[0] = row[1] = 0;
    row[2] = uint8_t(kHalfOne);
    row[3] = uint8_t(kHalfOne >> 8);
    std::fill_n(&row[4], 4, uint8_t{1});     // scales of groups 0 .. 3, which d makes 0
    std::fill_n(&row[8], 4, uint8_t{1});     // their minimums
    std::fill_n(&row[12], 4, uint8_t{0x11}); // both of groups 4 .. 7
    return row;
}

// The product of one row of weights with m rows of `x`, on one instruction set and in one storage.
std::vector<float> column(nybl_format format, const std::vector<uint8_t> &row, size_t m,
                          const std::vector<float> &x, nybl_isa isa, nybl_storage storage) {
    const nybl::Weights w(make_context(1, isa), describe(format, 1, x.size(), row.data(), 1, storage));
    std::vector<float> many, y = unwritten(m);
    for (size_t i = 0; i < m; ++i)
        many.insert(many.end(), x.begin(), x.end());
    w.matmul(m, many.data(), y.data());
    return y;
}

void check_everywhere(nybl_format format, const std::vector<uint8_t> &row, const std::vector<float> &x,
                      float expected) {
    for (const nybl_isa isa : kIsas) // one that is missing here runs as the best below it
        for (const auto storage : {NYBL_STORAGE_PACKED, NYBL_STORAGE_ORIGINAL})
            for (const size_t m : {1, 7, 40}) {
                INFO(format_name(format)
                     << ", " << nybl_isa_string(isa) << ", storage " << storage << ", m = " << m);
                CHECK(column(format, row, m, x, isa, storage) == std::vector<float>(m, expected));
            }
}

} // namespace

TEST_CASE("C1: sums of activations beyond f16 are right in every product") {
    const std::vector<float> x(32, 2048.0f);
    for (const nybl_format format : {NYBL_Q4_1, NYBL_Q5_1}) {
        check_everywhere(format, row_of_minimums(format, kHalfOne), x, 65536.0f);
        check_everywhere(format, row_of_minimums(format, 0), x, 0.0f);
    }
    const std::vector<float> long_x(256, 2048.0f);
    for (const nybl_format format : {NYBL_Q4_K, NYBL_Q5_K})
        check_everywhere(format, row_of_k_minimums(format), long_x, -524288.0f);
}

TEST_CASE("C1: a block's sum that its f16 field cannot hold is right in vec_dot") {
    const std::vector<float> x(32, 2048.0f);
    const auto a = nybl::quantize(NYBL_Q8_1, 1, 32, x.data());
    for (const nybl_format format : {NYBL_Q4_1, NYBL_Q5_1})
        for (const uint16_t minimum : {kHalfOne, uint16_t{0}}) {
            float dot = -1;
            nybl::check(nybl_vec_dot(format, 32, row_of_minimums(format, minimum).data(), a.data(), &dot));
            INFO(format_name(format) << ": " << dot);
            CHECK(std::fabs(dot - (minimum ? 65536.0f : 0.0f)) <= (minimum ? 64.0f : 0.0f)); // d is an f16
        }
}

TEST_CASE("C2: activations whose scale has no finite reciprocal give finite products") {
    const size_t k = 256, n = 3;
    for (const float tiny : {3.7e-37f, -3.7e-37f, 4e-37f, 1e-45f})
        for (const size_t place : {0, 31, 200}) {
            std::vector<float> x(k, 0.0f);
            x[place] = tiny;
            for (const nybl_format format : kFormats) {
                const auto blocks = random_blocks(format, n, k, 9);
                float largest = 0;
                for (const float weight : nybl::dequantize(format, n, k, blocks.data()))
                    largest = std::max(largest, std::fabs(weight));
                for (const nybl_isa isa : kIsas)
                    for (const auto compute : {NYBL_COMPUTE_DEFAULT, NYBL_COMPUTE_F32}) {
                        INFO(format_name(format) << ", " << nybl_isa_string(isa) << ", x[" << place
                                                 << "] = " << tiny << ", compute " << compute);
                        const nybl::Weights w(make_context(1, isa), describe(format, n, k, blocks.data(), 1,
                                                                             NYBL_STORAGE_ORIGINAL));
                        std::vector<float> y = unwritten(n);
                        auto args = f32_args(1, x.data(), y.data());
                        args.compute = compute;
                        w.matmul(args);
                        for (const float value : y)
                            CHECK(std::fabs(value) <= std::fabs(tiny) * 256 * largest); // false for a NaN
                    }
            }
        }
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true; // their own memory hides the library's
#else
constexpr bool kSanitized = false;
#endif

// Private memory of this process in KiB, in the line of /proc/self/status.
size_t anonymous_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "RssAnon:") {
            size_t kib = 0;
            status >> kib;
            return kib;
        }
    return 0;
}

// The highest that anonymous_kib() gets while this lives.
class AnonymousPeak {
  public:
    AnonymousPeak()
        : watcher_([this] {
              while (!stop_) {
                  peak_ = std::max(peak_.load(), anonymous_kib());
                  std::this_thread::sleep_for(std::chrono::microseconds(500));
              }
          }) {}
    size_t kib() {
        stop_ = true;
        watcher_.join();
        return std::max(peak_.load(), anonymous_kib());
    }

  private:
    std::atomic<bool> stop_{false};
    std::atomic<size_t> peak_{0};
    std::thread watcher_;
};

// A file of zeros, mapped; it takes no room on the disk.
class MappedZeros {
  public:
    explicit MappedZeros(size_t bytes) : bytes_(bytes), file_(std::tmpfile(), std::fclose) {
        REQUIRE(file_ != nullptr);
        REQUIRE(ftruncate(fileno(file_.get()), off_t(bytes)) == 0);
        data_ = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fileno(file_.get()), 0);
        REQUIRE(data_ != MAP_FAILED);
    }
    ~MappedZeros() { munmap(data_, bytes_); }
    const void *data() const { return data_; }

  private:
    size_t bytes_;
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> file_;
    void *data_ = MAP_FAILED;
};

// Packs a mapped Q4_K tensor of about so many bytes and holds memory against the packed size.
void check_packing_memory(size_t bytes) {
    const size_t k = 4096, row = nybl::row_bytes(NYBL_Q4_K, k), n = bytes / row;
    const MappedZeros file(n * row);
    const nybl::Context ctx = make_context(2);
    auto desc = describe(NYBL_Q4_K, n, k, file.data());
    desc.validate = 1;
    size_t packed = 0;
    nybl::check(nybl_weights_bytes(ctx.get(), &desc, &packed));
    CHECK(packed <= n * row + n * row / 100);
    constexpr size_t kSlackKib = 2048; // a panel per thread, the threads themselves, the watcher
    const size_t before = anonymous_kib();
    AnonymousPeak peak;
    const nybl::Weights w(ctx, desc);
    const size_t kib = peak.kib();
    INFO(before << " KiB before, " << kib << " KiB at most, " << packed / 1024 << " KiB packed");
    CHECK((kSanitized || kib <= before + packed / 1024 + kSlackKib));
    CHECK(ctx.memory().host_peak_bytes <= packed + kSlackKib * 1024);
}

} // namespace

TEST_CASE("C19: packing a mapped tensor takes the packed size and little more") {
    check_packing_memory(size_t{48} << 20);
}

TEST_CASE("C19: packing a mapped tensor of 512 MiB takes the packed size and little more", "[.slow]") {
    check_packing_memory(size_t{512} << 20);
}
