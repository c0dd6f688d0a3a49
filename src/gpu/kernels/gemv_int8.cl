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
#else
inline int dot_codes(uint q, uint x) { return dot_unsigned(q, x); }
#endif

// Codes of elements 4c .. 4c+3 (upper 0) or 16+4c .. (upper 1) of a group, a byte each.
inline uint code_bytes(uint chunk, uint high, uint c, uint upper) {
    uint q = chunk >> (4 * upper) & 0x0f0f0f0fu;
#if HIGH_BYTES
    q |= (high >> (c + 4 * upper) & 0x01010101u) << 4;
#endif
    return q;
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
    const Tile tile = tile_at(tiles, m, get_group_id(2), TOKENS);
    global const uchar *w = weights + tile.expert * expert_stride + panel * panel_stride;
    uint rows[TOKENS];
    float acc[TOKENS];
    for (uint t = 0; t < TOKENS; ++t) {
        rows[t] = x_row(map, tile.first + min(t, tile.count - 1));
        acc[t] = 0.0f;
    }
    for (uint group = split; group < groups; group += SPLITS) {
        const Block b = block_at(w, group / BLOCK_GROUPS, lane);
        const uint g = group % BLOCK_GROUPS, high = group_high(b, g);
        uint codes[8]; // dword i: elements 4i .. 4i+3
#pragma unroll
        for (uint c = 0; c < 4; ++c) {
            const uint chunk = group_chunk(b, g, c);
            codes[c] = code_bytes(chunk, high, c, 0);
            codes[4 + c] = code_bytes(chunk, high, c, 1);
        }
        float scale, zero;
        group_params(b, g, &scale, &zero);
        zero += (float)CODE_BIAS * scale; // scale*(q - bias) = scale*q - bias*scale
#pragma unroll
        for (uint t = 0; t < TOKENS; ++t) {
            const size_t at = ((size_t)rows[t] * groups + group) * (GROUP / 4);
#if SUBGROUPS
            const uint own = x[at + lane % 8];
#endif
            int sum = 0;
#pragma unroll
            for (uint i = 0; i < 8; ++i)
                sum += dot_codes(codes[i], x_dword(own, at, i));
            const float2 s = sums[(size_t)rows[t] * groups + group];
            acc[t] = fma((float)sum, scale * s.x, acc[t]);
#if MIN_OFFSET || CODE_BIAS
            acc[t] = fma(-zero, s.y, acc[t]);
#endif
        }
    }
    local float_r partial[PARTIALS];
    finish_tile(acc, partial, tile, map, bias, has_bias, y, y_type, y_offset, y_stride, n_rows);
}
