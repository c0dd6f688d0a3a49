#!/usr/bin/env bash
# Projects that use nybl the ways a host would: find_package from a moved prefix, add_subdirectory, pkg-config.
source "$NYBL_SOURCE_DIR/tests/script.sh"
here=$NYBL_SOURCE_DIR/tests/package
example=$NYBL_SOURCE_DIR/examples/matmul.c
prefix=$scratch/moved
unset CFLAGS CXXFLAGS LDFLAGS

install_and_move() {
    cmake --install "$NYBL_BUILD_DIR" --prefix "$scratch/first" && mv "$scratch/first" "$prefix"
}

# consumer NAME [CMAKE ARGUMENTS]: configures and builds the project in that folder.
consumer() {
    local name=$1
    shift
    cmake -G Ninja -S "$here/$name" -B "$scratch/$name" -DCMAKE_BUILD_TYPE=Release "-DNYBL_EXAMPLE=$example" "$@" &&
        cmake --build "$scratch/$name" --parallel "${NYBL_JOBS:-2}"
}

c_only() { consumer c_only "-DCMAKE_PREFIX_PATH=$prefix"; }

# runs PROGRAM WANTED: the program works, and is linked with the shared library or not.
runs() {
    "$1" || return 1
    local linked=static
    prints libnybl ldd "$1" && linked=shared
    [[ $linked == "$2" ]] || because "$1 is linked $linked, not $2"
}

no_source_paths() {
    ! grep -rlF -e "$NYBL_SOURCE_DIR" -e "$NYBL_BUILD_DIR" -e "$scratch/first" "$prefix/lib" "$prefix/include" --include='*.cmake' \
        --include='*.pc' --include='*.h*' || because "an installed file names the folder it was built or first installed in"
}

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=""

with_pkg_config() {
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$example" -o "$scratch/pc_shared" $(pkg-config --cflags --libs nybl) &&
        LD_LIBRARY_PATH=$libdir runs "$scratch/pc_shared" shared
}

with_pkg_config_static() {
    rm "$libdir"/libnybl.so*
    cc -std=c99 "$example" -o "$scratch/pc_static" $(pkg-config --static --cflags --libs nybl) && runs "$scratch/pc_static" static
}

subdirectory() {
    # Unoptimised: that compiles in half the time.
    consumer subdirectory "-DNYBL_SOURCE_DIR=$NYBL_SOURCE_DIR" -DCMAKE_BUILD_TYPE=Debug -DNYBL_GPU=OFF -DNYBL_INSTALL=ON || return 1
    runs "$scratch/subdirectory/app" static || return 1
    local leaked
    leaked=$(find "$scratch/subdirectory" -name 'nybl_test*' -o -name 'nybl-bench')
    [[ -z $leaked ]] || because "the host project builds our own programs too: $leaked"
}

# What the subdirectory's build without the GPU path installs.
without_opencl() {
    cmake --install "$scratch/subdirectory" --prefix "$scratch/without" || return 1
    [[ -e $scratch/without/include/nybl/nybl.h && ! -e $scratch/without/include/nybl/nybl_opencl.h ]] ||
        because "headers: $(ls "$scratch/without/include/nybl")"
}

check "C15: installs" install_and_move
libdir=$(dirname "$(find "$prefix" -name 'libnybl.a')")
PKG_CONFIG_PATH=$libdir/pkgconfig
check "C15: installed files name no build folder" no_source_paths
check "C15: a C-only project finds the package in a moved prefix" c_only
check "C15: a C program runs with the shared library" runs "$scratch/c_only/app_shared" shared
check "C15: a C program runs with the static library" runs "$scratch/c_only/app_static" static
check "C15: a C++ project finds the package twice" consumer cxx_twice "-DCMAKE_PREFIX_PATH=$prefix"
check "C15: a C++ program runs with nybl.hpp" runs "$scratch/cxx_twice/app" shared
check "C15: pkg-config, shared" with_pkg_config
check "C15: pkg-config, static" with_pkg_config_static
check "C15: add_subdirectory in a C-only project, without the GPU path" subdirectory
check "C15: a build without the GPU path installs no header for it" without_opencl
finish
