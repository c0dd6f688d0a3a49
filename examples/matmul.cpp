// The C++ layer: what each format costs in bytes and in accuracy on one matrix, and what a mistake looks
// like.
#include <nybl/nybl.hpp>

#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

namespace {

constexpr std::size_t kRows = 96, kColumns = 512;

std::vector<double> exact_product(const std::vector<float> &matrix, const std::vector<float> &x) {
    std::vector<double> y(kRows);
    for (std::size_t row = 0; row < kRows; row++)
        for (std::size_t k = 0; k < kColumns; k++)
            y[row] += double(matrix[row * kColumns + k]) * double(x[k]);
    return y;
}

// Relative root-mean-square error.
double error_of(const std::vector<float> &y, const std::vector<double> &exact) {
    double wrong = 0, all = 0;
    for (std::size_t row = 0; row < kRows; row++) {
        wrong += (double(y[row]) - exact[row]) * (double(y[row]) - exact[row]);
        all += exact[row] * exact[row];
    }
    return std::sqrt(wrong / all);
}

void show_formats() {
    std::vector<float> matrix(kRows * kColumns), x(kColumns);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float &value : matrix)
        value = normal(random);
    for (float &value : x)
        value = normal(random);
    const std::vector<double> exact = exact_product(matrix, x);

    const nybl::Context context;
    for (const nybl_format format : {NYBL_Q4_0, NYBL_Q4_1, NYBL_Q5_1, NYBL_Q4_K, NYBL_Q5_K, NYBL_IQ4_NL}) {
        const std::vector<std::uint8_t> blocks = nybl::quantize(format, kRows, kColumns, matrix.data());
        auto desc = nybl::make<nybl_weights_desc>();
        desc.format = format;
        desc.n = kRows;
        desc.k = kColumns;
        desc.data = blocks.data();
        const nybl::Weights weights(context, desc);

        std::vector<float> y(kRows);
        weights.matmul(1, x.data(), y.data());
        auto info = nybl::make<nybl_format_info>();
        nybl::check(nybl_format_get_info(format, &info));
        std::printf("%-7s %5.2f bits per weight, error %.4f, %s\n", info.name,
                    8.0 * info.block_bytes / info.block_size, error_of(y, exact), weights.explain(1).name);
    }
}

} // namespace

int main() {
    try {
        show_formats();
        nybl::row_bytes(NYBL_Q4_K, 100); // no multiple of its 256
    } catch (const nybl::Error &error) {
        std::printf("status %d: %s\n", error.status(), error.what());
        return error.status() == NYBL_INVALID_ARGUMENT ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    return 1;
}
