#!/usr/bin/env bash
# One checksum of the encoders' bytes, whatever compiler and optimisation built them.
source "$NYBL_SOURCE_DIR/tests/script.sh"
cd "$NYBL_SOURCE_DIR" || exit 1
launcher=$(command -v ccache)

# same_bytes COMPILER FLAGS...: builds checksum.cpp with the codecs; the program knows what it must print.
same_bytes() {
    local folder=$scratch/objects
    mkdir -p "$folder"
    printf '%s\0' src/base/*.cpp src/quant/*.cpp tests/unit/quant_support.cpp tests/build/checksum.cpp |
        xargs -0 -P "${NYBL_JOBS:-2}" -I{} sh -c 'out=$1/$(echo "$2" | tr / _).o; shift 2; exec "$@" -o "$out"' \
            sh "$folder" {} ${launcher:+"$launcher"} "$@" -std=c++20 -ffp-contract=off -Wno-psabi -Iinclude -Isrc -Itests -c {} || return 1
    "$1" "$folder"/*.o -o "$scratch/checksum" -lpthread && "$scratch/checksum" || because "other bytes from $*"
}

check "C4: encoders give one checksum at -O0" same_bytes c++ -O0
clang=$(command -v clang++ || command -v clang++-14 || command -v clang++-19)
if [[ -n $clang ]]; then
    check "C4: encoders give one checksum when clang builds them" same_bytes "$clang" -O2
else
    skip "C4: encoders give one checksum when clang builds them" "clang++ is not installed"
fi
finish
