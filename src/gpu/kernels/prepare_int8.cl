// Activations as int8 with one step per group of 32, the way the CPU quantises them (docs/numerics.md), and for each group
// its step and the step times the sum of its codes. One work-item per group and row; x_offset and x_stride count elements.

kernel void prepare(global const uchar *x, uint x_type, ulong x_offset, ulong x_stride, uint groups,
                    global char *prepared, global float2 *sums) {
    const size_t group = get_global_id(0), row = get_global_id(1);
    const size_t from = x_offset + row * x_stride + group * GROUP, to = (row * groups + group) * GROUP;
    float largest = 0.0f;
    bool finite = true;
    for (uint i = 0; i < GROUP; ++i) {
        const float v = load_element(x, x_type, from + i);
        finite = finite && isfinite(v);
        largest = fmax(largest, fabs(v));
    }
    const float step = largest / 127.0f, inverse = 1.0f / step;
    const bool usable = finite && isfinite(inverse); // not where all are 0, or too small
    int sum = 0;
    for (uint i = 0; i < GROUP; ++i) {
        const float v = load_element(x, x_type, from + i);
        const int q = usable ? clamp(convert_int_rte(v * inverse), -127, 127) : 0;
        prepared[to + i] = (char)q;
        sum += q;
    }
    const float kept = usable ? step : finite ? 0.0f : NAN;
    sums[row * groups + group] = (float2)(kept, kept * (float)sum);
}
