#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each of them for some seconds (as a test two minutes together), from the inputs in
# corpus/ and what earlier runs found (build/fuzz/found). usage: run.sh [NAME|all [SECONDS]]; tests/run.py runs it without
# arguments. NYBL_FUZZ_SEED: where the search begins (0: anywhere). A test begins at 1, so that a run that fails is one that
# fails again.
source "$NYBL_SOURCE_DIR/tests/script.sh"
cd "$NYBL_SOURCE_DIR" || exit 1
all=(gguf pack blocks kernels api)
names=("${all[@]}")
[[ ${1:-all} == all ]] || names=("$1")
seconds=${2:-${NYBL_FUZZ_SECONDS:-24}}
seed=${NYBL_FUZZ_SEED:-$(($# == 0))}
build=build/fuzz

skip_all() {
    for name in "${names[@]}"; do
        skip "fuzz $name" "$1"
    done
    finish
}
command -v clang++-14 >/dev/null || skip_all "there is no clang++-14"
[[ -f $(clang++-14 -print-file-name=libclang_rt.fuzzer-x86_64.a) ]] || skip_all "clang++-14 has no libFuzzer (Debian: libclang-rt-14-dev)"

build_fuzzers() {
    cmake --preset fuzz && cmake --build --preset fuzz --parallel "${NYBL_JOBS:-$(nproc)}" --target "${names[@]/#/nybl_fuzz_}"
}

# What it finds new is kept for the next run; an input that fails is left in build/fuzz, named in the log.
fuzz() {
    local name=$1 found=$build/found/$1 seeds=tests/fuzz/corpus/$1
    mkdir -p "$found"
    "$build/tests/fuzz/nybl_fuzz_$name" -max_total_time="$seconds" -seed="$seed" -max_len=4096 -timeout=300 -rss_limit_mb=4096 \
        -print_final_stats=1 -artifact_prefix="$build/$name-" "$found" "$seeds" || because "exit status $?"
}

check "fuzzers build" build_fuzzers
((failures == 0)) || finish
for name in "${names[@]}"; do
    check "fuzz $name" fuzz "$name"
done
finish
