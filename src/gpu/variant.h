// How kernels use a device, and the shapes they have there: plain arithmetic, also in builds without a
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nybl/nybl.h>

namespace nybl::gpu {

enum class Variant : uint8_t {
    Vector,   // a work-item is 16 rows in one vector: CPU devices
    Lane,     // a work-item is one row; sharing goes through local memory: any GPU
    Subgroup, // as Lane, with sub-groups of 16 that share activations by broadcast: Intel
};
const char *variant_name(Variant variant) noexcept;

enum class Op : uint8_t {
    Gemv, // each weight read once per call: decode
    Gemm, // weights unpacked once per tile of tokens: prefill
};
struct KernelChoice {
    Op op;
    uint32_t tokens; // per work-item
    bool half_x;     // activations rounded to f16, else f32
};

// Unpacks weights into local memory (gemm.cl); the other products unpack in registers (gemv.cl).
bool is_tiled(Variant variant, Op op) noexcept;

// Tokens that one work-group serves.
uint32_t tile_tokens(Variant variant, const KernelChoice &kernel) noexcept;

// The shape of a product's work-groups: LANES, and SPLITS or TEAMS of the kernels.
struct WorkGroup {
    uint32_t lanes, rows;
};
WorkGroup work_group(Variant variant, Op op) noexcept;

// What a program is compiled for, and the compiler options that say so.
struct KernelKey {
    nybl_format format; // one with panels
    KernelChoice kernel;
    bool experts;
};
void write_build_options(Variant variant, const KernelKey &key, char *text, size_t size) noexcept;

} // namespace nybl::gpu
