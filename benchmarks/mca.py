#!/usr/bin/env python3
"""mca.py NYBL-MCA-KERNELS: what llvm-mca expects of the micro-kernels' main loops on CPUs that are not at hand.

Prints, for each kernel, the cycles per 32 weights and token on several CPUs, with the busiest execution port, beside the
cycles measured on this machine (data in the first-level cache) where it can run the kernel. The model knows ports and
latencies; it does not know caches, the decoders, or that an accumulator that was stored is loaded again.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# LLVM's name, and the instruction sets whose kernels such a CPU runs.
CPUS = {
    "znver3": ["avx2"],
    "znver4": ["avx2", "avx512_vnni"],
    "icelake-server": ["avx2", "avx512_vnni"],
    "sapphirerapids": ["avx2", "avx_vnni", "avx512_vnni"],
    "alderlake": ["avx2", "avx_vnni"],
}
# A dot product that adds to its destination: VEX prefix, name, operands, destination.
DOT = r"(\{vex\} )?(vpdpbusd|vpdpwssd)\s+(.*%[xyz]mm(\d+))$"
# Where LLVM's model of it is known to be wrong, an instruction that it has right stands in: Zen 4 issues a 512-bit dot product
# each cycle (two 256-bit ones) with a latency of 4, like its fused multiply-add; LLVM says one of either width in two cycles.
DOT_STAND_INS = {"znver4": "vfmadd231ps"}
# LLVM puts a broadcast from memory on Zen's multiply ports, which makes a prefill slower than one was measured on Zen 3.
BROADCASTS_ARE_LOADS = ["znver3", "znver4"]
BROADCAST = r"v(?:pbroadcast[dq]|broadcasts[sd])(\s+[^%,]*\()"
NOTES = ["Units: Intel 0, 1 (00, 01) and for zmm 5 (05) compute, 5 (05) shuffles, 2, 3, 11 load; Zen FP0-FP3 compute, FP45 loads.",
         "znver3, znver4: a broadcast from memory counts as a load; znver4: a dot product counts like vfmadd231ps.",
         "sapphirerapids, avx512_vnni: LLVM gives 512-bit multiplies one port; server parts have two."]
ITERATIONS = 40


def find_mca():
    for name in ["llvm-mca-%d" % version for version in range(25, 13, -1)] + ["llvm-mca"]:
        if shutil.which(name):
            return name
    sys.exit("mca: llvm-mca is missing (Debian, Ubuntu: apt-get install llvm-19, or llvm)")


def known_cpus(mca):
    """The CPUs that this llvm-mca has a scheduling model of its own for."""
    version = subprocess.run([mca, "--version"], stdout=subprocess.PIPE, text=True).stdout
    major = int(re.search(r"version (\d+)", version).group(1))
    own_since = {"znver4": 16, "sapphirerapids": 17, "alderlake": 16}
    return [cpu for cpu in CPUS if major >= own_since.get(cpu, 14)], re.search(r"LLVM version \S+", version).group(0)


def disassemble(path):
    """[(address, instruction)] in AT&T syntax, up to the return: constants follow it."""
    text = subprocess.run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn", path],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    code = []
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(.+?)\s*(#.*)?$", line)
        if match:
            code.append((int(match.group(1), 16), match.group(2)))
            if match.group(2).startswith("ret"):
                break
    return code


def backward_jumps(code):
    """Loops as (first, last) indices of their instructions, inner ones first."""
    index = {address: i for i, (address, _) in enumerate(code)}
    loops = []
    for i, (address, text) in enumerate(code):
        match = re.match(r"j\w+\s+0x([0-9a-f]+)", text)
        if match and int(match.group(1), 16) <= address:
            loops.append((index[int(match.group(1), 16)], i))
    return sorted(loops, key=lambda loop: loop[1] - loop[0])


def main_loop(code):
    """The main loop's instructions, inner loops written out as often as they run."""
    loops = backward_jumps(code)
    outer = loops[-1]
    inner = [loop for loop in loops[:-1] if loop[0] >= outer[0] and loop[1] <= outer[1]]
    lines, at = [], outer[0]
    while at <= outer[1]:
        nested = next((loop for loop in inner if loop[0] == at), None)
        if nested:
            lines += [text for _, text in code[nested[0]:nested[1] + 1]] * trip_count(code, outer, nested)
            at = nested[1] + 1
        else:
            lines.append(code[at][1])
            at += 1
    # a jump's target is an address: any will do
    return [re.sub(r"^(j\w+)\s+0x.*", r"\1 main_loop", line) for line in lines]


def trip_count(code, outer, nested):
    """From the last constant that goes into the counter that the inner loop decrements."""
    counter = None
    for _, text in code[nested[0]:nested[1] + 1]:
        counter = (re.match(r"(?:dec\w?\s+|sub\w?\s+\$0x1,)%(\w+)$", text) or [None, counter])[1]
    for _, text in reversed(code[outer[0]:nested[0]]):
        match = re.match(r"mov\w?\s+\$0x([0-9a-f]+),%%%s$" % counter, text)
        if match:
            return int(match.group(1), 16)
    raise ValueError("no trip count for the loop at %#x" % code[nested[0]][0])


def groups_per_iteration(lines, step_bytes, step_groups):
    """32-groups of K that the loop covers: `step_groups` for each `step_bytes` that the activations' pointer advances."""
    steps = {}
    for line in lines:
        match = re.match(r"(add|sub)\w?\s+\$0x([0-9a-f]+),%(\w+)$", line)
        if match:
            step = int(match.group(2), 16)
            step -= (step >> 63) << 64
            steps[match.group(3)] = steps.get(match.group(3), 0) + (step if match.group(1) == "add" else -step)
    groups = [step // step_bytes * step_groups for step in steps.values() if step > 0 and step % step_bytes == 0]
    if not groups:
        raise ValueError("cannot tell how far the loop goes")
    return min(groups)


def adapt(cpu, lines):
    """The loop as the model understands it. Most models do not know that zeroing a register ends its old chain: where a dot
    product follows, the zeroing becomes a nop and the dot product one that overwrites."""
    stand_in = DOT_STAND_INS.get(cpu)
    fresh, adapted = set(), []
    for i, line in enumerate(lines):
        zeroing = re.match(r"vpxord?\s+%([xyz]mm\d+),%\1,%\1$", line)
        dot = re.match(DOT, line)
        if zeroing:
            register = zeroing.group(1)[3:]
            user = next((later for later in lines[i + 1:] if re.search(r"%%[xyz]mm%s\b" % register, later)), "")
            user_dot = re.match(DOT, user)
            if user_dot and user_dot.group(4) == register:
                fresh.add(register)
                line = "nop"
        elif dot:
            vex, name, operands, destination = dot.groups()
            if destination in fresh:  # same ports; vpmaddubsw takes no broadcast from memory
                name = "vmulps" if stand_in or "{1to" in operands else "vpmaddubsw"
            else:
                name = stand_in or (vex or "") + name
            line = "%s %s" % (name, operands)
            fresh.discard(destination)
        elif cpu in BROADCASTS_ARE_LOADS:
            line = re.sub(BROADCAST, r"vmovups\1", line)
        adapted.append(line)
    return adapted


def simulate(mca, cpu, lines):
    """(cycles of one iteration, name and use of the busiest unit)."""
    lines = adapt(cpu, lines)
    source = "main_loop:\n" + "\n".join(lines) + "\n"
    run = subprocess.run([mca, "-mtriple=x86_64-linux-gnu", "-mcpu=" + cpu, "-iterations=%d" % ITERATIONS, "-json"],
                         input=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        raise ValueError(run.stderr.strip().splitlines()[0])
    report = json.loads(run.stdout[run.stdout.index("{"):])
    region = report["CodeRegions"][0]
    cycles = region["SummaryView"]["TotalCycles"] / ITERATIONS
    units = report["TargetInfo"]["Resources"]
    # the last index stands for the whole loop
    totals = {entry["ResourceIndex"]: entry["ResourceUsage"]
              for entry in region["ResourcePressureView"]["ResourcePressureInfo"]
              if entry["InstructionIndex"] == len(lines)}
    busiest = max(totals, key=totals.get)  # one of several like units is named ".", and its number as a byte
    return cycles, re.sub(r"^(?:\w*?Port|Zn\d)|\.[\x00-\x1f]$", "", units[busiest]), totals[busiest] / cycles


def describe(mca, cpus, folder, name, rows, tokens, step_bytes, step_groups):
    """{cpu: cell of the table}"""
    code = disassemble(os.path.join(folder, name + ".bin"))
    lines = main_loop(code)
    blocks = rows * tokens * groups_per_iteration(lines, step_bytes, step_groups)
    cells = {}
    for cpu in cpus:
        if any(name.endswith("_" + isa) for isa in CPUS[cpu]):
            cycles, unit, use = simulate(mca, cpu, lines)
            cells[cpu] = "%.3f %5s %3.0f%%" % (cycles / blocks, unit, 100 * use)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only kernels whose name contains this")
    parser.add_argument("--mca", help="the llvm-mca to use (default: the newest one)")
    parser.add_argument("program", help="the built nybl-mca-kernels")
    options = parser.parse_args()
    mca = options.mca or find_mca()
    cpus, version = known_cpus(mca)

    with tempfile.TemporaryDirectory(prefix="nybl-mca.") as folder:
        listed = subprocess.run([options.program, folder], stdout=subprocess.PIPE, text=True, check=True).stdout
        kernels = [line.split() for line in listed.splitlines() if options.filter in line]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            rows = [(name, measured, pool.submit(describe, mca, cpus, folder, name, *map(int, numbers)))
                    for name, *numbers, measured in kernels]
            print("Cycles per 32 weights and token in the main loop (%s), the busiest unit and its load; "
                  "last column: measured here." % version)
            for cpu in CPUS:
                if cpu not in cpus:
                    print("%s has no model in this llvm-mca." % cpu)
            print("\n".join(NOTES) + "\n")
            width = max(len(name) for name, _, _ in rows)
            print("%-*s %s  measured" % (width, "kernel", "".join("%18s" % cpu for cpu in cpus)))
            for name, measured, future in rows:
                try:
                    cells = future.result()
                except (ValueError, KeyError, IndexError) as error:
                    sys.exit("mca: %s: %s" % (name, error))
                measured = measured if measured == "-" else "%.3f" % float(measured)
                print("%-*s %s  %8s" % (width, name, "".join("%18s" % cells.get(cpu, "-") for cpu in cpus), measured),
                      flush=True)


if __name__ == "__main__":
    main()
