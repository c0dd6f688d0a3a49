/* nybl_pack.h: whole models of packed weights in one file, which is mapped instead of read and packed again.
 *
 * The program nybl-pack makes such a file from a GGUF model (docs/packed-models.md, which also describes the
 * bytes). Opening one maps it and checks its header and its index; a tensor's bytes are read from the disk
 * when a product first touches them, and processes that use the same file share its memory.
 *
 * The bytes are not trusted. What could send a reader astray (sizes, offsets, names, layouts) is checked when
 * the file is opened; the weights themselves only where options->verify asks for it: wrong ones give wrong
 * numbers and nothing worse. A file must not be written to while it is open; replace it by renaming another
 * one over it, as nybl-pack does. The rules at the head of nybl.h hold here too.
 */
#ifndef NYBL_PACK_H
#define NYBL_PACK_H
#include <nybl/nybl.h>
#ifdef __cplusplus
extern "C" {
#endif

/* An open file. Weights made from it hold it: it stays mapped until it is closed and the last of them goes.
 */
typedef struct nybl_pack nybl_pack;

typedef struct nybl_pack_options {
    size_t struct_size;
    uint32_t verify; /* 1: read every tensor and compare its checksum */
    /* Called while verifying; non-zero: stop with NYBL_CANCELLED. May be NULL. */
    int (*progress)(void *user, uint64_t bytes_done, uint64_t bytes);
    void *user;
} nybl_pack_options;

typedef struct nybl_pack_tensor {
    size_t struct_size;
    const char *name;         /* the file's, valid while it is mapped */
    nybl_format format;       /* also numbers of GGUF that nybl_format does not list */
    nybl_storage storage;     /* packed, or the original bytes of the model file */
    uint64_t n, k, n_experts; /* rows, elements of a row, matrices (at least 1) */
    const void *data;         /* 64-byte aligned, inside the mapping */
    size_t data_size;
    uint64_t layout_id; /* as nybl_weights_packed gives it; 0 for original storage */
} nybl_pack_tensor;

/* Maps a file for use with ctx, which it holds. options NULL: all defaults. NYBL_INVALID_ARGUMENT: the file
 * cannot be opened. NYBL_INVALID_DATA: not such a file, cut short, or damaged. NYBL_UNSUPPORTED: of another
 * version of this library, so that the model has to be packed again. */
NYBL_API nybl_status nybl_pack_open(nybl_context *ctx, const char *path, const nybl_pack_options *options,
                                    nybl_pack **pack);

/* Gives the host's hold on the file back. NULL is fine. */
NYBL_API void nybl_pack_close(nybl_pack *pack);

/* Tensors by name, or by index in [0, count) in the order of their names. tensor->struct_size is read, the
 * rest written. NYBL_INVALID_ARGUMENT: no such tensor. */
NYBL_API nybl_status nybl_pack_count(const nybl_pack *pack, uint64_t *count);
NYBL_API nybl_status nybl_pack_at(const nybl_pack *pack, uint64_t index, nybl_pack_tensor *tensor);
NYBL_API nybl_status nybl_pack_find(const nybl_pack *pack, const char *name, nybl_pack_tensor *tensor);

/* Weights on the mapped bytes, packed or original; nothing is copied. The file may be closed before they are
 * destroyed. NYBL_INVALID_ARGUMENT: no such tensor. NYBL_UNSUPPORTED: no weights in its format (F32 norms and
 * the like: use nybl_pack_find and its data). */
NYBL_API nybl_status nybl_pack_weights(nybl_pack *pack, const char *name, nybl_weights **w);

/* The model's metadata: a GGUF file of its own, with all entries of the original and no tensor. bytes 0: the
 * file has none. */
NYBL_API nybl_status nybl_pack_metadata(const nybl_pack *pack, const void **data, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
