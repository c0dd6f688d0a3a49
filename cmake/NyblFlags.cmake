# Compiler and linker flags, as interface targets: nybl_warnings (everything here), nybl_exact (the library and what must match it),
# nybl_hardening (what is shipped). No -march: instruction sets beyond the baseline exist in generated code, and in objects named
# after one (src/quant/block_kernels_avx2.cpp), which run only where the machine has it.

set(nybl_gnu $<C_COMPILER_ID:GNU,Clang,AppleClang>)
set(nybl_gnuxx $<CXX_COMPILER_ID:GNU,Clang,AppleClang>)

add_library(nybl_warnings INTERFACE)
target_compile_options(nybl_warnings INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:C>,${nybl_gnu}>:-Wall -Wextra -Wpedantic -Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,${nybl_gnuxx}>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)
if(NYBL_WERROR)
    target_compile_options(nybl_warnings INTERFACE $<$<OR:${nybl_gnu},${nybl_gnuxx}>:-Werror>)
endif()

# The numeric contract fixes every rounding: the compiler may neither fuse nor reassociate. These come after the flags that a
# host project sets, so that its -Ofast or -ffast-math does not reach this library.
add_library(nybl_exact INTERFACE)
target_compile_options(nybl_exact INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,${nybl_gnuxx}>:-fno-fast-math -ffp-contract=off -fno-math-errno>)

add_library(nybl_hardening INTERFACE)
if(NOT NYBL_SANITIZE)
    # -U first: some distributions' compilers define it already, with another value.
    target_compile_options(nybl_hardening INTERFACE
        $<$<AND:$<CONFIG:Release,RelWithDebInfo>,${nybl_gnuxx}>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong>)
endif()
target_link_options(nybl_hardening INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

if(NYBL_SANITIZE)
    # GCC sees uninitialised values in instrumented standard headers where there are none.
    target_compile_options(nybl_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    add_compile_options(-fsanitize=${NYBL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${NYBL_SANITIZE})
endif()
