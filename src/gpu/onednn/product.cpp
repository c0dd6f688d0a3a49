// Runs products: activations and the sums of their groups in, primitives, outputs back.
#include "gpu/onednn/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/status.h"
#include "cpu/convert.h"

namespace nybl::gpu {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

class Run {
  public:
    Run(OneDnn &dnn, const cpu::Job &job, const OneDnnProduct *products, size_t count) noexcept
        : dnn_(dnn), job_(job), products_(products), count_(count) {}

    nybl_status all() {
        for (size_t i = 0; i < count_; ++i) {
            // Kept as plans: finding one may take the place of another.
            plans_[i] = products_[i].weights->plan(dnn_, job_.m, job_.x.type);
            const Primitives &primitives = dnn_.find(plans_[i]);
            if (!dnn_.is_fast(primitives.implementation))
                return fail(NYBL_UNSUPPORTED, "oneDNN: this device gets its %s for %zu rows",
                            primitives.implementation, job_.m);
            grow_scratch(primitives, i);
        }
        write_x();
        for (size_t i = 0; i < count_; ++i)
            multiply(i);
        dnn_.stream.wait();
        for (size_t i = 0; i < count_; ++i)
            read_y(i);
        return NYBL_OK;
    }

  private:
    void grow_scratch(const Primitives &primitives, size_t i) {
        const Shapes shapes(primitives.plan);
        dnn_.grow(shapes.x.get_size(), &dnn_.scratch.x);
        dnn_.grow(shapes.y.get_size(), &dnn_.scratch.y[i]);
        dnn_.grow(primitives.product.scratchpad.get_size(), &dnn_.scratch.pad);
        for (size_t t = 0; t < primitives.n_terms; ++t) {
            dnn_.grow(shapes.sums.get_size(), &dnn_.scratch.sums[t]);
            dnn_.grow(primitives.terms[t].scratchpad.get_size(), &dnn_.scratch.pad);
        }
        // Weights with F32 parameters beside others with F16 ones: sums cannot serve both.
        if (primitives.n_terms != 0) {
            sums_type_ = n_sums_ == 0 ? primitives.plan.params : sums_type_;
            if (sums_type_ != primitives.plan.params)
                throw dnnl::error(dnnl_unimplemented, "products on one x whose zero points differ in type");
            n_sums_ = primitives.n_terms;
        }
    }

    // All products agree on the type of x, so that the first one's plan says how it is kept.
    void write_x() {
        const Shapes shapes(plans_[0]);
        const memory x = dnn_.view(dnn_.scratch.x, shapes.x);
        Mapped to_x(x);
        if (n_sums_ == 0) {
            write_rows(to_x.data(), nullptr, nullptr);
        } else {
            const memory high = dnn_.view(dnn_.scratch.sums[0], sums_desc());
            Mapped to_high(high);
            if (n_sums_ == 1) {
                write_rows(to_x.data(), to_high.data(), nullptr);
            } else {
                const memory low = dnn_.view(dnn_.scratch.sums[1], sums_desc());
                Mapped to_low(low);
                write_rows(to_x.data(), to_high.data(), to_low.data());
                to_low.unmap();
            }
            to_high.unmap();
        }
        to_x.unmap();
    }

    memory::desc sums_desc() const {
        for (size_t i = 0; i < count_; ++i)
            if (plans_[i].mode == OneDnnMode::TwoTerm)
                return Shapes(plans_[i]).sums;
        return {};
    }

    void write_rows(uint8_t *x, uint8_t *high, uint8_t *low) const noexcept {
        const nybl_format type = plans_[0].activations;
        const size_t groups = job_.k / quant::kGroup, x_bytes = job_.k * (type == NYBL_F32 ? 4 : 2);
        const size_t sums_bytes = groups * affine_param_bytes(sums_type_);
        for (size_t i = 0; i < job_.m; ++i) {
            uint8_t *row = x + i * x_bytes;
            for (size_t g = 0; g < groups; ++g) {
                const double sum = write_group(type, job_.x.row(i), row, g);
                if (high)
                    write_sum(-sum, g, high + i * sums_bytes, low ? low + i * sums_bytes : nullptr);
            }
        }
    }

    // Returns the sum of what is multiplied: the activations as they were rounded.
    double write_group(nybl_format type, const uint8_t *from, uint8_t *to, size_t g) const noexcept {
        float values[quant::kGroup];
        cpu::load_row(job_.x.type, from, g * quant::kGroup, quant::kGroup, values);
        cpu::store_row(type, to, g * quant::kGroup, quant::kGroup, values);
        if (type != job_.x.type)
            cpu::load_row(type, to, g * quant::kGroup, quant::kGroup, values);
        double sum = 0;
        for (const float value : values)
            sum += static_cast<double>(value);
        return sum;
    }

    void write_sum(double sum, size_t g, uint8_t *high, uint8_t *low) const noexcept {
        if (!low) {
            const auto value = static_cast<float>(sum);
            cpu::store_row(sums_type_, high, g, 1, &value);
            return;
        }
        const auto mean = static_cast<float>(sum / static_cast<double>(kGroupSize));
        cpu::store_row(sums_type_, high, g, 1, &mean);
        float kept;
        cpu::load_row(sums_type_, high, g, 1, &kept);
        const float rest = std::isfinite(kept) ? (mean - kept) * kLowScale : 0.0f;
        cpu::store_row(sums_type_, low, g, 1, &rest);
    }

    void execute(const Step &step, const memory &source, const memory &weights, const memory &y,
                 Arguments arguments) {
        arguments.insert({{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, y}});
        if (step.scratchpad.get_size() != 0)
            arguments.insert({DNNL_ARG_SCRATCHPAD, dnn_.view(dnn_.scratch.pad, step.scratchpad)});
        step.primitive.execute(dnn_.stream, arguments);
    }

    void multiply(size_t i) {
        const OneDnnWeights &weights = *products_[i].weights;
        const Primitives &primitives = dnn_.find(plans_[i]);
        const Shapes shapes(plans_[i]);
        const memory y = dnn_.view(dnn_.scratch.y[i], shapes.y);
        Arguments params{{DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, weights.scales.mem}};
        if (plans_[i].mode == OneDnnMode::ScaleBeforeZero)
            params.insert({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS, weights.zeros.mem});
        execute(primitives.product, dnn_.view(dnn_.scratch.x, shapes.x), weights.codes.mem, y, params);
        for (size_t t = 0; t < primitives.n_terms; ++t)
            execute(primitives.terms[t], dnn_.view(dnn_.scratch.sums[t], shapes.sums), weights.zeros.mem, y,
                    {});
    }

    void read_y(size_t i) const {
        const cpu::Product &args = *products_[i].product;
        const memory y = dnn_.view(dnn_.scratch.y[i], Shapes(plans_[i]).y);
        const Mapped mapped(y);
        const auto *from = reinterpret_cast<const float *>(mapped.data());
        constexpr size_t kRun = 256;
        for (size_t row = 0; row < job_.m; ++row)
            for (size_t n = 0; n < args.w.n; n += kRun) {
                const size_t count = std::min(kRun, args.w.n - n);
                float values[kRun];
                for (size_t j = 0; j < count; ++j)
                    values[j] = from[row * args.w.n + n + j] + (args.bias ? args.bias[n + j] : 0.0f);
                cpu::store_row(args.y.type, args.y.row(row), n, count, values);
            }
    }

    OneDnn &dnn_;
    const cpu::Job &job_;
    const OneDnnProduct *products_;
    size_t count_;
    OneDnnPlan plans_[kMaxOneDnnProducts]{};
    size_t n_sums_ = 0;
    nybl_format sums_type_ = NYBL_F32;
};

} // namespace

nybl_status describe_onednn(OneDnn &dnn, const OneDnnWeights &weights, size_t m, nybl_format x_type,
                            OneDnnUse *use) noexcept {
    try {
        const OneDnnPlan plan = weights.plan(dnn, m, x_type);
        const Primitives &primitives = dnn.find(plan);
        if (!dnn.is_fast(primitives.implementation))
            return fail(NYBL_UNSUPPORTED, "oneDNN: this device gets its %s for %zu rows",
                        primitives.implementation, m);
        use->plan = plan;
        std::snprintf(use->implementation, sizeof use->implementation, "%s", primitives.implementation);
        return NYBL_OK;
    } catch (...) {
        return fail_onednn("making a primitive");
    }
}

nybl_status run_onednn(OneDnn &dnn, const cpu::Job &job, const OneDnnProduct *products,
                       size_t count) noexcept {
    try {
        return Run(dnn, job, products, count).all();
    } catch (...) {
        return fail_onednn("a product");
    }
}

} // namespace nybl::gpu
