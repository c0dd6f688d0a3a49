// Plans as keys and as text.
#include "gpu/onednn_plan.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace nybl::gpu {
namespace {

constexpr const char *kCodes[] = {"s4", "u4", "u8", "s8"}; // in the order of CodeType
constexpr const char *kModes[] = {"one-term", "two-term", "static_sbzp"};

struct TypeName {
    nybl_format type;
    const char *name;
};
constexpr TypeName kTypes[] = {{NYBL_F16, "f16"}, {NYBL_BF16, "bf16"}, {NYBL_F32, "f32"}};

const char *type_name(nybl_format type) noexcept {
    for (const TypeName &known : kTypes)
        if (known.type == type)
            return known.name;
    return "?";
}

bool read_type(const char *text, nybl_format *type) noexcept {
    for (const TypeName &known : kTypes)
        if (std::strcmp(known.name, text) == 0) {
            *type = known.type;
            return true;
        }
    return false;
}

template <class Enum, size_t N>
bool read_name(const char *const (&names)[N], const char *text, Enum *value) noexcept {
    for (size_t i = 0; i < N; ++i)
        if (std::strcmp(names[i], text) == 0) {
            *value = static_cast<Enum>(i);
            return true;
        }
    return false;
}

} // namespace

const char *mode_name(OneDnnMode mode) noexcept {
    return kModes[static_cast<size_t>(mode)];
}

uint64_t hash_plan(const OneDnnPlan &plan) noexcept {
    const uint64_t words[] = {static_cast<uint64_t>(plan.mode),
                              static_cast<uint64_t>(plan.codes),
                              plan.group,
                              static_cast<uint64_t>(plan.params),
                              static_cast<uint64_t>(plan.activations),
                              plan.m,
                              plan.n,
                              plan.k};
    uint64_t hash = 1;
    for (const uint64_t word : words) {
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

void write_plan(const OneDnnPlan &plan, char *text, size_t size) noexcept {
    std::snprintf(text, size, "%s/%" PRIu32 " %s %s %" PRIu64 "x%" PRIu64 "x%" PRIu64 " %s",
                  kCodes[static_cast<size_t>(plan.codes)], plan.group, type_name(plan.params),
                  type_name(plan.activations), plan.m, plan.n, plan.k, mode_name(plan.mode));
}

bool read_plan(const char *text, OneDnnPlan *plan) noexcept {
    char codes[8], params[8], activations[8], mode[16], again[112];
    OneDnnPlan read{};
    if (std::sscanf(text, "%7[^/]/%" SCNu32 " %7s %7s %" SCNu64 "x%" SCNu64 "x%" SCNu64 " %15s", codes,
                    &read.group, params, activations, &read.m, &read.n, &read.k, mode) != 8 ||
        read.group == 0 || !read_name(kCodes, codes, &read.codes) || !read_type(params, &read.params) ||
        !read_type(activations, &read.activations) || !read_name(kModes, mode, &read.mode))
        return false;
    // One text per plan: no other spaces, signs or digits.
    write_plan(read, again, sizeof again);
    if (std::strcmp(text, again) != 0)
        return false;
    *plan = read;
    return true;
}

size_t bucket_rows(size_t m) noexcept {
    if (m <= 32) {
        size_t bucket = 1;
        while (bucket < m)
            bucket *= 2;
        return bucket;
    }
    const size_t step = m <= 512 ? 64 : 512;
    return (m + step - 1) / step * step;
}

OneDnnMode choose_mode(const ModeFacts &facts) noexcept {
    if (!facts.has_zeros)
        return OneDnnMode::OneTerm;
    const bool served = facts.has_scale_before_zero && facts.matrix_engine && facts.codes != CodeType::S8 &&
                        facts.params != NYBL_F32 && facts.activations != NYBL_F32 && facts.groups >= 2;
    return served ? OneDnnMode::ScaleBeforeZero : OneDnnMode::TwoTerm;
}

} // namespace nybl::gpu
