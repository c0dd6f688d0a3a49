// decode and prefill: packed weights, original blocks, unquantised activations.
#include "cases.h"

namespace nybl::bench {
namespace {

struct Matmul {
    std::vector<float> x;
    CheckedOutput y;
    nybl_matmul_args args{};
    const std::vector<WeightsHandle> *weights;
    size_t next = 0;

    Matmul(const Case &of, nybl_compute compute, const std::vector<WeightsHandle> &the_weights)
        : x(normal_values(of.m * of.k, of.m + of.k)), y(of.m * of.n), weights(&the_weights) {
        args.struct_size = sizeof args;
        args.m = of.m;
        args.x = x.data();
        args.y = y.data();
        args.compute = compute;
    }

    nybl_status run() {
        const nybl_status status = nybl_matmul((*weights)[next].get(), &args);
        next = next + 1 < weights->size() ? next + 1 : 0;
        return status;
    }
};

void prepare(Shared &shared, const Case &of, Workload &workload, nybl_storage storage, nybl_compute compute) {
    const std::shared_ptr<const Source> source = shared.source(of);
    auto matmul = std::make_shared<Matmul>(of, compute, shared.weights(of, storage));
    workload.call = [matmul] { return matmul->run(); };
    workload.first_call("nybl_matmul");
    workload.mismatch = matmul->y.complaint();
    const Verdict verdict = verify_product({*source,
                                            source->tensors[0],
                                            compute,
                                            matmul->x,
                                            {matmul->y.data(), of.m * of.n},
                                            of.m,
                                            of.device.empty()},
                                           shared.contexts);
    if (workload.mismatch.empty())
        workload.mismatch = verdict.mismatch;
    workload.nmse = verdict.nmse();

    if (shared.peer && storage == NYBL_STORAGE_PACKED && compute == NYBL_COMPUTE_DEFAULT)
        workload.peers =
            shared.peer->prepare(of, *source, of.hot ? 0 : shared.arena.size(), shared.options.pages,
                                 matmul->x, {matmul->y.data(), of.m * of.n});

    nybl_kernel_info info{};
    info.struct_size = sizeof info;
    require(nybl_matmul_explain((*matmul->weights)[0].get(), of.m, &info), "nybl_matmul_explain");
    if (!of.device.empty() && info.device != NYBL_DEVICE_GPU)
        throw ApiError{NYBL_UNSUPPORTED, info.reason};
    workload.kernel = info.name;
    workload.scalar = info.isa == NYBL_ISA_SCALAR && of.device.empty();
    workload.bytes = static_cast<double>(of.n * row_bytes(of.format, of.k));
    workload.flops = 2.0 * static_cast<double>(of.m * of.n * of.k);
}

} // namespace

void prepare_matmul(Shared &shared, const Case &of, Workload &workload) {
    prepare(shared, of, workload, NYBL_STORAGE_PACKED, NYBL_COMPUTE_DEFAULT);
}

void prepare_matmul_original(Shared &shared, const Case &of, Workload &workload) {
    prepare(shared, of, workload, NYBL_STORAGE_ORIGINAL, NYBL_COMPUTE_DEFAULT);
}

void prepare_matmul_f32(Shared &shared, const Case &of, Workload &workload) {
    prepare(shared, of, workload, NYBL_STORAGE_PACKED, NYBL_COMPUTE_F32);
    workload.kernel = "compute f32"; // explain is asked without a compute mode, so it names the int8 kernel
}

} // namespace nybl::bench
