// Activations in, outputs out: element types, and which rows a tile of tokens is.
//
// X_HALF: prepared activations are kept as f16, else as f32; arithmetic is in f32 either way. EXPERTS: tiles come from a
// list that the host sorted by expert.

#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_BF16 30

#if X_HALF
typedef half x_elem;
#define load_x(p, i) vload_half(i, p)
#define store_x(v, p, i) vstore_half_rte(v, i, p)
#else
typedef float x_elem;
#define load_x(p, i) ((p)[i])
#define store_x(v, p, i) ((p)[i] = (v))
#endif

inline float load_element(global const uchar *x, uint type, size_t i) {
    if (type == TYPE_F32)
        return ((global const float *)x)[i];
    if (type == TYPE_F16)
        return vload_half(i, (global const half *)x);
    return as_float((uint)((global const ushort *)x)[i] << 16);
}

inline void store_element(float v, global uchar *y, uint type, size_t i) {
    if (type == TYPE_F32) {
        ((global float *)y)[i] = v;
    } else if (type == TYPE_F16) {
        vstore_half_rte(v, i, (global half *)y);
    } else {
        const uint bits = as_uint(v);
        const uint rounded = bits + 0x7fffu + (bits >> 16 & 1u);
        ((global ushort *)y)[i] = (ushort)(isnan(v) ? bits >> 16 | 0x40u : rounded >> 16);
    }
}

// Bias and store of the ROWS outputs of one token that start at weight row n; the token's are from y_at on.
inline void store_outputs(float_r acc, global const float *bias, uint has_bias, global uchar *y, uint y_type,
                          size_t y_at, uint n, uint n_rows) {
#if ROWS == 16
    float values[16];
    vstore16(acc, 0, values);
#else
    const float values[1] = {acc};
#endif
    for (uint i = 0; i < ROWS && n + i < n_rows; ++i)
        store_element(has_bias ? values[i] + bias[n + i] : values[i], y, y_type, y_at + n + i);
}

// Up to tile_tokens output rows of one weight matrix.
typedef struct {
    uint expert, first, count;
} Tile;

// `tiles` holds (expert, first, count, 0), `map` the row of X and of Y for each entry; without experts tile i is the
// rows from i*tile_tokens on, of both.
#if EXPERTS
inline Tile tile_at(global const uint4 *tiles, uint m, uint i, uint tile_tokens) {
    const Tile t = {tiles[i].x, tiles[i].y, tiles[i].z};
    return t;
}
#define x_row(map, i) ((map)[i].x)
#define y_row(map, i) ((map)[i].y)
#else
inline Tile tile_at(global const uint4 *tiles, uint m, uint i, uint tile_tokens) {
    const uint first = i * tile_tokens;
    const Tile t = {0, first, min(tile_tokens, m - first)};
    return t;
}
#define x_row(map, i) (i)
#define y_row(map, i) (i)
#endif

// The tile of a work-item that holds sums for all of its tokens: their rows of X (the last token's again where the tile
// is not full), and sums of zero.
inline Tile start_tile(global const uint4 *tiles, global const uint2 *map, uint m, uint *rows, float_r *acc) {
    const Tile tile = tile_at(tiles, m, get_group_id(2), TOKENS);
    for (uint t = 0; t < TOKENS; ++t) {
        rows[t] = x_row(map, tile.first + min(t, tile.count - 1));
        acc[t] = 0.0f;
    }
    return tile;
}
