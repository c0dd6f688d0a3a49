/* Every public function, called or at least linked from C99. */
#include <nybl/nybl_pack.h>

#include "capi/symbols.h"

#define ENTRY(function)                                                                                      \
    { #function, (void (*)(void))function }

static const struct nybl_test_symbol all[] = {
    ENTRY(nybl_status_string),
    ENTRY(nybl_last_error),
    ENTRY(nybl_version),
    ENTRY(nybl_build_info),
    ENTRY(nybl_format_get_info),
    ENTRY(nybl_row_bytes),
    ENTRY(nybl_quantize_with),
    ENTRY(nybl_dequantize_with),
    ENTRY(nybl_quantize),
    ENTRY(nybl_dequantize),
    ENTRY(nybl_validate),
    ENTRY(nybl_affine_sizes),
    ENTRY(nybl_affine_export),
    ENTRY(nybl_vec_dot),
    ENTRY(nybl_get_vec_dot),
    ENTRY(nybl_isa_string),
    ENTRY(nybl_context_create),
    ENTRY(nybl_context_destroy),
    ENTRY(nybl_context_isa),
    ENTRY(nybl_weights_create),
    ENTRY(nybl_weights_destroy),
    ENTRY(nybl_weights_quantize),
    ENTRY(nybl_weights_bytes),
    ENTRY(nybl_weights_unpack),
    ENTRY(nybl_weights_packed),
    ENTRY(nybl_weights_from_packed),
    ENTRY(nybl_matmul),
    ENTRY(nybl_matmul_multi),
    ENTRY(nybl_matmul_multi_part),
    ENTRY(nybl_matmul_multi_scratch_bytes),
    ENTRY(nybl_matmul_scratch_bytes),
    ENTRY(nybl_matmul_part),
    ENTRY(nybl_matmul_id),
    ENTRY(nybl_matmul_id_scratch_bytes),
    ENTRY(nybl_matmul_id_part),
    ENTRY(nybl_context_memory),
    ENTRY(nybl_matmul_explain),
    ENTRY(nybl_pack_open),
    ENTRY(nybl_pack_close),
    ENTRY(nybl_pack_count),
    ENTRY(nybl_pack_at),
    ENTRY(nybl_pack_find),
    ENTRY(nybl_pack_weights),
    ENTRY(nybl_pack_metadata),
};

size_t nybl_test_symbols(const struct nybl_test_symbol **symbols) {
    *symbols = all;
    return sizeof all / sizeof all[0];
}
