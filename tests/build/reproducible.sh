#!/usr/bin/env bash
# Two builds of one commit, in folders of different names and lengths and without a compiler cache, are the same files.
# Takes minutes: part of ./dev test --all.
source "$NYBL_SOURCE_DIR/tests/script.sh"
export CCACHE_DISABLE=1

# build_in FOLDER: the committed sources, built there.
build_in() {
    mkdir -p "$1/sources" && git -C "$NYBL_SOURCE_DIR" archive HEAD | tar -x -C "$1/sources" &&
        cmake -G Ninja -S "$1/sources" -B "$1/build" -DCMAKE_BUILD_TYPE=Release -DNYBL_BUILD_TESTS=OFF -DNYBL_BUILD_BENCH=OFF \
            -DNYBL_BUILD_EXAMPLES=OFF &&
        cmake --build "$1/build" --parallel "${NYBL_JOBS:-2}" --target nybl nybl_static nybl-pack
}

same() {
    sha256sum "$scratch/a/build/$1" "$scratch/another/folder/build/$1"
    cmp "$scratch/a/build/$1" "$scratch/another/folder/build/$1" || because "$1 differs"
}

check "reproducible: the first build" build_in "$scratch/a"
check "reproducible: the second, elsewhere" build_in "$scratch/another/folder"
check "reproducible: the shared library is the same file" same libnybl.so
check "reproducible: the static library is the same file" same libnybl.a
check "reproducible: nybl-pack is the same file" same tools/nybl-pack
finish
