/* Mixture of experts: one handle for all of them, one call for all tokens and their chosen experts. */
#include <nybl/nybl.h>
#include <stdio.h>

enum { EXPERTS = 4, N = 32, K = 64, TOKENS = 3, SLOTS = 2 };

int main(void) {
    /* Expert e has the constant e + 1 everywhere, so its outputs are (e + 1) times the sum of x. */
    static float matrices[EXPERTS * N * K], x[TOKENS * K], y[TOKENS * SLOTS * N];
    for (int i = 0; i < EXPERTS * N * K; i++)
        matrices[i] = (float)(i / (N * K) + 1);
    for (int i = 0; i < TOKENS * K; i++)
        x[i] = (float)(i / K + 1);
    const int32_t ids[TOKENS * SLOTS] = {0, 3, /**/ 2, 2, /**/ 1, -1}; /* -1: no expert, zeros */

    nybl_context *ctx = NULL;
    nybl_weights *w = NULL;
    nybl_weights_desc desc = {
        .struct_size = sizeof desc, .format = NYBL_Q4_1, .n = N, .k = K, .n_experts = EXPERTS};
    nybl_matmul_id_args args = {
        .struct_size = sizeof args, .n_tokens = TOKENS, .n_slots = SLOTS, .ids = ids, .x = x, .y = y};
    nybl_status status = nybl_context_create(NULL, &ctx);
    if (status == NYBL_OK)
        status = nybl_weights_quantize(ctx, &desc, matrices, 0, NULL, NULL, &w);
    if (status == NYBL_OK)
        status = nybl_matmul_id(w, &args);
    if (status != NYBL_OK)
        fprintf(stderr, "%s: %s\n", nybl_status_string(status), nybl_last_error());
    for (int t = 0; t < TOKENS && status == NYBL_OK; t++)
        printf("token %d: expert %2d gives %g, expert %2d gives %g\n", t, ids[t * SLOTS], y[t * SLOTS * N],
               ids[t * SLOTS + 1], y[(t * SLOTS + 1) * N]);
    nybl_weights_destroy(w);
    nybl_context_destroy(ctx);
    return status != NYBL_OK;
}
