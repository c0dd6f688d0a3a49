/* One matrix over several MPI ranks: mpirun -n 4 example_mpi_split. Split along N, each rank has some rows of
 * W and the outputs are gathered: the same bits as one rank. Split along K, each rank has some columns and
 * the outputs are summed: f32 sums in another order, so close, not equal. */
#include <math.h>
#include <mpi.h>
#include <nybl/nybl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 96, K = 1024, M = 3, BLOCK = 32, BLOCK_BYTES = 20 }; /* Q4_1 */

static void stop_on(nybl_status status) {
    if (status == NYBL_OK)
        return;
    fprintf(stderr, "%s\n", nybl_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* y[M, n] = x * rows^T for n rows of k elements; strides in bytes, so that a part of a larger matrix is used
 * where it lies. */
static void product(nybl_context *ctx, uint64_t n, uint64_t k, const unsigned char *rows, size_t row_stride,
                    const float *x, float *y) {
    nybl_weights *w = NULL;
    nybl_weights_desc desc = {.struct_size = sizeof desc,
                              .format = NYBL_Q4_1,
                              .n = n,
                              .k = k,
                              .data = rows,
                              .row_stride = row_stride};
    nybl_matmul_args args = {.struct_size = sizeof args, .m = M, .x = x, .x_stride = K * sizeof *x, .y = y};
    stop_on(nybl_weights_create(ctx, &desc, &w));
    stop_on(nybl_matmul(w, &args));
    nybl_weights_destroy(w);
}

static int begin_of(int rank, int ranks, int total) {
    return (int)((long)total * rank / ranks);
}

/* Rank r computes columns [begin, end) of y; all gather, then each puts the pieces side by side. */
static void split_n(nybl_context *ctx, int rank, int ranks, const unsigned char *blocks, const float *x,
                    float *y) {
    const size_t row_bytes = K / BLOCK * BLOCK_BYTES;
    const int begin = begin_of(rank, ranks, N), n = begin_of(rank + 1, ranks, N) - begin;
    float mine[M * N], all[M * N];
    int counts[N], places[N];
    for (int r = 0; r < ranks; r++) {
        counts[r] = M * (begin_of(r + 1, ranks, N) - begin_of(r, ranks, N));
        places[r] = M * begin_of(r, ranks, N);
    }
    product(ctx, (uint64_t)n, K, blocks + (size_t)begin * row_bytes, 0, x, mine);
    MPI_Allgatherv(mine, M * n, MPI_FLOAT, all, counts, places, MPI_FLOAT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++) {
        const int first = begin_of(r, ranks, N), width = counts[r] / M;
        for (int m = 0; m < M; m++)
            memcpy(y + m * N + first, all + places[r] + m * width, (size_t)width * sizeof *y);
    }
}

/* Rank r has blocks [begin, end) of every row, and the same part of x. */
static void split_k(nybl_context *ctx, int rank, int ranks, const unsigned char *blocks, const float *x,
                    float *y) {
    const int begin = begin_of(rank, ranks, K / BLOCK), count = begin_of(rank + 1, ranks, K / BLOCK) - begin;
    float mine[M * N];
    product(ctx, N, (uint64_t)count * BLOCK, blocks + begin * BLOCK_BYTES, K / BLOCK * BLOCK_BYTES,
            x + begin * BLOCK, mine);
    MPI_Allreduce(mine, y, M * N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > K / BLOCK) { /* at most one rank for each block of K */
        fprintf(stderr, "at most %d ranks\n", K / BLOCK);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    /* Every rank makes the same matrix here; an engine would read its own part of a file. */
    static float matrix[N * K], x[M * K];
    static unsigned char blocks[N * K / BLOCK * BLOCK_BYTES];
    for (int i = 0; i < N * K; i++)
        matrix[i] = (float)(i * 29 % 97) / 97.0f - 0.5f;
    for (int i = 0; i < M * K; i++)
        x[i] = (float)(i % 19) - 9.0f;
    nybl_context *ctx = NULL;
    nybl_context_desc desc = {.struct_size = sizeof desc, .n_threads = 1};
    stop_on(nybl_context_create(&desc, &ctx));
    stop_on(nybl_quantize(NYBL_Q4_1, N, K, matrix, 0, NULL, blocks, 0));

    float whole[M * N], by_n[M * N], by_k[M * N], error = 0.0f, largest = 0.0f;
    product(ctx, N, K, blocks, 0, x, whole);
    split_n(ctx, rank, ranks, blocks, x, by_n);
    split_k(ctx, rank, ranks, blocks, x, by_k);
    for (int i = 0; i < M * N; i++) {
        error = fmaxf(error, fabsf(by_k[i] - whole[i]));
        largest = fmaxf(largest, fabsf(whole[i]));
    }
    const int same = memcmp(by_n, whole, sizeof whole) == 0, near = error <= 1e-5f * largest;
    if (rank == 0)
        printf("%d ranks: split along N %s, split along K within %g of %g\n", ranks,
               same ? "equal bits" : "OTHER BITS", (double)error, (double)largest);
    nybl_context_destroy(ctx);
    MPI_Finalize();
    return !(same && near);
}
