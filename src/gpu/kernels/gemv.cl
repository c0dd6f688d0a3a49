// Decode: each weight is read once for up to TOKENS tokens. A work-group serves one panel; its SPLITS work-items (or
// rows of 16 work-items) share the groups along K and add up in local memory.
//
// y = sum over groups of scale*(codes . x) - zero*(sum of x): the scaled zero point is subtracted after scaling, and
// never divided by the scale.

#if TOKENS < 4 || ROWS == 16
#define CHAINS 2 // sums per token: two hide the latency of fma where there are few, or registers to spare
#else
#define CHAINS 1
#endif

// The activations of half a group (elements 16*upper on) for all tokens: with sub-groups each lane holds one element, and
// lanes read each other's.
#if SUBGROUPS
typedef struct {
    float own[TOKENS];
} HalfX;
#define x_value(hx, t, e) sub_group_broadcast((hx).own[t], e)
#else
typedef struct {
    size_t at[TOKENS];
} HalfX;
#define x_value(hx, t, e) load_x(x, (hx).at[t] + (e))
#endif

inline HalfX load_half_x(global const x_elem *x, const uint *rows, uint groups, uint group, uint upper, uint lane) {
    HalfX hx;
    for (uint t = 0; t < TOKENS; ++t) {
        const size_t at = ((size_t)rows[t] * groups + group) * GROUP + 16 * upper;
#if SUBGROUPS
        hx.own[t] = load_x(x, at + lane);
#else
        hx.at[t] = at;
#endif
    }
    return hx;
}

#if SUBGROUPS
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__attribute__((reqd_work_group_size(LANES, SPLITS, 1)))
kernel void gemv(global const uchar *weights, ulong panel_stride, ulong expert_stride, uint n_rows, uint groups,
                 global const x_elem *x, global const float *sums, global const uint4 *tiles,
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
        uint_r chunks[CHUNKS], highs[HIGHS];
        float_r sums_of_group[CHAINS][TOKENS];
#pragma unroll
        for (uint i = 0; i < CHUNKS; ++i)
            chunks[i] = group_chunk(b, g, i);
#pragma unroll
        for (uint i = 0; i < HIGHS; ++i)
            highs[i] = group_high(b, g, i);
        for (uint t = 0; t < TOKENS; ++t)
            for (uint chain = 0; chain < CHAINS; ++chain)
                sums_of_group[chain][t] = 0.0f;
        // Halves one after the other: the activations of only one are in registers at a time.
#pragma unroll
        for (uint upper = 0; upper < 2; ++upper) {
            const HalfX hx = load_half_x(x, rows, groups, group, upper, lane);
            const float_r scale_of_half = to_float_r(half_scale(b, g, upper));
#pragma unroll
            for (uint i = 0; i < 16; ++i) {
                const float_r value =
                    code_value(chunks[chunk_of(i / 4, upper)], highs[high_of(upper)], i / 4, i % 4, upper);
                const float_r code = scale_half(value, scale_of_half);
#pragma unroll
                for (uint t = 0; t < TOKENS; ++t)
                    sums_of_group[i % CHAINS][t] = fma(code, (float_r)x_value(hx, t, i), sums_of_group[i % CHAINS][t]);
            }
        }
        float_r scale, zero;
        group_params(b, g, &scale, &zero);
        for (uint t = 0; t < TOKENS; ++t) {
            float_r sum = sums_of_group[0][t];
#if CHAINS == 2
            sum += sums_of_group[1][t];
#endif
            acc[t] = fma(scale, sum, acc[t]);
#if MIN_OFFSET
            acc[t] = fma(-zero, (float_r)sums[(size_t)rows[t] * groups + group], acc[t]);
#endif
        }
    }
    local float_r partial[PARTIALS];
    finish_tile(acc, partial, tile, map, bias, has_bias, y, y_type, y_offset, y_stride, n_rows);
}
