#!/usr/bin/env bash
# What an attacker would look for in the built library: pages that are writable and executable, tables that can be
# overwritten, copies and stacks that nobody guards.
source "$NYBL_SOURCE_DIR/tests/script.sh"
library=$NYBL_BUILD_DIR/libnybl.so
archive=$NYBL_BUILD_DIR/libnybl.a

no_executable_stack() {
    prints 'GNU_STACK.*RW ' readelf -lW "$library" || because "the stack is not plain read-write"
}

# One object without the note makes the whole program's stack executable.
static_objects_say_so() {
    local without count
    count=$(readelf -SW "$archive" | grep -c '^File:')
    ((count >= 20)) || because "only $count objects in $archive" || return 1
    without=$(readelf -SW "$archive" | awk '/^File:/ { if (file && !note) print file; file = $2; note = 0 }
        /\.note\.GNU-stack/ { note = 1 } END { if (file && !note) print file }')
    [[ -z $without ]] || because "no .note.GNU-stack in: $without"
}

no_writable_code() {
    local both
    both=$(readelf -lW "$library" | awk '$1 == "LOAD" && /RWE|WE / { print }')
    [[ -z $both ]] || because "a segment is writable and executable: $both"
}

relro() { prints 'GNU_RELRO' readelf -lW "$library" || because "no GNU_RELRO segment"; }
bound_at_load() { prints 'FLAGS.*NOW' readelf -dW "$library" || because "not linked with -z now"; }

no_text_relocations() {
    ! prints 'TEXTREL' readelf -dW "$library" || because "code is relocated at load, and so written to"
}

no_search_path() {
    ! prints 'R(UN)\?PATH' readelf -dW "$library" || because "the library says where to look for others"
}

imports() { nm -D --undefined-only "$library" | awk '{ print $NF }'; }
stack_protector() { prints '^__stack_chk_fail' imports || because "no function guards its stack"; }
fortified() { prints '^__[a-z]*_chk@\?' imports || because "no call to the C library is a checked one"; }

# Compilers that mark branch targets mark every exported function.
branch_targets() {
    local exported marked
    objdump -d --no-show-raw-insn "$library" >"$scratch/code"
    exported=$(grep -c '^[0-9a-f]* <nybl_[a-z0-9_]*>:' "$scratch/code")
    marked=$(grep -A1 '^[0-9a-f]* <nybl_[a-z0-9_]*>:' "$scratch/code" | grep -c endbr64)
    ((exported > 0 && (marked == 0 || marked == exported))) || because "$marked of $exported functions start with endbr64"
}

check "hardening: no executable stack" no_executable_stack
check "hardening: no object of the static library asks for one" static_objects_say_so
check "hardening: no segment is writable and executable" no_writable_code
check "hardening: relocations are read-only after loading" relro
check "hardening: bound at load" bound_at_load
check "hardening: no text relocations" no_text_relocations
check "hardening: no library search path" no_search_path
check "hardening: stacks are guarded" stack_protector
check "hardening: calls to the C library are fortified" fortified
check "hardening: branch targets are marked everywhere or, without CET in the compiler, nowhere" branch_targets
finish
