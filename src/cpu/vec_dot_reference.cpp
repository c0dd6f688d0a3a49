// The scalar block-level dot products: the contract of vec_dot_reference.h step by step.
#include "cpu/vec_dot_reference.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float_environment.h"
#include "base/half.h"
#include "quant/format.h"
#include "quant/k_scales.h"

namespace nybl::cpu {
namespace {

constexpr size_t kLanes = 8;

template <class T>
T load(const uint8_t *from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
float load_f16(const uint8_t *from) noexcept {
    return f16_to_f32(load<uint16_t>(from));
}
int32_t load_i8(const uint8_t *from) noexcept {
    return static_cast<int8_t>(*from);
}

float reduce4(const float *sums) noexcept {
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

float reduce8(const float *acc) noexcept {
    float folded[4];
    for (size_t j = 0; j < 4; ++j) {
        folded[j] = acc[j] + acc[j + 4];
    }
    return reduce4(folded);
}

// Lane j of four: the elements 4j .. 4j+3 of each half of a block of 32.
int32_t sum_lane(const int16_t *codes, const uint8_t *q, size_t j) noexcept {
    int32_t sum = 0;
    for (size_t e = 4 * j; e < 4 * j + 4; ++e) {
        sum += codes[e] * load_i8(q + e) + codes[e + 16] * load_i8(q + e + 16);
    }
    return sum;
}

// The sum that goes with a Q8_1 block: f16 d, f16 s, i8 q[32].
float q8_1_sum(const uint8_t *a) noexcept {
    const uint16_t stored = load<uint16_t>(a + 2);
    if (f16_is_finite(stored)) {
        return f16_to_f32(stored);
    }
    int32_t sum = 0;
    for (size_t e = 0; e < 32; ++e) {
        sum += load_i8(a + 4 + e);
    }
    return load_f16(a) * static_cast<float>(sum);
}

// Blocks of 32. Activations are Q8_1 where the format has a minimum, else Q8_0 (f16 d, i8 q[32]).
template <nybl_format id>
void vec_dot_32(uint64_t k, const void *w_row, const void *a_row, float *out) noexcept {
    const FloatEnvironment environment;
    const quant::Format &format = *quant::find_format(id);
    const auto *w = static_cast<const uint8_t *>(w_row);
    const auto *a = static_cast<const uint8_t *>(a_row);
    const size_t a_header = format.has_min ? 4 : 2;
    float acc[kLanes] = {};
    float least[4] = {};
    for (size_t b = 0; b < k / 32; ++b, w += format.block_bytes, a += a_header + 32) {
        quant::WeightGroup group;
        format.decode_groups(w, &group);
        const float scale = group.scale * load_f16(a);
        for (size_t j = 0; j < 4; ++j) {
            float &lane = acc[4 * (b % 2) + j];
            lane = std::fma(static_cast<float>(sum_lane(group.code, a + a_header, j)), scale, lane);
        }
        if (format.has_min) {
            least[b % 4] = std::fma(group.min, q8_1_sum(a), least[b % 4]);
        }
    }
    *out = format.has_min ? reduce8(acc) + reduce4(least) : reduce8(acc);
}

// Blocks of 256: f16 d, f16 dmin, scales[12], ...; activations Q8_K: f32 d, i8 q[256], i16 bsums[16].
template <nybl_format id>
void vec_dot_256(uint64_t k, const void *w_row, const void *a_row, float *out) noexcept {
    const FloatEnvironment environment;
    const quant::Format &format = *quant::find_format(id);
    constexpr size_t kActivationBytes = 292, kQuants = 4, kSums = 260;
    const auto *w = static_cast<const uint8_t *>(w_row);
    const auto *a = static_cast<const uint8_t *>(a_row);
    float acc[kLanes] = {};
    for (size_t b = 0; b < k / 256; ++b, w += format.block_bytes, a += kActivationBytes) {
        quant::WeightGroup groups[8];
        format.decode_groups(w, groups);
        const quant::KScales scales = quant::unpack_k_scales(w + 4);
        const float d = load<float>(a);
        const float scale = load_f16(w) * d;
        const float least = -(load_f16(w + 2) * d);
        for (size_t j = 0; j < kLanes; ++j) {
            int32_t sum = 0;
            for (size_t i = 0; i < 8; ++i) {
                for (size_t e = 4 * j; e < 4 * j + 4; ++e) {
                    sum += scales.scale[i] * groups[i].code[e] * load_i8(a + kQuants + 32 * i + e);
                }
            }
            const int32_t pair = load<int16_t>(a + kSums + 4 * j) + load<int16_t>(a + kSums + 4 * j + 2);
            acc[j] = std::fma(static_cast<float>(sum), scale, acc[j]);
            acc[j] = std::fma(static_cast<float>(scales.min[j] * pair), least, acc[j]);
        }
    }
    *out = reduce8(acc);
}

// Q6_K: ..., i8 scales[16], f16 d; activations Q8_K.
void vec_dot_q6_k(uint64_t k, const void *w_row, const void *a_row, float *out) noexcept {
    const FloatEnvironment environment;
    const quant::Format &format = *quant::find_format(NYBL_Q6_K);
    constexpr size_t kActivationBytes = 292, kQuants = 4, kSums = 260, kScales = 192, kScale = 208;
    const auto *w = static_cast<const uint8_t *>(w_row);
    const auto *a = static_cast<const uint8_t *>(a_row);
    float acc[kLanes] = {};
    for (size_t b = 0; b < k / 256; ++b, w += format.block_bytes, a += kActivationBytes) {
        quant::WeightGroup groups[8]; // whose codes are sc * (code - 32)
        format.decode_groups(w, groups);
        const float scale = load_f16(w + kScale) * load<float>(a);
        for (size_t j = 0; j < kLanes; ++j) {
            int32_t sum = 0;
            for (size_t i = 0; i < 8; ++i) {
                const int32_t offset = 32 * load_i8(w + kScales + 2 * i + j / 4);
                for (size_t e = 4 * j; e < 4 * j + 4; ++e) {
                    sum += (groups[i].code[e] + offset) * load_i8(a + kQuants + 32 * i + e);
                }
            }
            for (size_t half = 2 * j; half < 2 * j + 2; ++half) {
                sum -= 32 * load_i8(w + kScales + half) * load<int16_t>(a + kSums + 2 * half);
            }
            acc[j] = std::fma(static_cast<float>(sum), scale, acc[j]);
        }
    }
    *out = reduce8(acc);
}

} // namespace

nybl_vec_dot_fn find_vec_dot_reference(nybl_format format) noexcept {
    switch (format) {
    case NYBL_Q4_0:
        return vec_dot_32<NYBL_Q4_0>;
    case NYBL_Q4_1:
        return vec_dot_32<NYBL_Q4_1>;
    case NYBL_Q5_0:
        return vec_dot_32<NYBL_Q5_0>;
    case NYBL_Q5_1:
        return vec_dot_32<NYBL_Q5_1>;
    case NYBL_Q8_0:
        return vec_dot_32<NYBL_Q8_0>;
    case NYBL_IQ4_NL:
        return vec_dot_32<NYBL_IQ4_NL>;
    case NYBL_Q4_K:
        return vec_dot_256<NYBL_Q4_K>;
    case NYBL_Q5_K:
        return vec_dot_256<NYBL_Q5_K>;
    case NYBL_Q6_K:
        return vec_dot_q6_k;
    default:
        return nullptr;
    }
}

} // namespace nybl::cpu
