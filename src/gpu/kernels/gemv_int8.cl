// Decode and prefill with int8 activations: four products per integer dot, exact within a group. For devices whose
// work-items are rows. A dword of a chunk holds four consecutive elements, as a dword of activations does.

// OpenCL C 3.0 alone declares the integer dot, whatever the device's extensions say.
#if defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define dot_unsigned(w, x) dot_4x8packed_us_int(w, x)
#define dot_signed(w, x) dot_4x8packed_ss_int(w, x)
#else
inline int dot_unsigned(uint w, uint x) {
    const uchar4 a = as_uchar4(w);
    const char4 b = as_char4(x);
    return (int)a.x * b.x + (int)a.y * b.y + (int)a.z * b.z + (int)a.w * b.w;
}
inline int dot_signed(uint w, uint x) {
    const char4 a = as_char4(w), b = as_char4(x);
    return (int)a.x * b.x + (int)a.y * b.y + (int)a.z * b.z + (int)a.w * b.w;
}
#endif

#if LUT
// The codes of IQ4_NL as bytes.
constant uchar kBytes[16] = {0x81, 0x98, 0xad, 0xbf, 0xcf, 0xdd, 0xea, 0xf6,
                             0x01, 0x0d, 0x19, 0x26, 0x35, 0x45, 0x59, 0x71};
inline int dot_codes(uint q, uint x) {
    const uchar4 i = as_uchar4(q);
    return dot_signed(as_uint((uchar4)(kBytes[i.x], kBytes[i.y], kBytes[i.z], kBytes[i.w])), x);
}
#elif CODE_BITS == 8
inline int dot_codes(uint q, uint x) { return dot_signed(q, x); }
#elif SUB_SCALES
inline int dot_codes(uint q, uint x) { return dot_signed(as_uint(as_char4(q) - (char4)CODE_BIAS), x); }
#else
// What the bias adds is taken off with the zero point.
#define BIAS_IN_ZERO CODE_BIAS
inline int dot_codes(uint q, uint x) { return dot_unsigned(q, x); }
#endif
#ifndef BIAS_IN_ZERO
#define BIAS_IN_ZERO 0
#endif

// Codes of elements 4c .. 4c+3 (upper 0) or 16+4c .. (upper 1) of a group, a byte each.
inline uint code_bytes(uint chunk, uint high, uint c, uint upper) {
#if CODE_BITS == 8
    return chunk;
#else
    uint q = chunk >> (4 * upper) & 0x0f0f0f0fu;
#if CODE_BITS == 5
    q |= (high >> (c + 4 * upper) & 0x01010101u) << 4;
#elif CODE_BITS == 6
    q |= (high >> (2 * c) & 0x03030303u) << 4;
#endif
    return q;
#endif
}

// Dword i of a token's group of activations: with sub-groups, lane i holds it.
#if SUBGROUPS
#define x_dword(own, at, i) sub_group_broadcast(own, i)
#else
#define x_dword(own, at, i) x[(at) + (i)]
#endif

#if SUBGROUPS
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__attribute__((reqd_work_group_size(LANES, SPLITS, 1)))
kernel void gemv(global const uchar *weights, ulong panel_stride, ulong expert_stride, uint n_rows, uint groups,
                 global const uint *x, global const float2 *sums, global const uint4 *tiles,
                 global const uint2 *map, uint m, global const float *bias, uint has_bias, global uchar *y,
                 uint y_type, ulong y_offset, ulong y_stride) {
    const uint lane = get_local_id(0), split = get_local_id(1), panel = get_group_id(0);
    uint rows[TOKENS];
    float_r acc[TOKENS];
    const Tile tile = start_tile(tiles, map, m, rows, acc);
    global const uchar *w = weights + tile.expert * expert_stride + panel * panel_stride;
    for (uint group = split; group < groups; group += SPLITS) {
        const Block b = block_at(w, group / BLOCK_GROUPS, lane);
        const uint g = group % BLOCK_GROUPS;
        uint codes[8]; // dword i: elements 4i .. 4i+3
        int scales_of_halves[2];
#pragma unroll
        for (uint upper = 0; upper < 2; ++upper) {
            const uint high = group_high(b, g, high_of(upper));
            scales_of_halves[upper] = half_scale(b, g, upper);
#pragma unroll
            for (uint c = 0; c < 4; ++c)
                codes[4 * upper + c] = code_bytes(group_chunk(b, g, chunk_of(c, upper)), high, c, upper);
        }
        float scale, zero;
        group_params(b, g, &scale, &zero);
        zero += (float)BIAS_IN_ZERO * scale; // scale*(q - bias) = scale*q - bias*scale
#pragma unroll
        for (uint t = 0; t < TOKENS; ++t) {
            const size_t at = ((size_t)rows[t] * groups + group) * (GROUP / 4);
#if SUBGROUPS
            const uint own = x[at + lane % 8];
#endif
            int sum = 0;
#pragma unroll
            for (uint upper = 0; upper < 2; ++upper) {
                int sum_of_half = 0;
#pragma unroll
                for (uint c = 0; c < 4; ++c)
                    sum_of_half += dot_codes(codes[4 * upper + c], x_dword(own, at, 4 * upper + c));
                sum += scale_half(sum_of_half, scales_of_halves[upper]);
            }
            const float2 s = sums[(size_t)rows[t] * groups + group];
            acc[t] = fma((float)sum, scale * s.x, acc[t]);
#if MIN_OFFSET || BIAS_IN_ZERO
            acc[t] = fma(-zero, s.y, acc[t]);
#endif
        }
    }
    local float_r partial[PARTIALS];
    finish_tile(acc, partial, tile, map, bias, has_bias, y, y_type, y_offset, y_stride, n_rows);
}
