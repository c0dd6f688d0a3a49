/* The table of symbols_test.c for the test that walks it. */
#ifndef NYBL_TEST_SYMBOLS_H
#define NYBL_TEST_SYMBOLS_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

struct nybl_test_symbol {
    const char *name;
    void (*address)(void);
};
size_t nybl_test_symbols(const struct nybl_test_symbol **symbols);

#ifdef __cplusplus
}
#endif
#endif
