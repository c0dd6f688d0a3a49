// vec_dot: the block-level dot product, row after row of original blocks, as an engine's own loop calls it.
#include "cases.h"

#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>

namespace nybl::bench {
namespace {

struct VecDot {
    nybl_vec_dot_fn dot = nullptr;
    std::vector<uint8_t> activation;
    std::vector<float> y;
    std::vector<const uint8_t *> matrices;
    size_t next = 0, stride = 0;
    uint64_t n, k;

    nybl_status run() {
        const uint8_t *matrix = matrices[next];
        for (uint64_t row = 0; row < n; ++row)
            dot(k, matrix + row * stride, activation.data(), &y[row]);
        next = next + 1 < matrices.size() ? next + 1 : 0;
        return NYBL_OK;
    }
};

// The function has no context whose max_isa could say which instruction set the case is about; what the
// library has instead is the environment, which it reads when the function is asked for.
nybl_vec_dot_fn find_dot(const Case &of) {
    constexpr const char *kCap = "NYBL_MAX_ISA";
    std::optional<std::string> before;
    if (const char *value = std::getenv(kCap))
        before = value;
    setenv(kCap, of.isa_name().c_str(), 1);
    nybl_vec_dot_fn dot = nullptr;
    const nybl_status status = nybl_get_vec_dot(of.format, &dot);
    before ? setenv(kCap, before->c_str(), 1) : unsetenv(kCap);
    require(status, "nybl_get_vec_dot");
    return dot;
}

// Its sums run in lanes of f32, so f64 arithmetic on the same blocks agrees to rounding only; that all
// instruction sets give the same bits is the tests' matter.
std::string verify(const Case &of, nybl_format activation_format, const Source &source, const VecDot &work) {
    std::vector<float> a(of.k), w(of.k);
    require(nybl_dequantize(activation_format, 1, of.k, work.activation.data(), 0, a.data(), 0),
            "nybl_dequantize");
    for (const uint64_t row : sampled(of.n, 48)) {
        require(nybl_dequantize(of.format, 1, of.k, &source.tensors[0][row * work.stride], 0, w.data(), 0),
                "nybl_dequantize");
        double exact = 0, size = 0;
        for (uint64_t e = 0; e < of.k; ++e) {
            exact += static_cast<double>(w[e]) * static_cast<double>(a[e]);
            size += std::fabs(static_cast<double>(w[e]) * static_cast<double>(a[e]));
        }
        // Scales, minima and block sums are held in f16 at the coarsest.
        if (!(std::fabs(work.y[row] - exact) <= 1e-3 * size))
            return fmt::format("row {}: {} where f64 arithmetic gives {}", row, work.y[row], exact);
    }
    return {};
}

} // namespace

void prepare_vec_dot(Shared &shared, const Case &of, Workload &workload) {
    const std::shared_ptr<const Source> source = shared.source(of);
    const nybl_format activation_format = format_info(of.format).vec_dot_type;
    auto work = std::make_shared<VecDot>();
    work->dot = find_dot(of);
    work->n = of.n;
    work->k = of.k;
    work->y.resize(of.n);
    work->stride = row_bytes(of.format, of.k);
    work->activation.resize(row_bytes(activation_format, of.k));
    nybl_codec_options plain{};
    plain.struct_size = sizeof plain;
    plain.level = NYBL_LEVEL_PLAIN;
    require(nybl_quantize_with(&plain, activation_format, 1, of.k, normal_values(of.k, of.k).data(), 0,
                               nullptr, work->activation.data(), 0),
            "nybl_quantize_with of the activations");
    for (const std::span<const uint8_t> copy : shared.pool.originals(source, of.hot ? 1 : 0))
        work->matrices.push_back(copy.data());
    workload.call = [work] { return work->run(); };
    workload.first_call("nybl_vec_dot_fn");
    workload.mismatch = verify(of, activation_format, *source, *work);
    workload.kernel =
        fmt::format("vec_dot {} x {}", format_info(of.format).name, format_info(activation_format).name);
    workload.bytes = static_cast<double>(of.n * work->stride);
    workload.flops = 2.0 * static_cast<double>(of.n * of.k);
}

} // namespace nybl::bench
