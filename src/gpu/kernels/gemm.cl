// Prefill: a work-group computes 8*TOKENS tokens x 16 rows. For each group of 32 along K its work-items unpack the
// panel's weights and the tokens' activations into local memory once, and then multiply from there.

#define TEAMS 8 // work-items (or rows of 16) along tokens: as many as a group has half chunks
#define TILE_TOKENS (TEAMS * TOKENS)

__attribute__((reqd_work_group_size(LANES, TEAMS, 1)))
kernel void gemm(global const uchar *weights, ulong panel_stride, ulong expert_stride, uint n_rows, uint groups,
                 global const x_elem *x, global const float *sums, global const uint4 *tiles,
                 global const uint2 *map, uint m, global const float *bias, uint has_bias, global uchar *y,
                 uint y_type, ulong y_offset, ulong y_stride) {
    local float_r w_tile[GROUP][LANES];
    local float x_tile[TILE_TOKENS][GROUP];
    const uint lane = get_local_id(0), team = get_local_id(1), panel = get_group_id(0);
    const Tile tile = tile_at(tiles, m, get_group_id(2), TILE_TOKENS);
    global const uchar *w = weights + tile.expert * expert_stride + panel * panel_stride;
    const uint c = team / 2, upper = team % 2; // the half chunk that this work-item unpacks
    float_r acc[TOKENS];
    for (uint t = 0; t < TOKENS; ++t)
        acc[t] = 0.0f;
    for (uint group = 0; group < groups; ++group) {
        const Block b = block_at(w, group / BLOCK_GROUPS, lane);
        const uint g = group % BLOCK_GROUPS;
        float_r scale, zero;
        group_params(b, g, &scale, &zero);
        const uint_r chunk = group_chunk(b, g, chunk_of(c, upper)), high = group_high(b, g, high_of(upper));
        scale = scale_half(scale, to_float_r(half_scale(b, g, upper)));
        for (uint j = 0; j < 4; ++j)
            w_tile[16 * upper + 4 * c + j][lane] = fma(scale, code_value(chunk, high, c, j, upper), -zero);
        for (uint t = 0; t < TOKENS; ++t) {
            const uint token = team * TOKENS + t;
            const size_t row = x_row(map, tile.first + min(token, tile.count - 1));
            for (uint i = lane; i < GROUP; i += LANES)
                x_tile[token][i] = load_x(x, (row * groups + group) * GROUP + i);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < GROUP; ++i) {
            const float_r weight = w_tile[i][lane];
#pragma unroll
            for (uint t = 0; t < TOKENS; ++t)
                acc[t] = fma(weight, (float_r)x_tile[team * TOKENS + t][i], acc[t]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint t = 0; t < TOKENS && team * TOKENS + t < tile.count; ++t)
        store_outputs(acc[t], bias, has_bias, y, y_type,
                      y_offset + y_row(map, tile.first + team * TOKENS + t) * y_stride,
                      panel * PANEL_ROWS + lane, n_rows);
}
