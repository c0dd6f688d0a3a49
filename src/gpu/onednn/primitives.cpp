// oneDNN's primitives for a plan, and their bounded cache.
#include "gpu/onednn/engine.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace nybl::gpu {
namespace {

using dnnl::memory;
using Type = memory::data_type;

constexpr bool kHasScaleBeforeZero = NYBL_ONEDNN_STATIC_SBZP;
constexpr int kPerGroupAndRow = 1 << 0 | 1 << 1; // of weights [K, N]

Type data_type(nybl_format type) noexcept {
    return type == NYBL_F32 ? Type::f32 : type == NYBL_F16 ? Type::f16 : Type::bf16;
}

Type data_type(CodeType type) noexcept {
    constexpr Type kTypes[] = {Type::s4, Type::u4, Type::u8, Type::s8};
    return kTypes[static_cast<size_t>(type)];
}

memory::desc row_major(uint64_t rows, uint64_t columns, Type type) {
    const auto r = static_cast<memory::dim>(rows), c = static_cast<memory::dim>(columns);
    return {memory::dims{r, c}, type, memory::dims{c, 1}};
}

// Codes take part as numbers of the activations' type.
void set_math(const OneDnnPlan &plan, dnnl::primitive_attr *attr) {
    attr->set_fpmath_mode(plan.activations == NYBL_F16    ? dnnl::fpmath_mode::f16
                          : plan.activations == NYBL_BF16 ? dnnl::fpmath_mode::bf16
                                                          : dnnl::fpmath_mode::strict,
                          true);
}

void set_params(const OneDnnPlan &plan, dnnl::primitive_attr *attr) {
    const memory::dims groups = {static_cast<memory::dim>(plan.group), 1};
    if (plan.mode != OneDnnMode::ScaleBeforeZero) {
        attr->set_scales(DNNL_ARG_WEIGHTS, kPerGroupAndRow, groups, data_type(plan.params));
        return;
    }
#if NYBL_ONEDNN_STATIC_SBZP
    attr->set_scales(DNNL_ARG_WEIGHTS, kPerGroupAndRow, groups, data_type(plan.params), false,
                     dnnl::quantization_mode::static_sbzp);
    attr->set_zero_points(DNNL_ARG_WEIGHTS, kPerGroupAndRow, groups, data_type(plan.params));
#endif
}

dnnl::matmul::primitive_desc describe_product(const dnnl::engine &engine, const OneDnnPlan &plan) {
    dnnl::primitive_attr attr;
    set_math(plan, &attr);
    set_params(plan, &attr);
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const Shapes shapes(plan);
    return {engine, shapes.x, shapes.codes, shapes.y, attr};
}

// y += factor * sums * zeros
dnnl::matmul::primitive_desc describe_term(const dnnl::engine &engine, const OneDnnPlan &plan, float factor) {
    dnnl::post_ops ops;
    if (factor != 1.0f)
        ops.append_eltwise(dnnl::algorithm::eltwise_linear, factor, 0.0f);
    ops.append_sum(1.0f);
    dnnl::primitive_attr attr;
    attr.set_post_ops(ops);
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const Shapes shapes(plan);
    return {engine, shapes.sums, shapes.params, shapes.y, attr};
}

Step make_step(const dnnl::matmul::primitive_desc &desc) {
    return {dnnl::matmul(desc), desc.scratchpad_desc()};
}

// What a plan is made of, before anything is compiled.
struct Described {
    Described(const dnnl::engine &engine, const OneDnnPlan &plan) : product(describe_product(engine, plan)) {
        if (plan.mode == OneDnnMode::TwoTerm && plan.params == NYBL_F32) {
            terms[n_terms++] = describe_term(engine, plan, 1.0f);
        } else if (plan.mode == OneDnnMode::TwoTerm) {
            terms[n_terms++] = describe_term(engine, plan, kGroupSize);
            terms[n_terms++] = describe_term(engine, plan, kGroupSize / kLowScale);
        }
    }

    const char *name(const OneDnn &dnn) const {
        for (size_t i = 0; i < n_terms; ++i)
            if (!dnn.is_fast(terms[i].impl_info_str()))
                return terms[i].impl_info_str();
        return product.impl_info_str();
    }

    dnnl::matmul::primitive_desc product, terms[2];
    size_t n_terms = 0;
};

} // namespace

Shapes::Shapes(const OneDnnPlan &plan)
    : x(row_major(plan.m, plan.k, data_type(plan.activations))),
      codes(memory::dims{static_cast<memory::dim>(plan.k), static_cast<memory::dim>(plan.n)},
            data_type(plan.codes), memory::dims{1, static_cast<memory::dim>(plan.k)}),
      params(row_major(plan.groups(), plan.n, data_type(plan.params))),
      sums(row_major(plan.m, plan.groups(), data_type(plan.params))),
      y(row_major(plan.m, plan.n, Type::f32)) {}

OneDnnPlan OneDnnWeights::plan(const OneDnn &dnn, size_t m, nybl_format x_type) const noexcept {
    const OneDnnSettings &settings = dnn.settings;
    OneDnnPlan plan{};
    plan.codes = affine.codes;
    plan.group = static_cast<uint32_t>(affine.group_size());
    plan.params = affine.param_type;
    plan.activations = settings.cpu_engine ? NYBL_F32 : x_type == NYBL_BF16 ? NYBL_BF16 : NYBL_F16;
    plan.m = bucket_rows(m);
    plan.n = affine.n;
    plan.k = affine.k;
    plan.mode = choose_mode({affine.format->has_min, kHasScaleBeforeZero, settings.matrix_engine, plan.codes,
                             plan.params, plan.activations, affine.groups()});
    return plan;
}

void OneDnn::name_implementation(const OneDnnPlan &plan, char *name, size_t size) const {
    std::snprintf(name, size, "%s", Described(engine, plan).name(*this));
}

bool OneDnn::is_fast(const char *implementation) const noexcept {
    return settings.cpu_engine || std::strncmp(implementation, "jit:", 4) == 0;
}

Primitives &OneDnn::find(const OneDnnPlan &plan) {
    const uint64_t hash = hash_plan(plan);
    Primitives *oldest = &primitives_[0];
    for (Primitives &have : primitives_) {
        if (have.last_use != 0 && have.hash == hash && have.plan == plan) {
            have.last_use = ++uses_;
            return have;
        }
        if (have.last_use < oldest->last_use)
            oldest = &have;
    }
    Primitives made;
    made.plan = plan;
    made.hash = hash;
    const Described described(engine, plan);
    std::snprintf(made.implementation, sizeof made.implementation, "%s", described.name(*this));
    made.product = make_step(described.product);
    for (size_t i = 0; i < described.n_terms; ++i)
        made.terms[made.n_terms++] = make_step(described.terms[i]);
    made.last_use = ++uses_;
    *oldest = std::move(made);
    return *oldest;
}

} // namespace nybl::gpu
