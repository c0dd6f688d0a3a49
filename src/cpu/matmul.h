// One CPU matrix product, or several on the same activations, from checked arguments to output.
//
// A Job is plain data that the caller has validated. It runs in phases, so that a built-in pool, a host's
// parallel_for (which may run tasks one after the other) and a host's own parallel region all work:
//
//   begin(job, scratch, nth)                one thread
//   -- all threads wait for begin: a barrier, or simply before a parallel_for --
//   quantize(job, scratch, ith, nth)        every thread
//   -- barrier, or the end of a parallel_for --
//   compute(job, scratch, ith, nth)         every thread
//
// Results depend on neither nth nor who runs what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nybl/nybl.h>

#include "cpu/panel.h"
#include "cpu/rows.h"
#include "quant/format.h"

namespace nybl::cpu {

// N rows x K of weights: packed panels, or original blocks wherever they lie (any alignment).
struct Matrix {
    const quant::Format *format = nullptr;
    const PanelLayout *layout = nullptr; // NULL: the format has no panels, reference only
    nybl_storage storage = NYBL_STORAGE_PACKED;
    const uint8_t *data = nullptr; // of expert 0
    size_t n = 0, k = 0;           // k: whole blocks, of which x may lack the end (Job::pad)
    size_t stride = 0;             // bytes between panels (packed) or rows (original)
    size_t expert_stride = 0;      // bytes between experts
};

enum class Strategy : uint8_t {
    Reference, // scalar contract
    Stream,    // panels read once per call, unpacked in registers: decode and small M
    Tiled,     // panels unpacked to bytes, reused over a block of tokens: prefill
    F32,       // unquantised activations
};

// What dispatch chose for a product. `isa` is the instruction set of the kernel, not of the machine.
struct KernelChoice {
    Strategy strategy = Strategy::Reference;
    nybl_isa isa = NYBL_ISA_SCALAR;
    uint32_t mr =
        1; // tokens per micro-kernel tile: the activation layout, one value for all products of a job
    uint32_t nr = kPanelRows; // weight rows per micro-kernel
    uint32_t stream_max_m =
        16; // experts: one with at most that many tokens is streamed, one with more is tiled
};

// Whether f32 tiles of the activations are made; the scalar code reads the caller's rows.
constexpr bool has_f32_kernels(const KernelChoice &kernel) noexcept {
    return kernel.strategy == Strategy::F32 && kernel.isa != NYBL_ISA_SCALAR;
}

struct Product {
    Matrix w;
    Rows y;
    const float *bias = nullptr; // n values, or NULL
    KernelChoice kernel;
};

// Mixture of experts: output row i = t * n_slots + s uses expert id(i); -1 leaves zeros.
struct Experts {
    const uint8_t *ids = nullptr; // int32
    size_t ids_stride = 0;        // bytes between tokens
    size_t n_tokens = 0, n_slots = 0, n_experts = 0;
    bool shared_x = false; // activation row of output row i: i / n_slots, else i

    int32_t id(size_t row) const noexcept {
        int32_t value;
        std::memcpy(&value, ids + (row / n_slots) * ids_stride + (row % n_slots) * 4, 4);
        return value;
    }
};

struct Job {
    size_t m = 0;   // activation rows; without experts also output rows
    size_t k = 0;   // > 0
    size_t pad = 0; // of k, elements behind the end of x: zeros
    Rows x;
    const Product *products = nullptr;
    size_t n_products = 0;
    const Experts *experts = nullptr; // with experts there is exactly one product
};

// Bytes of scratch (64-byte aligned by the caller) for nth threads.
size_t scratch_bytes(const Job &job, size_t nth) noexcept;
void begin(const Job &job, void *scratch, size_t nth) noexcept;
void quantize(const Job &job, void *scratch, size_t ith, size_t nth) noexcept;
void compute(const Job &job, void *scratch, size_t ith, size_t nth) noexcept;

} // namespace nybl::cpu
