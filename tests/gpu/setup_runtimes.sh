#!/usr/bin/env bash
# Runtimes that stand in for Intel GPUs, in a folder of their own (nothing is installed): Intel's OpenCL for CPUs, and the
# GPU driver with its compilers and a preloaded device that is not there.
# usage: setup_runtimes.sh DIR
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
mkdir -p "${1:?usage: setup_runtimes.sh DIR}"
home=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ ! -f $home/cpu/lib/libintelocl.so ]]; then
    python3 -m venv "$home/cpu"
    "$home/cpu/bin/pip" install -q --disable-pip-version-check intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
fi

# The driver needs a newer C library than this system's, so that everything comes from one unpacked tree. apt's folders
# point at private ones: the machine's sources and packages stay as they are.
if [[ ! -f $home/fake_i915.so ]]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
    mirror=${NYBL_DEBIAN_MIRROR:-$mirror}
    [[ -n $mirror ]] || { echo "apt names no package source here: set NYBL_DEBIAN_MIRROR" >&2; exit 1; }
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    : >"$work/status"
    cat >"$work/sid.sources" <<END
Types: deb
URIs: $mirror
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    cat >"$work/apt.conf" <<END
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sid.sources";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "$(id -un)";
Acquire::Check-Valid-Until "false";
END
    export APT_CONFIG=$work/apt.conf
    apt-get update -qq
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
