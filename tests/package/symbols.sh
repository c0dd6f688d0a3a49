#!/usr/bin/env bash
# What the shared library shows to the outside, and how it lives beside other libraries in one process.
source "$NYBL_SOURCE_DIR/tests/script.sh"
library=$NYBL_BUILD_DIR/libnybl.so
header=$NYBL_SOURCE_DIR/include/nybl/nybl.h

# nybl_opencl.h holds in builds with the GPU path only.
headers=("$header" "$NYBL_SOURCE_DIR/include/nybl/nybl_pack.h")
if grep -q '^NYBL_GPU:BOOL=ON' "$NYBL_BUILD_DIR/CMakeCache.txt" &&
    ! grep -q '^NYBL_OPENCL_INCLUDE_DIR:PATH=.*NOTFOUND' "$NYBL_BUILD_DIR/CMakeCache.txt"; then
    headers+=("$NYBL_SOURCE_DIR/include/nybl/nybl_opencl.h")
fi

exported() { nm -D --defined-only "$library" | awk '{print $NF}' | sort; }

declared() {
    cat "${headers[@]}" | cc -E -P -I"$NYBL_SOURCE_DIR/include" -xc - | tr '\n' ' ' | tr ';' '\n' | grep -v typedef |
        grep -oE '\bnybl_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u
}

only_our_names() {
    local strange
    strange=$(exported | grep -v '^nybl_')
    [[ -n $(exported) && -z $strange ]] || because "exported: ${strange:-nothing}"
}

header_and_library_agree() {
    declared >"$scratch/declared" && exported >"$scratch/exported"
    local count
    count=$(wc -l <"$scratch/declared")
    ((count >= 30)) || because "only $count functions were found in the header" || return 1
    diff "$scratch/declared" "$scratch/exported" || because "declared (<) and exported (>) functions differ"
}

soname() { prints 'SONAME.*\[libnybl\.so\.[0-9]*\]' readelf -d "$library"; }

header_compiles() {
    printf '#include <nybl/nybl.h>\nint main(void) { return 0; }\n' >"$scratch/user.c"
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$NYBL_SOURCE_DIR/include" "$scratch/user.c" &&
        c++ -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$NYBL_SOURCE_DIR/include" "$scratch/user.c"
}

# load_beside CODE: two copies of the library in one process, both with global symbols, and CODE between them.
load_beside() {
    cp "$library" "$scratch/one.so" && cp "$library" "$scratch/two.so"
    python3 - "$scratch" "$@" <<'END'
import ctypes, struct, sys
scratch, others = sys.argv[1], sys.argv[2:]
for other in others:
    ctypes.CDLL(other, mode=ctypes.RTLD_GLOBAL)
one = ctypes.CDLL(scratch + "/one.so", mode=ctypes.RTLD_GLOBAL)
two = ctypes.CDLL(scratch + "/two.so", mode=ctypes.RTLD_GLOBAL)
for library in (one, two):
    library.nybl_last_error.restype = ctypes.c_char_p

def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
assert address(one, "nybl_quantize") != address(two, "nybl_quantize"), "the loader gave one library for both"

# A failure in one leaves the other's error text alone: neither uses the other's state.
assert one.nybl_quantize(2, ctypes.c_uint64(1), ctypes.c_uint64(33), None, ctypes.c_size_t(0), None, None, ctypes.c_size_t(0)) != 0
assert one.nybl_last_error() != b"" and two.nybl_last_error() == b"", (one.nybl_last_error(), two.nybl_last_error())

x = (ctypes.c_float * 32)(*[i - 15.5 for i in range(32)])
def blocks(library):
    out = ctypes.create_string_buffer(18)
    status = library.nybl_quantize(2, ctypes.c_uint64(1), ctypes.c_uint64(32), x, ctypes.c_size_t(0), None, out, ctypes.c_size_t(0))
    assert status == 0, library.nybl_last_error()
    return out.raw
assert blocks(one) == blocks(two) and blocks(one) != bytes(18)
END
}

check "C16: only nybl_ symbols are exported" only_our_names
check "C16: every declared function is exported, and no other" header_and_library_agree
check "C16: the library has a versioned SONAME" soname
check "C16: the header compiles as C99 and as C++11" header_compiles
check "C16: two copies live side by side" load_beside

mapfile -t ggml < <(find "$NYBL_SOURCE_DIR/build/venv/lib" -path '*/ggml/lib/libggml-base.so' 2>/dev/null)
if ((${#ggml[@]})); then
    check "C16: lives beside ggml" load_beside "${ggml[@]}"
else
    skip "C16: lives beside ggml" "ggml-python is not installed (build/venv)"
fi
finish
