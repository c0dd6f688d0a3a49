#!/usr/bin/env python3
"""Runs a Linux x86-64 program on an emulated CPU that has AVX512-VNNI, AVX-VNNI and (full set-up) AMX.

The machine has one CPU, no network and no stdin; it holds the program, its shared libraries, what --file adds, and the
folders /tmp, /dev, /proc and /sys. Exit code: the program's; 128+N where signal N ended it; 124 after --timeout;
125 where the emulator itself failed; 77 with the reason where no emulator was set up (setup_emulator.sh).
"""
import argparse
import glob
import os
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

# Where things lie in guest memory: the boot image starts at BASE with the PVH start information, then kernel and initrd.
BASE, KERNEL = 0x100000, 0x1000000
MIB = 1 << 20
HELLO = b"\nEMU-FRAMES\n"  # what the guest's init writes before its first frame


class EmulatorError(Exception):
    pass


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--home", help="a set-up's folder (default: the current one of setup_emulator.sh)")
    p.add_argument("--cpu", help="Bochs CPU model (default sapphire_rapids)")
    p.add_argument("--timeout", type=float, default=600, help="seconds")
    p.add_argument("--mem", type=int, default=1024, help="guest memory in MiB, at most 2047")
    p.add_argument("--file", action="append", default=[], help="pack this file or folder too, at the same path")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--stats", action="store_true", help="print boot and total time to stderr")
    p.add_argument("--keep", action="store_true", help="keep the work folder and make the kernel talk")
    p.add_argument("program")
    p.add_argument("args", nargs=argparse.REMAINDER)
    return p.parse_args()


def find_home(options):
    """The folder of a set-up that is ready; exits with 77 where there is none."""
    if options.home:
        return options.home
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "nybl", "emulator")
    current = os.path.join(cache, "current")
    if os.environ.get("NYBL_EMULATOR") == "off":
        reason = "NYBL_EMULATOR=off"
    elif os.path.exists(os.path.join(current, "stamp")):
        return os.path.realpath(current)
    else:
        reason = "setup_emulator.sh was not run"
        for failed in glob.glob(os.path.join(cache, "*.failed")):
            with open(failed) as f:
                reason = f.read().strip()
    print("skipped: no emulator: %s" % reason)
    sys.exit(77)


def read_conf(home):
    with open(os.path.join(home, "bochs.conf")) as f:
        pairs = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)
    return {k: v.replace("{home}", home) for k, v in pairs.items()}


class Archive:
    """What the guest's file system holds: guest path -> host path, or (mode, bytes, device)."""

    def __init__(self):
        self.entries = {}

    def add(self, path):
        self.entries.setdefault(os.path.normpath(path), path)

    def add_file(self, path):
        """A host file at the same path, with the shared libraries it needs."""
        self.add(path)
        with open(path, "rb") as f:
            if f.read(4) != b"\x7fELF":
                return
        ldd = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in ldd.stdout.splitlines() if ldd.returncode == 0 else []:  # not 0: static
            if "not found" in line:
                raise EmulatorError("%s: %s" % (path, line.strip()))
            found = re.search(r"(?:=> )?(/\S+) \(0x", line)
            if found:
                self.add(found.group(1))

    def add_tree(self, path):
        path = os.path.abspath(path)
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise EmulatorError("no such file: %s" % path)
            self.add_file(path)
            return
        for folder, folders, names in os.walk(path):
            self.entries.setdefault(folder, (stat.S_IFDIR | 0o755, b"", None))
            for name in names + [d for d in folders if os.path.islink(os.path.join(folder, d))]:
                self.add(os.path.join(folder, name))

    def add_bytes(self, path, data):
        self.entries[path] = (stat.S_IFREG | 0o644, data, None)

    def write_cpio(self, out):
        """As an initramfs (cpio "newc"), parents before children."""
        seen, inode = set(), 0

        def record(name, mode, data, device=None):
            nonlocal inode
            inode += 1
            raw = os.fsencode(name.lstrip("/")) + b"\0"
            major, minor = device or (0, 0)
            fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(raw), 0)
            out.write(("070701" + "%08X" * 13 % fields).encode() + raw)
            out.write(b"\0" * (-(110 + len(raw)) % 4) + data + b"\0" * (-len(data) % 4))

        def parents(path):
            folder = os.path.dirname(path)
            if folder not in ("/", "") and folder not in seen:
                parents(folder)
                seen.add(folder)
                record(folder, stat.S_IFDIR | 0o755, b"")

        for path in sorted(self.entries):
            if path == "/" or path in seen:
                continue
            parents(path)
            seen.add(path)
            source = self.entries[path]
            if isinstance(source, tuple):
                record(path, *source)
            elif os.path.islink(source) and not re.search(r"\.so(\.|$)", path):
                record(path, stat.S_IFLNK | 0o777, os.fsencode(os.readlink(source)))
            else:  # libraries are packed under the name the loader asks for
                with open(source, "rb") as f:
                    record(path, stat.S_IFREG | (os.stat(source).st_mode & 0o777), f.read())
        record("TRAILER!!!", 0, b"")


def make_archive(options, home):
    program = shutil.which(options.program) or options.program
    if not os.path.isfile(program):
        raise EmulatorError("no such program: %s" % options.program)
    program = os.path.realpath(program)
    archive = Archive()
    archive.add_file(program)
    for path in options.file:
        archive.add_tree(path)
    environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "TMPDIR=/tmp"]
    if os.environ.get("LD_LIBRARY_PATH"):
        environment.append("LD_LIBRARY_PATH=" + os.environ["LD_LIBRARY_PATH"])
    terminated = lambda strings: b"".join(os.fsencode(s) + b"\0" for s in strings)
    archive.entries["/init"] = os.path.join(home, "init")
    archive.add_bytes("/run/args", terminated([program] + options.args))
    archive.add_bytes("/run/env", terminated(environment + options.env))
    archive.entries["/dev/console"] = (stat.S_IFCHR | 0o600, b"", (5, 1))
    archive.entries["/dev/null"] = (stat.S_IFCHR | 0o666, b"", (1, 3))
    archive.entries["/tmp"] = (stat.S_IFDIR | 0o777, b"", None)
    return archive


def write_boot_image(path, options, home, conf, archive):
    """Guest memory from BASE on: struct hvm_start_info with its module list, memory map and command line, the kernel, the
    archive. guest/rom.S reads the image's end and the kernel's entry at 0xff0."""
    initrd, memory = int(conf["initrd"], 0), options.mem * MIB
    talk = " loglevel=7 ignore_loglevel earlyprintk=serial,ttyS0,115200" if options.keep else " quiet"
    with open(path, "wb") as image, open(os.path.join(home, "vmlinux.bin"), "rb") as kernel:
        image.seek(KERNEL - BASE)
        shutil.copyfileobj(kernel, image, 4 * MIB)
        image.seek(initrd - BASE)
        archive.write_cpio(image)
        end = BASE + image.tell()
        if end + 256 * MIB > memory:
            raise EmulatorError("--mem is too small for what is packed")
        image.write(b"\0" * (-image.tell() % 4096))
        image.seek(0)
        image.write(struct.pack("<IIIIQQQQII", 0x336EC578, 1, 0, 1, BASE + 0x100, BASE + 0x800, 0, BASE + 0x200, 2, 0))
        image.seek(0x100)
        image.write(struct.pack("<QQQQ", initrd, end - initrd, 0, 0))
        image.seek(0x200)
        image.write(struct.pack("<QQII", 0, 0x9F000, 1, 0) + struct.pack("<QQII", BASE, memory - BASE, 1, 0))
        image.seek(0x800)
        image.write((conf["cmdline"] + talk).encode() + b"\0")
        image.seek(0xFF0)
        image.write(struct.pack("<II", end, int(conf["entry"], 0)))


def read_frames(pipe, deadline, times):
    """Hands the guest's output on until its exit status arrives; None where the emulator ended or time ran out."""
    data, synced = b"", False
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not select.select([pipe], [], [], left)[0]:
            continue
        more = os.read(pipe, 65536)
        if not more:
            return None
        data += more
        if not synced:
            at = data.find(HELLO)
            if at < 0:
                continue
            data, synced = data[at + len(HELLO):], True
        while len(data) >= 3:
            tag, length = data[:1], data[1] | data[2] << 8
            if len(data) < 3 + length:
                break
            body, data = data[3:3 + length], data[3 + length:]
            if tag == b"B":
                times["boot"] = time.monotonic()
            elif tag in b"OE":
                stream = sys.stdout if tag == b"O" else sys.stderr
                stream.buffer.write(body)
                stream.flush()
            elif tag == b"X":
                return struct.unpack("<i", body)[0]


def run(options, home, work):
    start = time.monotonic()
    conf = read_conf(home)
    cpu = options.cpu or conf["cpu"]
    write_boot_image(work + "/boot.img", options, home, conf, make_archive(options, home))
    with open(os.path.join(home, "bochsrc.in")) as template, open(work + "/bochsrc", "w") as rc:
        rc.write(template.read().format(cpu=cpu, ips=conf["ips"], mem=options.mem, home=home, work=work,
                                        display=conf["display"]))
    environment = dict(os.environ, **{k[4:]: v for k, v in conf.items() if k.startswith("env.")})
    times, status, timed_out = {}, None, False
    with open(work + "/stderr.log", "wb") as log:
        bochs = subprocess.Popen(conf["cmd"].split() + ["-q", "-f", work + "/bochsrc"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=log, env=environment, cwd=work, start_new_session=True)
    try:
        status = read_frames(bochs.stdout.fileno(), start + options.timeout, times)
    except TimeoutError:
        timed_out = True
    finally:
        try:
            bochs.wait(0.3 if status is not None else 0)
        except subprocess.TimeoutExpired:
            os.killpg(bochs.pid, signal.SIGKILL)  # its own session: Bochs and nothing else
            bochs.wait()
    if options.stats:
        end = time.monotonic()
        sys.stderr.write("run_emulated: cpu %s, %.2f s to the program's start, %.2f s in all\n"
                         % (cpu, times.get("boot", end) - start, end - start))
    if timed_out:
        sys.stderr.write("run_emulated: timed out after %g s\n" % options.timeout)
        return 124
    if status is None:
        sys.stderr.write("run_emulated: the emulator ended without a result\n")
        for name in ("stderr.log", "bochs.log", "serial.log"):
            if os.path.exists(work + "/" + name):
                with open(work + "/" + name, "rb") as f:
                    sys.stderr.write("--- %s\n%s\n" % (name, f.read()[-3000:].decode(errors="replace")))
        return 125
    if os.WIFSIGNALED(status):
        sys.stderr.write("run_emulated: the program was ended by signal %d\n" % os.WTERMSIG(status))
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def main():
    options = parse_arguments()
    home = find_home(options)
    work = tempfile.mkdtemp(prefix="nybl-emulated.")
    try:
        return run(options, home, work)
    except EmulatorError as error:
        sys.stderr.write("run_emulated: %s\n" % error)
        return 125
    finally:
        if options.keep:
            sys.stderr.write("run_emulated: work folder %s\n" % work)
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
