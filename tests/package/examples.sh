#!/usr/bin/env bash
# Runs every example and looks for what it should have printed.
source "$NYBL_SOURCE_DIR/tests/script.sh"

# prints "PROGRAM ARGUMENTS" TEXT...: exit status 0, and every text in the output.
prints() {
    local command output text
    read -ra command <<<"$NYBL_BUILD_DIR/examples/$1"
    shift
    output=$("${command[@]}") || because "exit status $?" || return 1
    printf '%s\n' "$output"
    for text in "$@"; do
        [[ $output == *"$text"* ]] || because "no '$text' in the output" || return 1
    done
}

check "example matmul.c" prints example_matmul_c "y[0] = " ", by "
check "example matmul.cpp" prints example_matmul_cpp Q4_0 Q4_1 Q5_1 Q4_K Q5_K IQ4_NL "K = 100" 256
check "example own_threads.cpp" prints example_own_threads_cpp "3 threads of the host: the same bits"
check "example experts.c" prints example_experts_c "expert  0 gives 64, expert  3 gives 256" "expert -1 gives 0"

# A matrix whose first row is the scale 1 with the codes 0 to 15 in the low nibbles and 0 in the high ones: 120 - 256.
model=$scratch/model
python3 "$NYBL_SOURCE_DIR/tests/tools/small_model.py" "$model.gguf"
check "example mapped_gguf.cpp" prints "example_mapped_gguf_cpp $model.gguf" "a.weight: y[0] = -136, by " "memory of the context"
if [[ -x $NYBL_BUILD_DIR/tools/nybl-pack ]]; then
    "$NYBL_BUILD_DIR/tools/nybl-pack" --quiet "$model.gguf" "$model.nybl" >/dev/null
    check "example packed_model.c" prints "example_packed_model_c $model.nybl" "a.weight: 4 x 32, y[0] = -136"
fi

if [[ -x $NYBL_BUILD_DIR/examples/example_parallel_region_c ]]; then
    check "example parallel_region.c" prints example_parallel_region_c "in a parallel region: the same bits"
else
    skip "example parallel_region.c" "the compiler has no OpenMP"
fi

# over_ranks COUNT: as many processes on this machine, however few its cores.
over_ranks() {
    local output
    output=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none \
        timeout 120 mpirun --oversubscribe -n "$1" "$NYBL_BUILD_DIR/examples/example_mpi_split_c" 2>&1) ||
        because "exit status $?: $output" || return 1
    printf '%s\n' "$output"
    [[ $output == *"$1 ranks: split along N equal bits, split along K within"* ]] || because "said: $output"
}

if [[ -x $NYBL_BUILD_DIR/examples/example_mpi_split_c ]] && command -v mpirun >/dev/null; then
    check "example mpi_split.c on one rank" over_ranks 1
    check "example mpi_split.c on three ranks" over_ranks 3
else
    skip "example mpi_split.c" "Open MPI is not installed (openmpi-bin, libopenmpi-dev)"
fi
finish
