// Activations as the products read them: x_elem, and the sum of each group of 32 for formats with a zero point.
// One work-item per group and row. x_offset and x_stride count elements.

kernel void prepare(global const uchar *x, uint x_type, ulong x_offset, ulong x_stride, uint groups,
                    global x_elem *prepared, global float *sums) {
    const size_t group = get_global_id(0), row = get_global_id(1);
    const size_t from = x_offset + row * x_stride + group * GROUP, to = (row * groups + group) * GROUP;
    float sum = 0.0f;
    for (uint i = 0; i < GROUP; ++i) {
        store_x(load_element(x, x_type, from + i), prepared, to + i);
        sum += load_x(prepared, to + i);
    }
    sums[row * groups + group] = sum;
}
