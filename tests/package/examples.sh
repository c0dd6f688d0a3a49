#!/usr/bin/env bash
# Runs every example and looks for what it should have printed.
source "$NYBL_SOURCE_DIR/tests/script.sh"

# prints PROGRAM TEXT...: exit status 0, and every text in the output.
prints() {
    local program=$NYBL_BUILD_DIR/examples/$1 output text
    shift
    output=$("$program") || because "exit status $?" || return 1
    printf '%s\n' "$output"
    for text in "$@"; do
        [[ $output == *"$text"* ]] || because "no '$text' in the output" || return 1
    done
}

check "example matmul.c" prints example_matmul_c "y[0] = " ", by "
check "example matmul.cpp" prints example_matmul_cpp Q4_0 Q4_1 Q5_1 Q4_K Q5_K IQ4_NL "K = 100" 256
finish
