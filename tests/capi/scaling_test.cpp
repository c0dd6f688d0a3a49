// Case C20: time grows smoothly with M and N. Times are the least of several repetitions, on cached weights
// and one thread; a pair that looks wrong is measured again, since another process may have been in the way.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "support.h"

namespace {

using namespace capi_test;

constexpr size_t kMaxM = 64;
constexpr int kTries = 20;

double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Timer {
  public:
    Timer(nybl_format format, size_t n, size_t k)
        : w_(random_blocks(format, n, k, 1)), weights_(ctx_, describe(format, n, k, w_.data())), n_(n),
          x_(random_floats(kMaxM * k, 2)) {}

    double seconds(size_t m) const {
        const nybl_matmul_args args = f32_args(m, x_.data(), const_cast<float *>(y_.data()));
        double least = 1;
        for (int i = 0; i < 9; ++i) {
            const double start = thread_seconds();
            weights_.matmul(args);
            least = std::min(least, thread_seconds() - start);
        }
        return least;
    }
    size_t n() const { return n_; }

  private:
    nybl::Context ctx_ = make_context(1);
    std::vector<uint8_t> w_;
    nybl::Weights weights_;
    size_t n_;
    std::vector<float> x_;
    std::vector<float> y_ = std::vector<float>(kMaxM * n_);
};

template <class Holds>
bool eventually(const Holds &holds) {
    for (int i = 0; i < kTries; ++i)
        if (holds())
            return true;
    return false;
}

TEST_CASE("C20: no cliff from M to M + 1") {
    for (const nybl_format format : {NYBL_Q4_1, NYBL_Q4_K, NYBL_IQ4_NL}) {
        const Timer timer(format, 1024, 1024);
        for (size_t m = 1; m <= 33; ++m) {
            INFO(format_name(format) << " M " << m);
            CHECK(eventually(
                [&] { return timer.seconds(m + 1) / double(m + 1) <= 1.15 * timer.seconds(m) / double(m); }));
        }
    }
}

TEST_CASE("C20: no cliff at odd N") {
    const Timer even(NYBL_Q4_K, 4096, 4096);
    for (const size_t n : {4097, 4032, 192}) {
        const Timer odd(NYBL_Q4_K, n, 4096);
        for (const size_t m : {1, 4, 16}) {
            INFO("N " << n << " M " << m);
            CHECK(eventually(
                [&] { return odd.seconds(m) / double(n) <= 1.3 * even.seconds(m) / double(even.n()); }));
        }
    }
}

} // namespace
