// The affine export: decodes a tile of blocks at a time and writes its codes and parameters where they
// belong.
#include "gpu/affine.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/status.h"

namespace nybl::gpu {
namespace {

const char *param_name(nybl_format type) noexcept {
    return type == NYBL_F32 ? "F32" : type == NYBL_F16 ? "F16" : "BF16";
}

// Writes element `index` and returns the value that it holds now.
float store_param(nybl_format type, uint8_t *array, size_t index, float value) noexcept {
    if (type == NYBL_F32) {
        std::memcpy(array + 4 * index, &value, 4);
        return value;
    }
    const uint16_t bits = type == NYBL_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(array + 2 * index, &bits, 2);
    return type == NYBL_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

bool fits(nybl_format type, float value) noexcept {
    return type != NYBL_F16 || (f32_to_f16(value) & 0x7fff) < 0x7c00;
}

// Consecutive nibbles from flat offset `at`; those of other runs in the first and last byte stay.
void store_nibbles(uint8_t *dst, size_t at, const int8_t *codes, size_t count) noexcept {
    size_t i = 0;
    if (at % 2 != 0 && count != 0) {
        dst[at / 2] = static_cast<uint8_t>((dst[at / 2] & 0x0f) | (codes[0] & 15) << 4);
        i = 1;
    }
    for (; i + 2 <= count; i += 2)
        dst[(at + i) / 2] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 1] & 15) << 4);
    if (i < count)
        dst[(at + i) / 2] = static_cast<uint8_t>((dst[(at + i) / 2] & 0xf0) | (codes[i] & 15));
}

void store_codes(CodeType type, uint8_t *dst, size_t at, const int8_t *codes, size_t count) noexcept {
    if (code_bits(type) == 4)
        store_nibbles(dst, at, codes, count);
    else
        std::memcpy(dst + at, codes, count);
}

float relative_error(float stored, float value) noexcept {
    return stored == value ? 0.0f : std::fabs((stored - value) / value);
}

// The blocks of column `block` in rows [begin, end), at most kAffineTileRows of them.
float export_tile(const AffinePlan &plan, const AffineSource &source, const AffineTarget &target,
                  size_t block, size_t begin, size_t end) noexcept {
    const size_t block_size = plan.format->block_size;
    const size_t groups = block_size / plan.group_size(), first_group = block * groups,
                 all_groups = plan.groups();
    const bool has_min = plan.format->has_min;
    int8_t codes[quant::kMaxBlock][kAffineTileRows]; // by k, then row: only for [K, N]
    float worst = 0.0f;
    for (size_t n = begin; n < end; ++n) {
        quant::AffineBlock decoded;
        plan.format->decode_affine(source.row(n) + block * plan.format->block_bytes, &decoded);
        for (size_t g = 0; g < groups; ++g) {
            const size_t group = first_group + g;
            const size_t at = plan.layout == NYBL_N_MAJOR ? n * all_groups + group : group * plan.n + n;
            const float scale = decoded.scale[g], zero = -decoded.min[g];
            worst = std::max(worst,
                             relative_error(store_param(plan.param_type, target.scales, at, scale), scale));
            if (has_min)
                worst = std::max(worst,
                                 relative_error(store_param(plan.param_type, target.zeros, at, zero), zero));
        }
        if (plan.codes_k_major)
            for (size_t i = 0; i < block_size; ++i)
                codes[i][n - begin] = decoded.code[i];
        else
            store_codes(plan.codes, target.codes, n * plan.k + block * block_size, decoded.code, block_size);
    }
    if (plan.codes_k_major)
        for (size_t i = 0; i < block_size; ++i)
            store_codes(plan.codes, target.codes, (block * block_size + i) * plan.n + begin, codes[i],
                        end - begin);
    return worst;
}

// Two rows meet in a byte, so that an item must hold all rows.
bool rows_share_bytes(const AffinePlan &plan) noexcept {
    return plan.codes_k_major && code_bits(plan.codes) == 4 && plan.n % 2 != 0;
}

size_t blocks_per_row(const AffinePlan &plan) noexcept {
    return plan.k / plan.format->block_size;
}

nybl_status check_sizes(AffinePlan *plan) noexcept {
    uint64_t elements = 0, params = 0, bytes = 0;
    if (__builtin_mul_overflow(plan->n, plan->k, &elements) ||
        __builtin_mul_overflow(plan->n, plan->groups(), &params) ||
        __builtin_mul_overflow(params, affine_param_bytes(plan->param_type), &bytes))
        return fail(NYBL_INVALID_ARGUMENT, "affine export: n = %zu times k = %zu does not fit 64 bits",
                    plan->n, plan->k);
    plan->codes_size = code_bits(plan->codes) == 4 ? elements / 2 : elements;
    plan->scales_size = bytes;
    plan->zeros_size = plan->format->has_min ? bytes : 0;
    return NYBL_OK;
}

} // namespace

bool affine_code_type(nybl_format format, CodeType *type) noexcept {
    switch (format) {
    case NYBL_Q4_0:
        *type = CodeType::S4;
        return true;
    case NYBL_Q4_1:
    case NYBL_Q4_K:
        *type = CodeType::U4;
        return true;
    case NYBL_Q5_1:
    case NYBL_Q5_K:
        *type = CodeType::U8;
        return true;
    case NYBL_Q5_0:
    case NYBL_Q8_0:
    case NYBL_Q6_K:
    case NYBL_IQ4_NL:
        *type = CodeType::S8;
        return true;
    default:
        return false;
    }
}

nybl_status plan_affine(nybl_format format, uint64_t n, uint64_t k, nybl_format param_type,
                        nybl_param_layout layout, bool codes_k_major, AffinePlan *plan) noexcept {
    const quant::Format *found = nullptr;
    if (const nybl_status status = quant::get_format(format, &found); status != NYBL_OK)
        return status;
    AffinePlan made{found, CodeType::U4, param_type, layout, codes_k_major, n, k, 0, 0, 0};
    if (!affine_code_type(format, &made.codes))
        return fail(NYBL_UNSUPPORTED, "affine export: %s has no affine view", found->name);
    if (param_type != NYBL_F16 && param_type != NYBL_BF16 && param_type != NYBL_F32)
        return fail(NYBL_INVALID_ARGUMENT,
                    "affine export: param_type is format %d; it must be F16, BF16 or F32",
                    static_cast<int>(param_type));
    if (layout != NYBL_N_MAJOR && layout != NYBL_GROUP_MAJOR)
        return fail(NYBL_INVALID_ARGUMENT,
                    "affine export: layout %d is neither NYBL_N_MAJOR nor NYBL_GROUP_MAJOR",
                    static_cast<int>(layout));
    if (k % found->block_size != 0)
        return fail(NYBL_INVALID_ARGUMENT, "affine export: k is %" PRIu64 "; %s needs a multiple of %" PRIu32,
                    k, found->name, found->block_size);
    if (const nybl_status status = check_sizes(&made); status != NYBL_OK)
        return status;
    *plan = made;
    return NYBL_OK;
}

nybl_status check_affine(const AffinePlan &plan, const AffineSource &source, size_t begin,
                         size_t end) noexcept {
    const quant::Format &format = *plan.format;
    const size_t blocks = blocks_per_row(plan), groups = format.block_size / plan.group_size();
    // Only a product of a super-block's scale and a group's can leave the range of f16 (none leaves
    // bf16's).
    const bool can_overflow = plan.param_type == NYBL_F16 && groups > 1;
    for (size_t n = begin; n < end; ++n) {
        const uint8_t *row = source.row(n);
        const char *field = nullptr;
        if (const size_t bad = format.find_invalid(row, blocks, &field); bad != blocks)
            return fail(NYBL_INVALID_DATA, "affine export: row %zu, block %zu: %s is not finite", n, bad,
                        field);
        for (size_t b = 0; can_overflow && b < blocks; ++b) {
            quant::AffineBlock decoded;
            format.decode_affine(row + b * format.block_bytes, &decoded);
            for (size_t g = 0; g < groups; ++g) {
                const bool scale_fits = fits(plan.param_type, decoded.scale[g]);
                if (scale_fits && fits(plan.param_type, decoded.min[g]))
                    continue;
                return fail(
                    NYBL_INVALID_DATA,
                    "affine export: row %zu, block %zu: %s %g of group %zu overflows %s; export with F32 or "
                    "BF16 parameters",
                    n, b, scale_fits ? "zero point" : "scale",
                    static_cast<double>(scale_fits ? -decoded.min[g] : decoded.scale[g]), g,
                    param_name(plan.param_type));
            }
        }
    }
    return NYBL_OK;
}

size_t affine_items(const AffinePlan &plan) noexcept {
    return rows_share_bytes(plan) ? blocks_per_row(plan) : (plan.n + kAffineTileRows - 1) / kAffineTileRows;
}

float export_affine(const AffinePlan &plan, const AffineSource &source, const AffineTarget &target,
                    size_t begin, size_t end) noexcept {
    const bool by_column = rows_share_bytes(plan);
    const size_t row_begin = by_column ? 0 : begin * kAffineTileRows;
    const size_t row_end = by_column ? plan.n : std::min(plan.n, end * kAffineTileRows);
    const size_t block_begin = by_column ? begin : 0, block_end = by_column ? end : blocks_per_row(plan);
    float worst = 0.0f;
    for (size_t n = row_begin; n < row_end; n += kAffineTileRows)
        for (size_t b = block_begin; b < block_end; ++b)
            worst = std::max(worst,
                             export_tile(plan, source, target, b, n, std::min(row_end, n + kAffineTileRows)));
    return worst;
}

} // namespace nybl::gpu
