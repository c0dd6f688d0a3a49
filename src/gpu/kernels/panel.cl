// Reading packed panels (src/cpu/panel.h draws them): 16 rows, a dword of a chunk is four elements of one row.
//
// A work-item serves ROWS rows of a panel: all 16 as one vector on a CPU device, or one, so that 16 neighbours read
// 64 consecutive bytes. Both see the same code through the types uint_r and float_r.
//
// Set by the host for each format: BLOCK_BYTES, BLOCK_GROUPS, MIN_OFFSET, SCALES_OFFSET, QUANTS_OFFSET, GROUP_BYTES,
// HIGH_BYTES, CODE_BITS (offsets and sizes of PanelLayout, 0: the piece is absent), SUB_SCALES (Q6_K: each half of a
// group has a scale of its own, a signed byte), CODE_BIAS (8: code q-8) and LUT (IQ4_NL).

#if ROWS == 16
typedef uint16 uint_r;
typedef int16 int_r;
typedef float16 float_r;
#define to_float_r(v) convert_float16(v)
#define as_int_r(v) as_int16(v)
#define load_dwords(p) vload16(0, (global const uint *)(p))
#define load_bytes(p) convert_uint16(vload16(0, p))
#define load_halves(p) vload_half16(0, (global const half *)(p))
#define LANES 1
#else
typedef uint uint_r;
typedef int int_r;
typedef float float_r;
#define to_float_r(v) convert_float(v)
#define as_int_r(v) as_int(v)
#define load_dwords(p) (*(global const uint *)(p))
#define load_bytes(p) ((uint)*(p))
#define load_halves(p) vload_half(0, (global const half *)(p))
#define LANES 16
#endif

#define GROUP 32
#define PANEL_ROWS 16

// A panel block as the work-item sees it: every piece starts at its first row.
typedef struct {
    global const uchar *halves; // f16 d[16], then the minima
    global const uchar *scales; // u8 scales[12][16], or [16][16]
    global const uchar *quants; // the first group's
} Block;

inline Block block_at(global const uchar *panel, uint block, uint lane) {
    global const uchar *base = panel + (size_t)block * BLOCK_BYTES;
    Block b = {base + 2 * lane, base + SCALES_OFFSET + lane, base + QUANTS_OFFSET + 4 * lane};
    return b;
}

// scale and scaled zero point of group g of a block: w = scale*code - zero. Products are rounded to f32 once, as the
// format defines them.
inline void group_params(Block b, uint g, float_r *scale, float_r *zero) {
    const float_r d = load_halves(b.halves);
#if SCALES_OFFSET && !SUB_SCALES
    const float_r dmin = load_halves(b.halves + MIN_OFFSET);
    const uint_r own = load_bytes(b.scales + PANEL_ROWS * g), next = load_bytes(b.scales + PANEL_ROWS * (g + 4));
    uint_r sc, mn;
    if (g < 4) {
        sc = own & 63u;
        mn = next & 63u;
    } else {
        sc = (next & 15u) | (load_bytes(b.scales + PANEL_ROWS * (g - 4)) >> 6) << 4;
        mn = next >> 4 | (own >> 6) << 4;
    }
    *scale = d * to_float_r(sc);
    *zero = dmin * to_float_r(mn);
#elif MIN_OFFSET
    *scale = d;
    *zero = -load_halves(b.halves + MIN_OFFSET);
#else
    *scale = d;
    *zero = 0.0f;
#endif
}

// What multiplies the codes of half a group (elements 16*upper on) before the group's scale does: exact, as an integer and
// as a float.
#if SUB_SCALES
inline int_r half_scale(Block b, uint g, uint upper) {
    return as_int_r(load_bytes(b.scales + PANEL_ROWS * (2 * g + upper)) << 24) >> 24;
}
#define scale_half(code, scale) ((code) * (scale))
#else
inline int_r half_scale(Block b, uint g, uint upper) { return 1; }
#define scale_half(code, scale) (code)
#endif

#if LUT
constant float kValues[16] = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                              1.0f,    13.0f,   25.0f,  38.0f,  53.0f,  69.0f,  89.0f,  113.0f};
#if ROWS == 16
inline float_r value_of(uint_r q) {
    return (float16)(kValues[q.s0], kValues[q.s1], kValues[q.s2], kValues[q.s3], kValues[q.s4], kValues[q.s5],
                     kValues[q.s6], kValues[q.s7], kValues[q.s8], kValues[q.s9], kValues[q.sa], kValues[q.sb],
                     kValues[q.sc], kValues[q.sd], kValues[q.se], kValues[q.sf]);
}
#else
inline float_r value_of(uint_r q) { return kValues[q]; }
#endif
#else
inline float_r value_of(uint_r q) { return to_float_r(q) - (float)CODE_BIAS; }
#endif

// A group's chunks, each a dword of a lane, and the bits above its nibbles. Nibbles of a chunk are of both halves of the
// group; bytes are of one.
#define CHUNKS (CODE_BITS == 8 ? 8 : 4)
#define HIGHS (CODE_BITS == 6 ? 2 : 1)
#define chunk_of(c, upper) (CODE_BITS == 8 ? (c) + 4 * (upper) : (c))
#define high_of(upper) (CODE_BITS == 6 ? (upper) : 0)

inline uint_r group_high(Block b, uint g, uint i) {
#if HIGH_BYTES
    return load_dwords(b.quants + g * GROUP_BYTES + 64 * i);
#else
    return 0;
#endif
}

inline uint_r group_chunk(Block b, uint g, uint i) {
    return load_dwords(b.quants + g * GROUP_BYTES + HIGH_BYTES + 64 * i);
}

// Code of element 4c+j (upper 0) or 16+4c+j (upper 1) of a group, from its chunk and high bits.
inline float_r code_value(uint_r chunk, uint_r high, uint c, uint j, uint upper) {
#if CODE_BITS == 8
    return to_float_r(as_int_r(chunk << (24 - 8 * j)) >> 24);
#else
    uint_r q = chunk >> (8 * j + 4 * upper) & 15u;
#if CODE_BITS == 5
    q |= (high >> (8 * j + 4 * upper + c) & 1u) << 4;
#elif CODE_BITS == 6
    q |= (high >> (8 * j + 2 * c) & 3u) << 4;
#endif
    return value_of(q);
#endif
}
