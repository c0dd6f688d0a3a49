#!/usr/bin/env bash
# The library built for 64-bit ARM and run under qemu: no generated code there, and the same bits as here.
source "$NYBL_SOURCE_DIR/tests/script.sh"
build=$NYBL_BUILD_DIR/aarch64
program=$NYBL_SOURCE_DIR/tests/cross/same_bits.cpp

# Optimised a little: that compiles in half the time, and bits do not depend on it.
builds() {
    cmake -G Ninja -S "$NYBL_SOURCE_DIR" -B "$build" --toolchain "$NYBL_SOURCE_DIR/cmake/toolchains/aarch64-linux-gnu.cmake" \
        -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DNYBL_BUILD_TESTS=OFF -DNYBL_BUILD_BENCH=OFF -DNYBL_BUILD_EXAMPLES=OFF -DNYBL_GPU=OFF -DNYBL_WERROR=OFF &&
        cmake --build "$build" --parallel "${NYBL_JOBS:-2}" --target nybl_static &&
        aarch64-linux-gnu-g++ -std=c++20 -O1 -static -I"$NYBL_SOURCE_DIR/include" "$program" "$build/libnybl.a" -o "$build/same_bits"
}

same_bits() {
    c++ -std=c++20 -O1 -I"$NYBL_SOURCE_DIR/include" "$program" "$NYBL_BUILD_DIR/libnybl.a" -lpthread -ldl -o "$scratch/native" &&
        "$scratch/native" >"$scratch/expected" || return 1
    qemu-aarch64 "$build/same_bits" >"$scratch/got" 2>"$scratch/kernels" || because "exit status $? under qemu" || return 1
    grep -q 'kernels: scalar' "$scratch/kernels" || because "not the scalar kernels: $(cat "$scratch/kernels")" || return 1
    local lines
    lines=$(wc -l <"$scratch/expected")
    ((lines > 100)) || because "only $lines lines to compare" || return 1
    diff "$scratch/expected" "$scratch/got" || because "here (<) and on ARM (>) the bits differ"
}

if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    skip "aarch64 builds" "aarch64-linux-gnu-g++ or qemu-aarch64 is not installed"
    skip "aarch64 has the bits of this machine" "aarch64-linux-gnu-g++ or qemu-aarch64 is not installed"
else
    check "aarch64 builds" builds
    check "aarch64 has the bits of this machine" same_bits
fi
finish
