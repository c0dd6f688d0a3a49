// The stand-in's matmul: what it accepts, and the product itself.
#include <oneapi/dnnl/dnnl.hpp>

#include "gpu/formula.h"

namespace dnnl {
namespace {

using Type = memory::data_type;

bool is_code(Type type) {
    return type == Type::s4 || type == Type::u4 || type == Type::u8 || type == Type::s8;
}
bool is_half(Type type) {
    return type == Type::f16 || type == Type::bf16;
}

double element(Type type, const uint8_t *data, size_t at) {
    switch (type) {
    case Type::s4:
    case Type::u4: {
        const int code = data[at / 2] >> (at % 2 ? 4 : 0) & 15;
        return type == Type::s4 && code > 7 ? code - 16 : code;
    }
    case Type::u8:
        return data[at];
    case Type::s8:
        return static_cast<int8_t>(data[at]);
    case Type::f32: {
        float value;
        std::memcpy(&value, data + 4 * at, 4);
        return static_cast<double>(value);
    }
    default: {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * at, 2);
        if (type == Type::f16)
            return nybl::test::f16_value(bits);
        const uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return static_cast<double>(value);
    }
    }
}

struct View {
    explicit View(const memory &mem)
        : type(mem.get_desc().type), steps(mem.get_desc().steps),
          data(static_cast<const uint8_t *>(mem.get_data_handle())) {}
    double operator()(size_t i, size_t j) const {
        return element(type, data, i * static_cast<size_t>(steps[0]) + j * static_cast<size_t>(steps[1]));
    }
    Type type;
    memory::dims steps;
    const uint8_t *data;
};

bool is_row_major(const memory::desc &desc) {
    return desc.sizes.size() == 2 && desc.steps == memory::dims{desc.sizes[1], 1};
}

} // namespace

matmul::primitive_desc::primitive_desc(const engine &on, const memory::desc &source,
                                       const memory::desc &weights, const memory::desc &target,
                                       const primitive_attr &how)
    : x(source), w(weights), y(target), attr(how) {
    fake::count_call();
    fake::require(is_row_major(x) && is_row_major(y) && w.sizes.size() == 2 && x.sizes[1] == w.sizes[0] &&
                      x.sizes[0] == y.sizes[0] && w.sizes[1] == y.sizes[1],
                  "sizes of a product do not fit");
    fake::require(y.type == Type::f32, "outputs are f32 here");
    fake::require(how.scratchpad == scratchpad_mode::user, "the scratchpad is the caller's");
    if (!is_code(w.type)) { // sums times zero points
        fake::require(how.ops.sum && how.scales == Type::undef && how.zeros == Type::undef &&
                          x.type == w.type && (x.type == Type::f16 || x.type == Type::f32),
                      "a plain product of one type is added to the output here");
    } else {
        fake::require(!how.ops.sum && how.scales != Type::undef && w.steps == memory::dims{1, w.sizes[0]} &&
                          w.sizes[0] % 32 == 0,
                      "codes [N, K] with scales");
        fake::require(how.math_of_int &&
                          how.math == (x.type == Type::f16 ? fpmath_mode::f16 : fpmath_mode::bf16) &&
                          is_half(x.type),
                      "f16 or bf16 activations, and codes as such numbers");
    }
    if (how.zeros != Type::undef) {
        fake::require(how.mode == quantization_mode::static_sbzp, "zero points that are no integers");
        fake::require(is_half(how.zeros) && how.zeros == how.scales && w.type != Type::s8 && w.sizes[0] >= 64,
                      "static_sbzp: two groups or more, zero points of the scales' type");
        if (on.index != 0)
            throw error(dnnl_unimplemented, "static_sbzp needs a matrix engine");
    }
    name = on.index == 2 ? "ocl:ref:any" : "jit:double";
}

void matmul::execute(const stream &, const std::unordered_map<int, memory> &arguments) const {
    fake::count_call();
    const primitive_desc &of = desc_;
    const auto take = [&](int which, const memory::desc &as) {
        const auto found = arguments.find(which);
        fake::require(found != arguments.end(), "an argument is missing");
        fake::require(found->second.get_desc() == as,
                      "an argument is described otherwise than the primitive");
        return found->second;
    };
    const bool has_scales = of.attr.scales != Type::undef, has_zeros = of.attr.zeros != Type::undef;
    fake::require(arguments.size() == 4u + has_scales + has_zeros,
                  "arguments that the primitive does not take");
    const memory x = take(DNNL_ARG_SRC, of.x), w = take(DNNL_ARG_WEIGHTS, of.w), y = take(DNNL_ARG_DST, of.y);
    take(DNNL_ARG_SCRATCHPAD, of.scratchpad_desc());
    const memory::dim group = of.attr.group, groups = of.w.sizes[0] / group, n = of.w.sizes[1];
    const auto params = [&](int which, Type type) {
        return type == Type::undef ? w
                                   : take(which | DNNL_ARG_WEIGHTS, memory::desc({groups, n}, type, {n, 1}));
    };
    const View scales(params(DNNL_ARG_ATTR_SCALES, of.attr.scales)),
        zeros(params(DNNL_ARG_ATTR_ZERO_POINTS, of.attr.zeros));
    const View from(x), by(w);
    auto *out = static_cast<float *>(y.get_data_handle());
    for (size_t i = 0; i < static_cast<size_t>(of.y.sizes[0]); ++i)
        for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
            double sum = 0;
            for (size_t l = 0; l < static_cast<size_t>(of.w.sizes[0]); ++l) {
                const size_t g = l / static_cast<size_t>(group);
                double weight = by(l, j);
                if (has_scales)
                    weight = scales(g, j) * weight - (has_zeros ? zeros(g, j) : 0.0);
                sum += from(i, l) * weight;
            }
            float &to = out[i * static_cast<size_t>(n) + j];
            to = static_cast<float>(static_cast<double>(of.attr.ops.factor) * sum +
                                    (of.attr.ops.sum ? static_cast<double>(to) : 0.0));
        }
    ++(has_zeros ? fake::executed_sbzp : has_scales ? fake::executed_plain : fake::executed_sums);
}

} // namespace dnnl
