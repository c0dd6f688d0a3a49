/* The smallest use in C: quantize a matrix, multiply it with one row, ask which kernel did that. */
#include <nybl/nybl.h>
#include <stdio.h>

enum { N = 64, K = 256 };

static int failed(nybl_status status) {
    if (status != NYBL_OK)
        fprintf(stderr, "%s: %s\n", nybl_status_string(status), nybl_last_error());
    return status != NYBL_OK;
}

int main(void) {
    static float matrix[N * K], x[K], y[N];
    static unsigned char q4_1[N * K / 32 * 20]; /* 20 bytes hold 32 weights */
    for (int i = 0; i < N * K; i++)
        matrix[i] = (float)(i % 31) / 31.0f - 0.5f;
    for (int i = 0; i < K; i++)
        x[i] = (float)(i % 7);

    nybl_context *ctx = NULL;
    nybl_weights *w = NULL;
    nybl_kernel_info kernel = {.struct_size = sizeof kernel};
    nybl_weights_desc desc = {.struct_size = sizeof desc, .format = NYBL_Q4_1, .n = N, .k = K, .data = q4_1};
    nybl_matmul_args args = {.struct_size = sizeof args, .m = 1, .x = x, .y = y};
    int bad = failed(nybl_quantize(NYBL_Q4_1, N, K, matrix, 0, NULL, q4_1, 0)) ||
              failed(nybl_context_create(NULL, &ctx)) || failed(nybl_weights_create(ctx, &desc, &w)) ||
              failed(nybl_matmul(w, &args)) || failed(nybl_matmul_explain(w, args.m, &kernel));
    if (!bad)
        printf("y[0] = %g, y[%d] = %g, by %s\n", y[0], N - 1, y[N - 1], kernel.name);
    nybl_weights_destroy(w); /* NULL is fine */
    nybl_context_destroy(ctx);
    return bad;
}
