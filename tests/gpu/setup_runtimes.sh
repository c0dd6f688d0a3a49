#!/usr/bin/env bash
# Runtimes that stand in for Intel GPUs, in a folder of their own (nothing is installed): Intel's OpenCL for CPUs, oneDNN, and
# the GPU driver with its compilers and a preloaded device that is not there.
# usage: setup_runtimes.sh DIR
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
source "$here/../../tools/private_apt.sh"
mkdir -p "${1:?usage: setup_runtimes.sh DIR}"
home=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ ! -f $home/cpu/lib/libintelocl.so ]]; then
    python3 -m venv "$home/cpu"
    "$home/cpu/bin/pip" install -q --disable-pip-version-check intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
fi

if [[ ! -f $home/onednn/lib/libdnnl.so.3 ]]; then
    python3 -m venv "$home/onednn"
    "$home/onednn/bin/pip" install -q --disable-pip-version-check --no-compile onednn==2026.1.0 onednn-devel==2026.1.0
fi

# The driver needs a newer C library than this system's, so that everything comes from one unpacked tree.
if [[ ! -f $home/fake_i915.so ]]; then
    use_suite "$work" sid
    apt-get install -y -qq --no-install-recommends --download-only \
        intel-opencl-icd intel-ocloc ocl-icd-libopencl1 libstdc++6 libgomp1 libdrm-dev >/dev/null
    root=$home/root
    rm -rf "$root"
    mkdir -p "$root"/usr/{lib,lib64,bin}
    ln -s usr/lib usr/lib64 usr/bin "$root"
    for package in "$work"/cache/archives/*.deb; do
        dpkg --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
    done
    gcc -O1 -shared -fPIC -I"$root/usr/include/libdrm" -o "$home/fake_i915.so" "$here/fake_i915.c" -ldl -lpthread
fi
echo "made $home"
