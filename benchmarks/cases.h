// What the bench runs: a table of operations, the cases made of them and shapes, and the state cases share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data.h"
#include "gguf/gguf.h"
#include "machine_limits.h"
#include "options.h"
#include "peer_ggml.h"
#include "shapes.h"
#include "verify.h"
#include "weights.h"

namespace nybl::bench {

// One case, prepared and verified: a closure over its data, and what a call of it amounts to.
struct Workload {
    std::function<nybl_status()> call;
    std::function<void()> copy; // for Roof::kCopy: moves the same byte counts
    // ggml doing the same on some of the rows, and what share of a call that is.
    std::function<void()> rival;
    double rival_share = 1;
    double bytes = 0, flops = 0;
    std::string kernel;
    bool scalar = false;      // the reference code, where a faster instruction set was allowed
    double nmse = -1;         // negative: does not apply
    std::string mismatch;     // empty: the output is right
    double first_seconds = 0; // of the verified call
    uint64_t calls_per_sample = 0;
    std::vector<PeerPath> peers;
    std::vector<uint64_t> peer_calls; // per sample

    // Makes the call whose output is verified. Throws ApiError, naming `what`, where it fails.
    void first_call(const char *what);
};

struct Shared;
struct Case;

enum class Roof { kNone, kRead, kDot, kFma, kCopy };

struct Op {
    const char *name;
    uint64_t least_m, most_m; // the M this op takes of a shape line
    Roof roof;
    bool dot_roof;
    bool threaded;                                       // otherwise on one thread only
    bool on_gpu;                                         // runs on GPUs too
    bool in_model;                                       // run on the tensors of a model file
    void (*prepare)(Shared &, const Case &, Workload &); // throws ApiError
};
std::span<const Op> ops();
const Op *find_op(const std::string &name); // NULL: there is none

struct Case {
    const Op *op = nullptr;
    std::shared_ptr<const Source> source; // of a model; NULL: random weights, made when the case runs
    nybl_format format = NYBL_F32;
    uint64_t m = 0, n = 0, k = 0;
    uint64_t experts = 1, used = 0;
    nybl_isa isa = NYBL_ISA_BEST; // effective
    std::string device;           // a GPU's name; empty: the CPU
    unsigned threads = 1;
    bool hot = false;

    std::string name() const;
    std::string isa_name() const { return device.empty() ? nybl_isa_string(isa) : device; }
};

// What one run of a case measured.
struct Result {
    Case of;
    std::string kernel, error;
    double seconds = 0, bytes_rate = 0, flops_rate = 0, nmse = -1;
    double roof = -1, roof_median = -1, dot_roof = -1; // negative: does not apply
    double peer = -1;                                  // calls per second over those of the best peer path
    double peer_flops_rate = 0;
    std::string peer_path;
    double vs_ggml = -1;
};

struct Shared {
    Shared(const Options &the_options, const Machine &the_machine, std::span<uint8_t> the_arena)
        : options(the_options), machine(the_machine), arena(the_arena), limits(the_machine, the_arena),
          pool(the_arena) {}

    const Options &options;
    const Machine &machine;
    std::span<const uint8_t> arena;
    Limits limits;
    Contexts contexts;
    WeightPool pool;
    std::unique_ptr<GgmlPeer> peer; // where --peer asks for one
    std::vector<Result> results;    // in the order of first runs
    int failures = 0, left_out = 0; // wrong or failed case runs; cases that the time budget had no room for

    // The weights of a case: those of the last one again where only M, threads or the instruction set
    // changed.
    std::shared_ptr<const Source> source(const Case &of);
    const std::vector<WeightsHandle> &weights(const Case &of, nybl_storage storage);
    nybl_context *context(const Case &of) {
        return of.device.empty() ? contexts.get(of.isa, of.threads)
                                 : contexts.get_gpu(*options.gpu, of.threads);
    }

  private:
    std::shared_ptr<const Source> last_source_;
};

// The cases that the options ask for, from a model's tensors (NULL: no model) and from shape files. Those
// that this build has no kernel for are left out and named in `absent`.
// The keys are "op/isa", the values formats.
using Absent = std::map<std::string, std::set<std::string>>;
std::vector<Case> collect_cases(Shared &shared, const gguf::Contents *model, Absent &absent);

// Preparations, in ops_*.cpp.
void prepare_matmul(Shared &, const Case &, Workload &);
void prepare_matmul_original(Shared &, const Case &, Workload &);
void prepare_matmul_f32(Shared &, const Case &, Workload &);
void prepare_experts(Shared &, const Case &, Workload &);
void prepare_vec_dot(Shared &, const Case &, Workload &);
void prepare_pack(Shared &, const Case &, Workload &);
void prepare_quantize(Shared &, const Case &, Workload &);
void prepare_quantize_importance(Shared &, const Case &, Workload &);
void prepare_quantize_fast(Shared &, const Case &, Workload &);
void prepare_dequantize(Shared &, const Case &, Workload &);

} // namespace nybl::bench
