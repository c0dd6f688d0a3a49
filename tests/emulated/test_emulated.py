#!/usr/bin/env python3
"""test_emulated.py PROGRAM: sets the emulator up where it is not, and runs nybl_test_emulated on emulated CPUs.

Prints what tests/run.py counts; where there is no emulator, one "skip" line for every CPU with the reason.
NYBL_EMULATOR=full: with AMX; NYBL_EMULATOR=off: skip all. docs/testing.md says what this covers.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Bochs CPU model, what it must be seen to have, whether a few shapes are enough: the first one has all kernels, the others
# are there for what they lack.
MODELS = [
    ("sapphire_rapids", ["avx2", "avx_vnni", "avx512_vnni"], False),
    ("corei7_icelake_u", ["avx2", "avx512_vnni"], True),  # no AVX-VNNI
    ("arrow_lake", ["avx2", "avx_vnni"], True),  # no AVX-512
    ("corei7_haswell_4770", ["avx2"], True),
    ("core2_penryn_t9600", [], True),  # no AVX: ordinary code must not need it
]


def set_up():
    """The set-up's (folder, None), or (None, why not)."""
    result = subprocess.run([os.path.join(HERE, "setup_emulator.sh")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    lines = result.stdout.strip().splitlines() or ["no output"]
    print(result.stdout, flush=True)
    if result.returncode == 0:
        return re.search(r"(?:found|made) (/.*)", lines[-1]).group(1), None
    if result.returncode == 77:
        return None, re.sub(r"^(setup_emulator|skipped): ", "", lines[-1])
    sys.exit("setup_emulator.sh ended with %d" % result.returncode)


def run_model(program, home, model, required, brief):
    prefix = "emulated %s" % model
    command = [os.path.join(HERE, "run_emulated.py"), "--home", home, "--cpu", model, "--stats", "--timeout", "600",
               program, "--prefix", prefix] + [word for isa in required for word in ("--require", isa)]
    result = subprocess.run(command + (["--brief"] if brief else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = result.stdout
    if result.returncode not in (0, 1):  # 1: it said itself what failed
        output += "not ok %s: exit status %d\n" % (prefix, result.returncode)
    return result.returncode == 0, output


def main():
    program = sys.argv[1]
    home, why = set_up()
    amx = False
    if home:
        with open(os.path.join(home, "bochs.conf")) as conf:
            amx = "amx=1\n" in conf
    passed = True
    with concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        runs = []
        for model, required, brief in MODELS:
            if not home:
                print("skip emulated %s: no emulator: %s" % (model, why))
                continue
            if amx and model == "sapphire_rapids":
                required = required + ["amx"]
            runs.append(pool.submit(run_model, program, home, model, required, brief))
        for run in runs:
            run_passed, output = run.result()
            print(output, end="", flush=True)
            passed &= run_passed
    if not amx:
        print("skip emulated amx: %s" % ("no emulator: " + why if why else "the quick set-up has no AMX; NYBL_EMULATOR=full has"))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
