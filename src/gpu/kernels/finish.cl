// The end of a product kernel: adds up what the SPLITS work-items of a row hold, and stores the tile. `partial` is local memory
// for PARTIALS values.

#if SPLITS == 1
#define PARTIALS 1
#else
#define PARTIALS (SPLITS * TOKENS * LANES)
#endif

inline void finish_tile(const float_r *acc, local float_r *partial, Tile tile, global const uint2 *map,
                        global const float *bias, uint has_bias, global uchar *y, uint y_type, ulong y_offset,
                        ulong y_stride, uint n_rows) {
    const uint lane = get_local_id(0), split = get_local_id(1), n = get_group_id(0) * PANEL_ROWS + lane;
#if SPLITS > 1
    for (uint t = 0; t < TOKENS; ++t)
        partial[(split * TOKENS + t) * LANES + lane] = acc[t];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (uint t = split; t < tile.count; t += SPLITS) {
#if SPLITS > 1
        float_r sum = partial[t * LANES + lane];
        for (uint s = 1; s < SPLITS; ++s)
            sum += partial[(s * TOKENS + t) * LANES + lane];
#else
        const float_r sum = acc[t];
#endif
        store_outputs(sum, bias, has_bias, y, y_type, y_offset + y_row(map, tile.first + t) * y_stride, n, n_rows);
    }
}
