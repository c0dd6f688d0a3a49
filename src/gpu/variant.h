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
// How prepared activations are kept.
enum class Activations : uint8_t {
    F32,
    F16,
    Int8, // per group of 32, as the CPU quantises them: products by integer dot
};
const char *activations_name(Activations x) noexcept;

struct KernelChoice {
    Op op;
    uint32_t tokens; // per work-item
    Activations x;
};

// Unpacks weights into local memory (gemm.cl); the other products unpack in registers (gemv.cl).
bool is_tiled(Variant variant, const KernelChoice &kernel) noexcept;

// Tokens that one work-group serves.
uint32_t tile_tokens(Variant variant, const KernelChoice &kernel) noexcept;

// The shape of a product's work-groups: LANES, and SPLITS or TEAMS of the kernels.
struct WorkGroup {
    uint32_t lanes, rows;
};
WorkGroup work_group(Variant variant, const KernelChoice &kernel) noexcept;

// Bytes of a group of 32 prepared activations, and of what goes with it: its sum, or its step and their
// product.
struct GroupBytes {
    size_t values, sums;
};
GroupBytes prepared_group(Activations x) noexcept;

// Whether there are kernels for a format's panels.
bool has_kernels(nybl_format format) noexcept;

// What a program is compiled for, and the compiler options that say so.
struct KernelKey {
    nybl_format format; // one with panels
    KernelChoice kernel;
    bool experts;
};
void write_build_options(Variant variant, bool integer_dot, const KernelKey &key, char *text,
                         size_t size) noexcept;

} // namespace nybl::gpu
