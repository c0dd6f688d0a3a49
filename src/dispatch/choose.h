// Which kernel serves a call: a pure function of the shape, the instruction set and the tuning, with its
// reason in words.
#pragma once

#include "cpu/matmul.h"
#include "dispatch/tuning.h"

namespace nybl::dispatch {

struct Shape {
    nybl_format format;
    nybl_storage storage;
    nybl_compute compute;
    size_t m, n, k;
    size_t n_experts; // 1: a plain matrix
    nybl_isa isa;     // the effective one of the context
    size_t threads;
    size_t rows = 0; // of experts: output rows of all tokens together, 0 where that is not known
    const Tuning *tuning = &kBuiltInTuning;
};

struct Choice {
    cpu::KernelChoice kernel;
    char name[96];    // "decode_q4_k_16x4_avx2": op, format, rows x tokens, isa
    char reason[160]; // one sentence
};

Choice choose(const Shape &shape) noexcept;

// The kernel alone: what a call needs, without the time that words take.
cpu::KernelChoice choose_kernel(const Shape &shape) noexcept;

} // namespace nybl::dispatch
