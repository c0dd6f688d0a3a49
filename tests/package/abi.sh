#!/usr/bin/env bash
# The binary interface against the committed one (nybl.abi): nothing may go or change while the SONAME stays. New functions
# pass. After a change that is meant to be (members appended to a struct), `abi.sh --accept` writes the baseline.
source "$NYBL_SOURCE_DIR/tests/script.sh"
baseline=$NYBL_SOURCE_DIR/tests/package/nybl.abi

for tool in abidw abidiff; do
    if ! command -v $tool >/dev/null; then
        skip "the binary interface" "$tool is not installed (abigail-tools)"
        finish
    fi
done
if ! echo '#include <CL/cl.h>' | cc -E -xc - >/dev/null 2>&1; then
    skip "the binary interface" "nybl_opencl.h needs the OpenCL headers (opencl-headers)"
    finish
fi

# interface FILE: the types and functions that the headers declare, with the library's SONAME. From a library of empty
# functions made of the declarations: it has debug information, which the real one has not; symbols.sh says that both
# have the same functions.
interface() {
    local soname
    soname=$(readelf -d "$NYBL_BUILD_DIR/libnybl.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    printf '#include <nybl/%s>\n' nybl.h nybl_pack.h nybl_opencl.h |
        cc -E -P -DCL_TARGET_OPENCL_VERSION=300 -I"$NYBL_SOURCE_DIR/include" -xc - >"$scratch/declared.c" &&
        python3 - "$scratch/declared.c" "$scratch/stub.c" <<'END' &&
import re
import sys
text = re.sub(r"__attribute__ *\(\( *visibility *\(.*?\) *\)\)", "", open(sys.argv[1]).read())
# A declaration of ours begins a line and ends with ");"; its body becomes one that never returns.
text, count = re.subn(r"(?m)^( *(?:const )?\w+[ *]+nybl_\w+\((?:[^;{}])*\));", r"\1 { __builtin_trap(); }", text)
assert count > 30, count
open(sys.argv[2], "w").write(text)
END
        cc -g -fPIC -shared -w "-Wl,-soname,$soname" -o "$scratch/libnybl.so" "$scratch/stub.c" &&
        abidw --no-show-locs --no-comp-dir-path --no-corpus-path --no-elf-needed --no-write-default-sizes \
            --type-id-style hash "$scratch/libnybl.so" | sed -E "s/ (path|language)='[^']*'//g" >"$1"
}

compatible() {
    abidiff --no-added-syms "$baseline" "$scratch/now.abi" ||
        because "functions or types changed: append only, or raise the version and the SONAME (then abi.sh --accept)"
}

# The check can fail: the same interface with one thing wrong.
sees() {
    sed -E "$1" "$scratch/now.abi" >"$scratch/changed.abi"
    ! cmp -s "$scratch/now.abi" "$scratch/changed.abi" || because "nothing to edit" || return 1
    ! abidiff --no-added-syms "$scratch/now.abi" "$scratch/changed.abi" || because "not seen"
}

if [[ ${1:-} == --accept ]]; then
    interface "$baseline"
    exit
fi
check "the binary interface can be read" interface "$scratch/now.abi"
check "the binary interface is the committed one" compatible
check "the binary interface without a function would be seen" sees "/elf-symbol name='nybl_matmul'/d"
check "the binary interface with another enumerator would be seen" \
    sees "s/name='NYBL_CANCELLED' value='10'/name='NYBL_CANCELLED' value='11'/"
check "the binary interface with a member that moved would be seen" \
    sees "/class-decl name='nybl_matmul_id_args'/,/n_slots/s/layout-offset-in-bits='128'/layout-offset-in-bits='192'/"
check "the binary interface with another SONAME would be seen" sees "s/soname='libnybl.so.0'/soname='libnybl.so.1'/"
finish
