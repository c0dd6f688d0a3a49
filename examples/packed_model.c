/* A model that nybl-pack packed: opened by mapping, every matrix in it multiplied once. */
#include <nybl/nybl_pack.h>
#include <stdio.h>
#include <stdlib.h>

static nybl_status multiply(nybl_pack *file, const nybl_pack_tensor *tensor) {
    nybl_weights *w = NULL;
    float *x = calloc(tensor->k, sizeof *x), *y = calloc(tensor->n, sizeof *y);
    nybl_status status = x && y ? nybl_pack_weights(file, tensor->name, &w) : NYBL_OUT_OF_MEMORY;
    if (status == NYBL_OK) {
        nybl_matmul_args args = {.struct_size = sizeof args, .m = 1, .x = x, .y = y};
        for (uint64_t i = 0; i < tensor->k; i++)
            x[i] = 1.0f;
        status = nybl_matmul(w, &args);
    }
    if (status == NYBL_OK)
        printf("%s: %llu x %llu, y[0] = %g\n", tensor->name, (unsigned long long)tensor->n,
               (unsigned long long)tensor->k, y[0]);
    nybl_weights_destroy(w);
    free(x);
    free(y);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL.nybl (nybl-pack makes one from a GGUF file)\n", argv[0]);
        return 2;
    }
    nybl_context *ctx = NULL;
    nybl_pack *file = NULL;
    uint64_t count = 0;
    nybl_status status = nybl_context_create(NULL, &ctx);
    if (status == NYBL_OK)
        status = nybl_pack_open(ctx, argv[1], NULL, &file);
    if (status == NYBL_OK)
        status = nybl_pack_count(file, &count);
    for (uint64_t i = 0; i < count && status == NYBL_OK; i++) {
        nybl_pack_tensor tensor = {.struct_size = sizeof tensor};
        status = nybl_pack_at(file, i, &tensor);
        if (status == NYBL_OK && tensor.storage == NYBL_STORAGE_PACKED && tensor.n_experts == 1)
            status = multiply(file, &tensor);
    }
    if (status != NYBL_OK)
        fprintf(stderr, "%s: %s\n", nybl_status_string(status), nybl_last_error());
    nybl_pack_close(file);
    nybl_context_destroy(ctx);
    return status != NYBL_OK;
}
