// moe: a mixture of experts, every call with other experts, so that they are cold as in a real model.
#include "cases.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace nybl::bench {
namespace {

constexpr size_t kRoutings = 32;

struct Experts {
    std::vector<float> x;
    CheckedOutput y;
    std::vector<std::vector<int32_t>> routings; // [token, slot] each
    nybl_matmul_id_args args{};
    const std::vector<WeightsHandle> *weights;
    size_t next_weights = 0, next_routing = 0;

    Experts(const Case &of, const std::vector<WeightsHandle> &the_weights)
        : x(normal_values(of.m * of.k, of.m + of.k)), y(of.m * of.used * of.n), weights(&the_weights) {
        Random random(of.m);
        std::vector<int32_t> all(of.experts);
        std::iota(all.begin(), all.end(), 0);
        for (size_t r = 0; r < kRoutings; ++r) {
            std::vector<int32_t> ids;
            for (uint64_t token = 0; token < of.m; ++token)
                for (uint64_t slot = 0; slot < of.used; ++slot) {
                    std::swap(all[slot], all[slot + random.below(of.experts - slot)]);
                    ids.push_back(all[slot]);
                }
            routings.push_back(ids);
        }
        args.struct_size = sizeof args;
        args.n_tokens = of.m;
        args.n_slots = of.used;
        args.x = x.data();
        args.y = y.data();
    }

    nybl_status run() {
        args.ids = routings[next_routing].data();
        const nybl_status status = nybl_matmul_id((*weights)[next_weights].get(), &args);
        next_weights = next_weights + 1 < weights->size() ? next_weights + 1 : 0;
        next_routing = (next_routing + 1) % kRoutings;
        return status;
    }

    // Weight bytes of a call: experts that several tokens share are read once.
    double mean_experts() const {
        size_t total = 0;
        for (const std::vector<int32_t> &ids : routings)
            total += std::set<int32_t>(ids.begin(), ids.end()).size();
        return static_cast<double>(total) / kRoutings;
    }
};

Verdict verify(const Case &of, const Source &source, const Experts &experts, Contexts &contexts) {
    Verdict verdict;
    const size_t bytes = row_bytes(of.format, of.k) * of.n;
    for (const uint64_t token : sampled(of.m, 3))
        for (const uint64_t slot : sampled(of.used, 3)) {
            const uint64_t at = token * of.used + slot;
            const auto expert = static_cast<size_t>(experts.routings[0][at]);
            verdict.merge(verify_product({source,
                                          source.tensors[0].subspan(expert * bytes, bytes),
                                          NYBL_COMPUTE_DEFAULT,
                                          std::span(experts.x).subspan(token * of.k, of.k),
                                          {experts.y.data() + at * of.n, of.n},
                                          1,
                                          of.device.empty()},
                                         contexts));
        }
    return verdict;
}

} // namespace

void prepare_experts(Shared &shared, const Case &of, Workload &workload) {
    const std::shared_ptr<const Source> source = shared.source(of);
    auto experts = std::make_shared<Experts>(of, shared.weights(of, NYBL_STORAGE_PACKED));
    workload.call = [experts] { return experts->run(); };
    workload.first_call("nybl_matmul_id");
    workload.mismatch = experts->y.complaint();
    const Verdict verdict = verify(of, *source, *experts, shared.contexts);
    if (workload.mismatch.empty())
        workload.mismatch = verdict.mismatch;
    workload.nmse = verdict.nmse();

    nybl_kernel_info info{};
    info.struct_size = sizeof info;
    require(nybl_matmul_explain((*experts->weights)[0].get(), of.m, &info), "nybl_matmul_explain");
    if (!of.device.empty() && info.device != NYBL_DEVICE_GPU)
        throw ApiError{NYBL_UNSUPPORTED, info.reason};
    workload.kernel = info.name;
    workload.scalar = info.isa == NYBL_ISA_SCALAR && of.device.empty();
    workload.bytes = experts->mean_experts() * static_cast<double>(of.n * row_bytes(of.format, of.k));
    workload.flops = 2.0 * static_cast<double>(of.m * of.used * of.n * of.k);
}

} // namespace nybl::bench
