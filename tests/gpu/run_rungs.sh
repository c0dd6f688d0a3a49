#!/usr/bin/env bash
# The GPU path where no GPU is: results on Intel's OpenCL for CPUs, compilation for real GPUs without spills, and the whole
# host path on driver-only devices; and oneDNN on its CPU engine. usage: run_rungs.sh NYBL_TEST_GPU NYBL_GPU_SELFTEST NYBL_TEST_ONEDNN
# NYBL_GPU_SELFTEST_ONEDNN
source "$NYBL_SOURCE_DIR/tests/script.sh"
tests=$1 selftest=$2 onednn_tests=$3 onednn_selftest=$4
home=${NYBL_GPU_RUNTIMES:-${XDG_CACHE_HOME:-$HOME/.cache}/nybl/gpu}
root=$home/root lib=$home/root/usr/lib/x86_64-linux-gnu
missing="not set up (./dev gpu-setup fetches about 1.5 GB)"

on_intel_cpu() {
    LD_LIBRARY_PATH=$home/cpu/lib OCL_ICD_FILENAMES=$home/cpu/lib/libintelocl.so "$tests" 'opencl subgroup*'
}

on_onednn_cpu() {
    LD_LIBRARY_PATH=$home/onednn/lib OCL_ICD_FILENAMES=$home/onednn/lib/libintelocl.so "$onednn_tests"
}

ocloc() {
    "$root/lib64/ld-linux-x86-64.so.2" --library-path "$lib:$lib/intel-opencl" "$root"/usr/bin/ocloc-* "$@"
}

# compiles DEVICE: the programs that the selftest lists. The compiler keeps quiet about most spills, so look into the binary.
compiles() {
    local device=$1 kernels=$NYBL_SOURCE_DIR/src/gpu/kernels name prepare product options compiled=0
    cd "$scratch" && rm -f program_* || return
    while read -r name prepare product options; do
        cat "$kernels"/{panel,rows}.cl "$kernels/$prepare" "$kernels/finish.cl" "$kernels/$product" >program.cl
        ocloc compile -file program.cl -device "$device" -options "$options" -output program >log 2>&1 ||
            because "$name does not compile: $(tail -n 1 log)" || return
        rm -rf binary
        ocloc disasm -file program_*.bin -device "$device" -dump binary >log 2>&1 ||
            because "$name: $(tail -n 1 log)" || return
        grep -q grf_count binary/.ze_info || because "$name: no register counts in the binary" || return
        ! grep -q spill_size binary/.ze_info || because "$name: $(grep -m 1 spill_size binary/.ze_info)" || return
        rm -f program_*
        compiled=$((compiled + 1))
    done < <("$selftest" --programs)
    ((compiled == 36)) || because "compiled $compiled programs, not 36"
}

# on_fake_gpu ID MEMORY PROGRAM...: the driver shows a device with this PCI id and memory; enqueues are no-ops.
on_fake_gpu() {
    env SHIM_DEV="$1" SHIM_LMEM="$2" SHIM_SLICES=8 SHIM_SS=4 SHIM_EU=16 NEOReadDebugKeys=1 EnableNullHardware=1 \
        EnableDirectSubmission=0 EnableBlitterForEnqueueOperations=0 EnableBlitterOperationsSupport=0 \
        OCL_ICD_VENDORS="$lib/intel-opencl/libigdrcl.so" OCL_ICD_FILENAMES="$lib/intel-opencl/libigdrcl.so" \
        ONEAPI_DEVICE_SELECTOR=opencl:gpu "$root/lib64/ld-linux-x86-64.so.2" --preload "$home/fake_i915.so" \
        --library-path "$home/onednn/lib:$lib:$lib/intel-opencl" "${@:3}" >"$scratch/table"
    cat "$scratch/table"
}

# host_path ID MEMORY PROGRAM: results are not looked at.
host_path() {
    on_fake_gpu "$@" --no-check
    grep -q 'subgroup kernels, fp16 yes' "$scratch/table" && [[ $(grep -c 'opencl:.* ran$' "$scratch/table") == 36 ]] ||
        because "not every product ran on sub-group kernels"
}

# Primitives are described and not run: what oneDNN's SYCL runtime waits for never happens on such a device.
onednn_choice() {
    on_fake_gpu "$@" --shapes
    [[ $(grep -c 'onednn:jit:gemm' "$scratch/table") == 324 ]] || because "not every format, M and shape gets jit:gemm"
}

if [[ -f $home/cpu/lib/libintelocl.so ]]; then
    check "gpu rung 2: sub-group kernels compute the product" on_intel_cpu
else
    skip "gpu rung 2" "$missing"
fi
if [[ -f $home/onednn/lib/libdnnl.so.3 && -f $onednn_tests ]]; then
    check "gpu rung 4: products by oneDNN's CPU engine equal exact arithmetic" on_onednn_cpu
else
    skip "gpu rung 4" "$missing"
fi
if [[ -f $home/fake_i915.so ]]; then
    for device in tgllp adl-p dg2 mtl arl-h lnl-m bmg ptl pvc; do
        check "gpu rung 3: kernels compile for $device without spills" compiles $device
    done
    while read -r name id memory; do
        check "gpu rung 5: the host path on $name" host_path "$id" "$memory" "$selftest"
        [[ -f $onednn_selftest ]] || continue
        if [[ $name == Alder-Lake-P ]]; then
            check "gpu rung 5: own kernels on $name, for which oneDNN has none" host_path "$id" "$memory" "$onednn_selftest"
        else
            check "gpu rung 5: oneDNN has jit:gemm on $name" onednn_choice "$id" "$memory" "$onednn_selftest"
        fi
    done <<<'Alder-Lake-P 0x46a6 0
A770 0x56a0 1
Meteor-Lake 0x7d55 0
Lunar-Lake 0x64a0 0
Panther-Lake 0xb080 0'
else
    skip "gpu rung 3" "$missing"
    skip "gpu rung 5" "$missing"
fi
finish
