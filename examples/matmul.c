/* The smallest use in C: quantize 64 rows of 256 weights, multiply them with one row, name the kernel. */
#include <nybl/nybl.h>
#include <stdio.h>

int main(void) {
    static float matrix[64 * 256], x[256], y[64];
    static unsigned char q[64 * 256 / 32 * 20]; /* 20 bytes hold 32 weights */
    nybl_context *ctx = NULL;
    nybl_weights *w = NULL;
    nybl_kernel_info kernel = {.struct_size = sizeof kernel};
    nybl_weights_desc desc = {.struct_size = sizeof desc, .format = NYBL_Q4_1, .n = 64, .k = 256, .data = q};
    nybl_matmul_args args = {.struct_size = sizeof args, .m = 1, .x = x, .y = y};
    for (int i = 0; i < 64 * 256; i++)
        matrix[i] = x[i % 256] = (float)(i % 31) / 31.0f - 0.5f;
    /* NYBL_OK is 0: the first failure ends the chain, and nybl_last_error says what and where. */
    int bad = nybl_quantize(NYBL_Q4_1, 64, 256, matrix, 0, NULL, q, 0) || nybl_context_create(NULL, &ctx) ||
              nybl_weights_create(ctx, &desc, &w) || nybl_matmul(w, &args) ||
              nybl_matmul_explain(w, 1, &kernel);
    bad ? fprintf(stderr, "%s\n", nybl_last_error()) : printf("y[0] = %g, by %s\n", y[0], kernel.name);
    nybl_weights_destroy(w); /* NULL is fine */
    nybl_context_destroy(ctx);
    return bad;
}
