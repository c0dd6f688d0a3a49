#!/usr/bin/env bash
# Makes the emulated machine that run_emulated.py starts: Bochs, a Linux kernel, a boot ROM and an init.
#
#   setup_emulator.sh quick   Debian trixie's Bochs 3.0 binary with its libraries: AVX512-VNNI and AVX-VNNI, about a minute
#   setup_emulator.sh full    Bochs 3.0 built from Debian's source with AMX corrected: the above and AMX, about seven minutes
#   setup_emulator.sh         what NYBL_EMULATOR in the environment says (quick, full or off), else full where it is
#                             made already, else quick
#
# The result lies in ${XDG_CACHE_HOME:-~/.cache}/nybl/emulator/MODE, is made once per version of these files, and becomes
# emulator/current; several set-ups at a time wait for each other. Nothing is installed, and the machine's package lists
# stay as they are. Exit code 77 with the reason on stderr and in emulator/MODE.failed: it could not be made here.
# Environment: NYBL_DEBIAN_MIRROR (a Debian mirror), NYBL_EMULATOR_RETRY=1 (try again after a failure of the last day),
# NYBL_EMULATOR_JOBS (compilers at a time, full mode).
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
source "$here/../../tools/private_apt.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nybl/emulator
stamp=$(cat "$here/setup_emulator.sh" "$here"/guest/* | sha256sum | cut -d' ' -f1)
ready() { [ "$(cat "$cache/$1/stamp" 2> /dev/null)" = "$stamp" ]; }

mode=${1:-${NYBL_EMULATOR:-}}
if [ -z "$mode" ]; then mode=quick; ! ready full || mode=full; fi
case $mode in
quick | full) ;;
off) echo "skipped: NYBL_EMULATOR=off" >&2; exit 77 ;;
*) echo "setup_emulator: no mode '$mode': quick, full or off" >&2; exit 2 ;;
esac

tmp=
stop() { # a failure in words, for the tests that are skipped because of it
    echo "$1" > "$cache/$mode.failed"
    rm -f "$cache/current"
    echo "setup_emulator: $1" >&2
    exit 77
}
done_with() {
    ln -sfn "$mode" "$cache/current"
    echo "setup_emulator: $1 $cache/$mode"
}
trap 'rm -rf "$tmp"' EXIT

mkdir -p "$cache"
command -v flock > /dev/null || stop "flock is missing"
exec 9> "$cache/lock"
flock 9

if ready $mode; then
    done_with "found"
    exit 0
fi
if [ -z "${NYBL_EMULATOR_RETRY:-}" ] && [ -n "$(find "$cache/$mode.failed" -mmin -1440 2> /dev/null)" ]; then
    echo "setup_emulator: failed within the last day: $(cat "$cache/$mode.failed") (NYBL_EMULATOR_RETRY=1 tries again)" >&2
    exit 77
fi

[ "$(uname -m)" = x86_64 ] || stop "the emulator is set up on x86-64 hosts only"
for tool in apt-get dpkg-deb gcc ld objcopy python3 lz4 xz; do
    command -v $tool > /dev/null || stop "$tool is missing"
done
if [ $mode = full ]; then
    for tool in g++ make; do command -v $tool > /dev/null || stop "$tool is missing"; done
fi
[ -e $debian_keyring ] || stop "$debian_keyring is missing (package debian-archive-keyring)"
[ -n "$(debian_mirror)" ] || stop "apt names no Debian package source here: set NYBL_DEBIAN_MIRROR to the address of one"

rm -rf "$cache"/making.* # of a set-up that was killed: the lock is held
tmp=$(mktemp -d "$cache/making.XXXXXX") # in the cache folder, so that the last step is one rename
log=$tmp/setup.log
home=$tmp/home
mkdir "$home"

kernel() { # Debian's cloud kernel, its ELF laid out as it is in memory
    use_suite "$tmp/apt-bookworm" bookworm
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -1)
    (cd "$tmp" && apt-get download "$package")
    dpkg-deb -x "$tmp"/linux-image-*.deb "$tmp/kernel"
    python3 "$here/guest/flatten_kernel.py" "$tmp"/kernel/boot/vmlinuz-* "$home/vmlinux.bin" > "$tmp/kernel.conf"
}

guest() { # init, boot ROM; Bochs wants a VGA BIOS file, and none is run
    gcc -O2 -Wall -static -o "$home/init" "$here/guest/init.c"
    gcc -c "$here/guest/rom.S" -o "$tmp/rom.o"
    ld -Ttext=0 --oformat binary -e 0 -o "$home/rom.bin" "$tmp/rom.o"
    head -c 2048 /dev/zero > "$home/vga.bin"
    cp "$here/guest/bochsrc.in" "$home/"
}

bochs_binary() {
    use_suite "$tmp/apt-trixie" trixie
    apt-get install -y -q --no-install-recommends --download-only bochs bochs-term bochsbios vgabios
    mkdir "$home/root"
    local deb
    for deb in "$tmp"/apt-trixie/cache/archives/*.deb; do dpkg-deb -x "$deb" "$home/root"; done
    rm -rf "$home/root/usr/share/doc" "$home/root/usr/share/man" "$home/root/usr/share/locale"
    # usr-merged packages unpacked without base-files have no /lib64: name the loader where it lies
    local loader
    loader=$(find "$home/root" -name ld-linux-x86-64.so.2 | head -1)
    # Without a window Debian's Bochs has only the rfb display, which listens on all addresses: it is shut in a network
    # namespace of its own where that may be done.
    local how net=
    for how in -n -rn; do
        if unshare $how true 2> /dev/null; then net="unshare $how " && break; fi
    done
    cat > "$tmp/bochs.conf" << CONF
cmd=$net{home}/${loader#"$home"/} --library-path {home}/root/usr/lib/x86_64-linux-gnu {home}/root/usr/bin/bochs-bin
env.LTDL_LIBRARY_PATH={home}/root/usr/lib/x86_64-linux-gnu/bochs/plugins
env.BXSHARE={home}/root/usr/share/bochs
display=rfb, options="timeout=0"
amx=0
CONF
}

bochs_source() {
    use_suite "$tmp/apt-trixie" trixie
    local sum source
    # the .dsc may be missing on a mirror; the tarball is what is needed, and is checked here
    (cd "$tmp" && apt-get source --download-only bochs || true)
    sum=$(apt-cache showsrc --only-source bochs |
        awk '/^Checksums-Sha256/{s=1;next} /^[^ ]/{s=0} s&&$3~/^bochs_3.*orig.tar.xz$/{print $1"  "$3}' | sort -u)
    [ -n "$sum" ]
    (cd "$tmp" && echo "$sum" | sha256sum -c --quiet && tar xf bochs_3.*.orig.tar.xz)
    source=$(echo "$tmp"/bochs-3.*)
    # Bochs 3.0 multiplies AMX's signed bytes as unsigned ones
    sed -i 's/Bit32s(\([xy]\)byte\[/Bit32s((Bit8s) \1byte[/g' "$source/cpu/avx/amx.cc"
    grep -q '(Bit8s) xbyte' "$source/cpu/avx/amx.cc"
    # It takes STTILECFG with W1 alone for the instruction, and stores rows and bytes in each other's place
    sed -i '/BX_IA_STTILECFG/s/ATTR_VEX_W1/ATTR_VEX_W0/' "$source/cpu/decoder/fetchdecode_opmap_avx.cc"
    grep -q 'ATTR_VEX_W0.*BX_IA_STTILECFG' "$source/cpu/decoder/fetchdecode_opmap_avx.cc"
    sed -i -e '/^void BX_CPU_C::xsave_tilecfg_state/,/^}/{s/\.rows;/.ROWS;/;s/\.bytes_per_row;/.rows;/;s/\.ROWS;/.bytes_per_row;/}' \
        "$source/cpu/xsave.cc"
    grep -q 'vmm16u(8+n) *= .*bytes_per_row;' "$source/cpu/xsave.cc"
    mkdir "$tmp/build"
    (cd "$tmp/build"
    "$source/configure" --enable-cpu-level=6 --enable-x86-64 --enable-fpu --enable-avx --enable-evex \
        --enable-amx --enable-cet --enable-pci --enable-long-phy-address --enable-all-optimizations \
        --disable-debugger --disable-debugger-gui --disable-docbook --disable-plugins --with-nogui \
        --enable-vmx=0 --disable-gameport --enable-usb=no --enable-busmouse=no --enable-ne2000=no \
        CXXFLAGS="-O2 -pipe" CFLAGS="-O2 -pipe"
    nice -n 19 make -j"${NYBL_EMULATOR_JOBS:-$(nproc)}")
    strip -o "$home/bochs" "$tmp/build/bochs"
    printf 'cmd={home}/bochs\ndisplay=nogui\namx=1\n' > "$tmp/bochs.conf"
}

# The AMX patch goes over a kernel function whose address the emulated kernel tells.
patch_kernel() {
    gcc -c "$here/guest/prctl.S" -o "$tmp/prctl.o"
    objcopy -O binary -j .text "$tmp/prctl.o" "$tmp/prctl.bin"
    cat > "$tmp/symbols.c" << 'C'
#include <stdio.h>
#include <string.h>
int main(void) {
    char line[512];
    FILE *f = fopen("/proc/kallsyms", "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, " fpu_xstate_prctl\n")) return fputs(line, stdout) < 0;
    return 1;
}
C
    gcc -O1 -static -o "$tmp/symbols" "$tmp/symbols.c"
    local address
    address=$(python3 "$here/run_emulated.py" --home "$home" --timeout 200 "$tmp/symbols" | cut -d' ' -f1)
    python3 - "$home/vmlinux.bin" "$tmp/prctl.bin" "$address" << 'PY'
import sys
path, code = sys.argv[1], open(sys.argv[2], "rb").read()
at = int(sys.argv[3], 16) - 0xffffffff81000000
kernel = bytearray(open(path, "rb").read())
# the function's 5-byte ftrace call stays; its first comparison shows that this is the function
assert kernel[at] == 0xe8 and b"\x81\xff\x23\x10\0\0" in kernel[at + 5:at + 45], "fpu_xstate_prctl looks different"
kernel[at + 5:at + 5 + len(code)] = code
open(path, "wb").write(kernel)
PY
}

# fsrm: a kernel that sees FSRM without ERMS (cleared under Bochs) hangs in memmove.
# amx_tile: Bochs has no XFD, and Linux would fault at boot; patch_kernel switches the tile state on instead.
write_conf() {
    cat "$tmp/bochs.conf" "$tmp/kernel.conf"
    cat << 'CONF'
cpu=sapphire_rapids
ips=50000000
cmdline=console=ttyS0 loglevel=1 8250.nr_uarts=1 pci=off acpi=off nolapic nosmp i8042.noprobe=1 panic=-1 reboot=t nokaslr mitigations=off clearcpuid=fsrm,amx_tile tsc_early_khz=50000 tsc=reliable lsm= audit=0 init_on_alloc=0 cryptomgr.notests random.trust_cpu=on rcupdate.rcu_expedited=1 numa_balancing=disable cgroup_disable=memory transparent_hugepage=never initcall_blacklist=trace_eval_init,load_system_certificate_list,cmos_init,add_rtc_cmos,intel_pstate_init,init_ima,init_evm,trace_events_synth_init,tracer_init_tracefs,slab_sysfs_init
CONF
}

# step WORDS COMMAND: in a shell of its own, so that a failing line ends the step; the log's end tells why
step() {
    local words=$1 rc=0
    shift
    echo "setup_emulator: $words" >&2
    set +e
    (set -e; "$@") >> "$log" 2>&1
    rc=$?
    set -e
    [ $rc = 0 ] || stop "$words failed: $(grep -m 1 -E '^[EW]: |error:' "$log" || grep -v '^$' "$log" | tail -n 1)"
}
step "fetching a kernel" kernel
step "building the boot ROM and init" guest
if [ $mode = quick ]; then
    step "fetching Bochs" bochs_binary
else
    step "building Bochs (minutes)" bochs_source
fi
write_conf > "$home/bochs.conf"
if [ $mode = full ]; then step "patching the kernel for AMX" patch_kernel; fi
cat > "$tmp/hello.c" << 'C'
int main(void) { return 42; }
C
boots() {
    local rc=0
    gcc -static -o "$tmp/hello" "$tmp/hello.c"
    python3 "$here/run_emulated.py" --home "$home" --timeout 200 "$tmp/hello" || rc=$?
    [ $rc = 42 ]
}
step "starting the emulated machine once" boots

echo "$stamp" > "$home/stamp"
rm -rf "${cache:?}/$mode" "$cache/$mode.failed"
mv "$home" "$cache/$mode"
done_with "made"
