/* usage: nybl_test_reload LIBRARY COPY. Two copies of the library at work in one process at the same time;
 * one copy closed and opened again many times. Prints a line per case for tests/run.py. */
#include <dlfcn.h>
#include <nybl/nybl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2048, K = 256, ROUNDS = 100, THREADS = 3 };

static float matrix[N * K], x[K];

struct library {
    void *handle;
    nybl_status (*quantize)(nybl_format, uint64_t, uint64_t, const float *, size_t, const float *, void *,
                            size_t);
    nybl_status (*context_create)(const nybl_context_desc *, nybl_context **);
    void (*context_destroy)(nybl_context *);
    nybl_status (*weights_create)(nybl_context *, const nybl_weights_desc *, nybl_weights **);
    void (*weights_destroy)(nybl_weights *);
    nybl_status (*matmul)(const nybl_weights *, const nybl_matmul_args *);
};

/* A function's address through the object pointer that dlsym gives, as POSIX has it. */
static int find(void *handle, const char *name, void *function) {
    void *address = dlsym(handle, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static int open_library(const char *path, struct library *l) {
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) {
        printf("    %s\n", dlerror());
        return 0;
    }
    return find(l->handle, "nybl_quantize", &l->quantize) &&
           find(l->handle, "nybl_context_create", &l->context_create) &&
           find(l->handle, "nybl_context_destroy", &l->context_destroy) &&
           find(l->handle, "nybl_weights_create", &l->weights_create) &&
           find(l->handle, "nybl_weights_destroy", &l->weights_destroy) &&
           find(l->handle, "nybl_matmul", &l->matmul);
}

/* A product on the library's own threads, with kernels generated at its first call. */
static int product(const struct library *l, float *y) {
    nybl_context_desc desc = {.struct_size = sizeof desc, .n_threads = THREADS};
    nybl_context *ctx = NULL;
    nybl_weights *w = NULL;
    unsigned char *blocks = malloc(N * K / 32 * 20);
    nybl_weights_desc weights = {
        .struct_size = sizeof weights, .format = NYBL_Q4_1, .n = N, .k = K, .data = blocks};
    nybl_matmul_args args = {.struct_size = sizeof args, .m = 1, .x = x, .y = y};
    int right = blocks && l->quantize(NYBL_Q4_1, N, K, matrix, 0, NULL, blocks, 0) == NYBL_OK &&
                l->context_create(&desc, &ctx) == NYBL_OK && l->weights_create(ctx, &weights, &w) == NYBL_OK;
    for (int i = 0; right && i < 20; i++)
        right = l->matmul(w, &args) == NYBL_OK;
    l->weights_destroy(w);
    l->context_destroy(ctx);
    free(blocks);
    return right;
}

static float expected[N];

static void *work(void *library) {
    static const char wrong[] = "wrong";
    float *y = malloc(sizeof expected);
    int right = y != NULL;
    for (int i = 0; right && i < 10; i++)
        right = product(library, y) && memcmp(y, expected, sizeof expected) == 0;
    free(y);
    return right ? NULL : (void *)wrong;
}

static int side_by_side(const char *path, const char *copy) {
    struct library one, two;
    pthread_t a, b;
    void *wrong_a = NULL, *wrong_b = NULL;
    if (!open_library(path, &one) || !open_library(copy, &two) || one.matmul == two.matmul ||
        !product(&one, expected))
        return 0;
    if (pthread_create(&a, NULL, work, &one) || pthread_create(&b, NULL, work, &two))
        return 0;
    pthread_join(a, &wrong_a);
    pthread_join(b, &wrong_b);
    /* One goes, the other goes on. */
    dlclose(two.handle);
    return !wrong_a && !wrong_b && work(&one) == NULL;
}

/* Bytes of executable memory that belongs to no file: generated code, and the kernel's own page. */
static unsigned long generated_bytes(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8], path[256];
    unsigned long begin = 0, end = 0, bytes = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        path[0] = '\0';
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &begin, &end, rights, path) >= 3 &&
            rights[2] == 'x' && path[0] != '/')
            bytes += end - begin;
    }
    if (maps)
        fclose(maps);
    return bytes;
}

static int again_and_again(const char *copy) {
    static float y[N];
    unsigned long bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct library l;
        if (!open_library(copy, &l) || !product(&l, y) || memcmp(y, expected, sizeof y) != 0 ||
            dlclose(l.handle) != 0)
            return 0;
        if (round == 0)
            bytes = generated_bytes();
    }
    printf("    generated code: %lu bytes after the first time, then %lu\n", bytes, generated_bytes());
    return bytes != 0 && generated_bytes() == bytes;
}

static int report(const char *name, int right) {
    printf(right ? "ok %s\n" : "not ok %s: see the log\n", name);
    return right;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    for (int i = 0; i < N * K; i++)
        matrix[i] = (float)(i % 31) / 31.0f - 0.5f;
    for (int i = 0; i < K; i++)
        x[i] = (float)(i % 7);
    int right =
        report("two copies compute side by side, and one outlives the other", side_by_side(argv[1], argv[2]));
    right &= report("the library is closed and opened again without a loss", again_and_again(argv[2]));
    return !right;
}
