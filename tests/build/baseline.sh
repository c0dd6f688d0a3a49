#!/usr/bin/env bash
# The objects that every machine runs hold no instruction beyond the x86-64 baseline, and run on an old CPU.
source "$NYBL_SOURCE_DIR/tests/script.sh"

# vector_instructions OBJECT...: instructions in VEX or EVEX form (AVX, AVX-512, FMA, F16C, BMI).
vector_instructions() {
    objdump -d --no-show-raw-insn "$@" | awk -F'\t' '
        /^Disassembly|file format/ { next }
        NF >= 2 {
            split($2, word, " ")
            if (word[1] ~ /^(\{.*\}|v[a-z]+|k[a-z]+[bwdq]|andn|bextr|blsi|blsmsk|blsr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)$/ &&
                word[1] !~ /^(verr|verw|vmcall|vmmcall|vmlaunch|vmresume)$/)
                print word[1]
        }' | sort | uniq -c
}

finds_them() {
    printf 'void f(float *x) { for (int i = 0; i < 64; i++) x[i] *= 3.0f; }\nunsigned g(unsigned a, unsigned b) { return ~a & b; }\n' \
        >"$scratch/vex.c"
    cc -O3 -mavx2 -mbmi -c "$scratch/vex.c" -o "$scratch/vex.o"
    local found
    found=$(vector_instructions "$scratch/vex.o")
    [[ $found == *vmulps* && $found == *andn* ]] || because "the search misses vmulps or andn: $found"
}

objects_are_baseline() {
    local objects found
    mapfile -t objects < <(find "$NYBL_BUILD_DIR/CMakeFiles/nybl_core.dir" -name '*.o' ! -name '*_avx2.cpp.o')
    ((${#objects[@]} >= 5)) || because "only ${#objects[@]} objects found" || return 1
    found=$(vector_instructions "${objects[@]}")
    [[ -z $found ]] || because "VEX or EVEX instructions: $found"
}

# An object for one instruction set may define no symbol that the linker merges with the same one of an ordinary object, and
# but one that others call.
isa_objects_keep_to_themselves() {
    local objects shared
    mapfile -t objects < <(find "$NYBL_BUILD_DIR/CMakeFiles/nybl_core.dir" -name '*_avx2.cpp.o')
    ((${#objects[@]} >= 1)) || because "no such object found" || return 1
    shared=$(nm -C --defined-only --extern-only "${objects[@]}" | awk 'NF >= 3 && !/ DW\.ref\./' | grep -v ' T nybl::quant::avx2_block_kernels()$')
    [[ -z $shared ]] || because "defines $shared"
}

example=$NYBL_BUILD_DIR/examples/example_matmul_c

# runs_on CPU WANTED: the example works there, with a kernel whose name holds WANTED and the numbers of the scalar path.
runs_on() {
    local scalar emulated
    scalar=$(NYBL_MAX_ISA=scalar "$example") && emulated=$(qemu-x86_64 -cpu "$1" "$example" 2>"$scratch/qemu") || {
        because "exit status $? on $1: $(tail -n 1 "$scratch/qemu")"
        return 1
    }
    printf '%s\n' "$scalar" "$emulated"
    [[ ${scalar%, by *} == "${emulated%, by *}" ]] || because "other numbers than the scalar path" || return 1
    [[ ${emulated##*, by } == *"$2"* ]] || because "ran ${emulated##*, by }, not $2"
}

check "C13: the search for VEX instructions finds them" finds_them
check "C13: the library's objects hold no VEX or EVEX instruction, but for those of one instruction set" objects_are_baseline
check "C13: objects of one instruction set share no symbol with others" isa_objects_keep_to_themselves
if command -v qemu-x86_64 >/dev/null; then
    check "C13: runs on a CPU without AVX (Nehalem)" runs_on Nehalem scalar
    check "C13: runs on a CPU with AVX2 (Haswell)" runs_on Haswell avx2
else
    skip "C13: runs on a CPU without AVX (Nehalem)" "qemu-x86_64 is not installed"
    skip "C13: runs on a CPU with AVX2 (Haswell)" "qemu-x86_64 is not installed"
fi
finish
