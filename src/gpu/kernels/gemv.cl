// Decode: each weight is read once for up to TOKENS tokens. A work-group serves one panel; its SPLITS work-items (or
// rows of 16 work-items) share the groups along K and add up in local memory.
//
// y = sum over groups of scale*(codes . x) - zero*(sum of x): the scaled zero point is subtracted after scaling, and
// never divided by the scale.

// The activations of one group: with subgroups each lane loads two elements, and lanes read each other's.
#if SUBGROUPS
typedef struct {
    float low[TOKENS], upper[TOKENS];
} GroupX;
#define x_low(gx, t, e) sub_group_broadcast(gx.low[t], e)
#define x_upper(gx, t, e) sub_group_broadcast(gx.upper[t], e)
#else
typedef struct {
    size_t at[TOKENS];
} GroupX;
#define x_low(gx, t, e) load_x(x, gx.at[t] + (e))
#define x_upper(gx, t, e) load_x(x, gx.at[t] + 16 + (e))
#endif

inline GroupX load_group_x(global const x_elem *x, const size_t *rows, uint groups, uint group, uint lane) {
    GroupX gx;
    for (uint t = 0; t < TOKENS; ++t) {
        const size_t at = (rows[t] * groups + group) * GROUP;
#if SUBGROUPS
        gx.low[t] = load_x(x, at + lane);
        gx.upper[t] = load_x(x, at + 16 + lane);
#else
        gx.at[t] = at;
#endif
    }
    return gx;
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
    const Tile tile = tile_at(tiles, m, get_group_id(2), TOKENS);
    global const uchar *w = weights + tile.expert * expert_stride + panel * panel_stride;
    size_t rows[TOKENS];
    float_r acc[TOKENS];
    for (uint t = 0; t < TOKENS; ++t) {
        rows[t] = x_row(map, tile.first + min(t, tile.count - 1));
        acc[t] = 0.0f;
    }
    for (uint group = split; group < groups; group += SPLITS) {
        const Block b = block_at(w, group / BLOCK_GROUPS, lane);
        const uint g = group % BLOCK_GROUPS;
        const GroupX gx = load_group_x(x, rows, groups, group, lane);
        const uint_r high = group_high(b, g);
        float_r low_sum[TOKENS], upper_sum[TOKENS]; // two chains hide the latency of fma
        for (uint t = 0; t < TOKENS; ++t)
            low_sum[t] = upper_sum[t] = 0.0f;
#pragma unroll
        for (uint c = 0; c < 4; ++c) {
            const uint_r chunk = group_chunk(b, g, c);
#pragma unroll
            for (uint j = 0; j < 4; ++j) {
                const float_r low = code_value(chunk, high, c, j, 0), upper = code_value(chunk, high, c, j, 1);
#pragma unroll
                for (uint t = 0; t < TOKENS; ++t) {
                    low_sum[t] = fma(low, (float_r)x_low(gx, t, 4 * c + j), low_sum[t]);
                    upper_sum[t] = fma(upper, (float_r)x_upper(gx, t, 4 * c + j), upper_sum[t]);
                }
            }
        }
        float_r scale, zero;
        group_params(b, g, &scale, &zero);
        for (uint t = 0; t < TOKENS; ++t) {
            acc[t] = fma(scale, low_sum[t] + upper_sum[t], acc[t]);
#if MIN_OFFSET
            acc[t] = fma(-zero, (float_r)sums[rows[t] * groups + group], acc[t]);
#endif
        }
    }
    const uint n = panel * PANEL_ROWS + lane;
#if SPLITS == 1
    for (uint t = 0; t < tile.count; ++t)
        store_outputs(acc[t], bias, has_bias, y, y_type, y_offset + y_row(map, tile.first + t) * y_stride, n,
                      n_rows);
#else
    local float_r partial[SPLITS][TOKENS][LANES];
    for (uint t = 0; t < TOKENS; ++t)
        partial[split][t][lane] = acc[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = split; t < tile.count; t += SPLITS) {
        float_r sum = partial[0][t][lane];
        for (uint s = 1; s < SPLITS; ++s)
            sum += partial[s][t][lane];
        store_outputs(sum, bias, has_bias, y, y_type, y_offset + y_row(map, tile.first + t) * y_stride, n,
                      n_rows);
    }
#endif
}
