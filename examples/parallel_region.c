/* Inside a parallel region that the host already has (here OpenMP): every thread calls with its own number.
 */
#include <nybl/nybl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 512, K = 1024, M = 8 };

static void barrier(void *user) {
    (void)user;
#pragma omp barrier
}

int main(void) {
    static float matrix[N * K], x[M * K], y[M * N], expected[M * N];
    static unsigned char q4_0[N * K / 32 * 18];
    for (int i = 0; i < N * K; i++)
        matrix[i] = (float)(i % 23) - 11.0f;
    for (int i = 0; i < M * K; i++)
        x[i] = (float)(i % 17) - 8.0f;

    nybl_context *ctx = NULL;
    nybl_weights *w = NULL;
    nybl_context_desc context = {.struct_size = sizeof context, .n_threads = 1}; /* the threads are ours */
    nybl_weights_desc desc = {.struct_size = sizeof desc, .format = NYBL_Q4_0, .n = N, .k = K, .data = q4_0};
    nybl_matmul_args args = {.struct_size = sizeof args, .m = M, .x = x, .y = expected};
    nybl_status status = nybl_quantize(NYBL_Q4_0, N, K, matrix, 0, NULL, q4_0, 0);
    if (status == NYBL_OK)
        status = nybl_context_create(&context, &ctx);
    if (status == NYBL_OK)
        status = nybl_weights_create(ctx, &desc, &w);
    if (status == NYBL_OK)
        status = nybl_matmul(w, &args);

    /* One scratch for all threads, asked for before the region and kept for the next call. */
    size_t scratch_bytes = 0;
    const int wanted = 4;
    if (status == NYBL_OK)
        status = nybl_matmul_scratch_bytes(w, &args, (uint32_t)wanted, &scratch_bytes);
    void *scratch = malloc(scratch_bytes ? scratch_bytes : 1);
    args.y = y;
    int threads = 0;
    if (status == NYBL_OK && scratch) {
#pragma omp parallel num_threads(wanted)
        {
            const uint32_t ith = (uint32_t)omp_get_thread_num(), nth = (uint32_t)omp_get_num_threads();
            const nybl_status mine =
                nybl_matmul_part(w, &args, ith, nth, scratch, scratch_bytes, barrier, NULL);
#pragma omp critical
            {
                threads = (int)nth;
                if (mine != NYBL_OK)
                    status = mine;
            }
        }
    }
    if (status != NYBL_OK)
        fprintf(stderr, "%s: %s\n", nybl_status_string(status), nybl_last_error());
    const int same = status == NYBL_OK && memcmp(y, expected, sizeof y) == 0;
    printf("%d threads in a parallel region: %s\n", threads,
           same ? "the same bits as nybl_matmul" : "FAILED");
    free(scratch);
    nybl_weights_destroy(w);
    nybl_context_destroy(ctx);
    return !same;
}
