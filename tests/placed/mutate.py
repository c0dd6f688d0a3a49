#!/usr/bin/env python3
"""Puts one fault after the other into generated kernels and into sources, and counts the tests that notice.

For every family of kernels (operation, format, instruction set) of this machine: one instruction dropped, and one bit of
a constant flipped. For the sources: the lines of mutants.txt. A mutant that fewer than two test cases notice fails the run.
usage: mutate.py BUILD_FOLDER [--only TEXT] [--jobs N]; `./dev mutate` builds what it needs. mutate.py --check: only whether
all that is named here is still there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WANTED = 2  # tests that must notice

KERNEL = re.compile(r"(decode_original|decode|prefill|unpack|gather|quantize|vec_dot|dequantize|f32)_(.+)_(\d+)x(\d+)_"
                    r"(avx2|avx_vnni|avx512_vnni|amx)(_v\d+)?")
# What a kernel computes with, by how much it says: the first of these that a kernel has is dropped, its middle occurrence.
ARITHMETIC = ["tdpb[us][us]d", "vpdpbusd", "vpmaddubsw", "vpmaddwd", "vfmadd231ps", "vpackssdw", "vpackuswb", "vpunpck[lh]dq",
              "vpunpck[lh]qdq", "vpshufb", "vcvtph2ps", "vpsrlw", "vpmovzxbd", "vmulps", "vpaddd"]
# The tests that run a kernel of the kind, the quick ones first.
PRODUCTS = ["packed, original and scalar products have the same bits, in every format",
            "every tile shape gives the reference's bits", "tails of N, lengths of K and thread counts do not change bits",
            "strides, batches and a bias*", "experts give the bits of one product per slot*", "C21: *"]
ORIGINALS = ["gathered rows are the packed panel, at every alignment, up to the last byte",
             "packing by kernels gives the plain bytes, padding included", "original weights give the bits of packed ones"]
TESTS = {
    "decode": PRODUCTS, "prefill": PRODUCTS, "unpack": PRODUCTS,
    "decode_original": ["decode of original rows gives the reference's bits and stays within the rows"] + ORIGINALS + PRODUCTS,
    "gather": ORIGINALS + PRODUCTS,
    "quantize": ["quantizers equal the plain one on ordinary data, in every place of a tile",
                 "quantizers equal the plain one on every pattern of bits", "quantizers write the fields*",
                 "quantizers round ties to even and reach 127 exactly",
                 "C2: groups that cannot be quantised*"] + PRODUCTS,
    "vec_dot": ["generated dot products have the bits of the reference", "C5: sums are exact at the ends of every range",
                "scales that are not finite come out as the reference has them"],
    "dequantize": ["dequantised panels hold the codec's values, bit for bit", "unquantised products give the reference's bits",
                   "more rows than a block keep their bits, and Inf and NaN their row"],
    "f32": ["unquantised products give the reference's bits",
            "more rows than a block keep their bits, and Inf and NaN their row", "C6: the arithmetic that was asked for*"],
    "source": ["plain encoders give the golden bytes", "dequantised golden blocks equal the golden values bit for bit",
               "activation blocks equal the golden bytes", "oracle and library decode random blocks alike",
               "C4: the encoders' bytes are the same on every compiler",
               "C4: the encoders' bytes are the same on every instruction set", "Q8_0's plain encoder*",
               "the group view and the dequantised values are the same numbers", "C9: *", "every tile shape*", "C18: *",
               "packed, original and scalar products*", "quantizers equal the plain one*",
               "generated dot products have the bits*", "the reference is the dot product of what the bytes mean",
               "the default encoders beat the golden bytes' error*"],
    "driver": ["outputs beyond the second-level cache*", "large outputs are right*", "large outputs of experts*",
               "padded K: the same bits*", "padded K: the products are those*", "padded K: products that share x*",
               "several weights on one x*", "C7: lengths of K"] + PRODUCTS,
}


class Mutant:
    def __init__(self, kind, name, what, environment=None, edit=None):
        self.kind, self.name, self.what = kind, name, what
        self.environment, self.edit = environment or {}, edit


def quoted(name):
    return '"' + re.sub(r'(["\\,\[\]])', r"\\\1", name) + '"'


def noticed(program, test, environment):
    """A test notices where it fails, crashes or does not end; one that matches nothing is a mistake of the table above."""
    try:
        run = subprocess.run([program, quoted(test), "--abort", "--rng-seed", "1"], env=environment, timeout=900,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return True
    output = run.stdout.decode(errors="replace")
    if "No test cases matched" in output or "No tests ran" in output:
        raise SystemExit(f"no test is named {test}")
    return run.returncode != 0


def objdump(code):
    text = subprocess.run(["objdump", "-D", "-b", "binary", "-mi386:x86-64", "-w", str(code)],
                          check=True, capture_output=True, text=True).stdout
    instructions = []
    for line in text.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t?(.*)", line)
        if match:
            instructions.append((int(match[1], 16), len(match[2].split()), match[3].strip()))
    # Behind the last return lie constants.
    end = max(i for i, (_, _, text) in enumerate(instructions) if re.match(r"ret\b", text))
    return instructions[:end + 1]


def nops(length):
    return "90" * length


def dropped_instruction(instructions):
    for pattern in ARITHMETIC:
        found = [(at, length, text) for at, length, text in instructions if re.match(r"(\{vex\} )?" + pattern + r"\s", text)]
        if found:
            at, length, text = found[len(found) // 2]
            return at, nops(length), "dropped " + text.removeprefix("{vex} ").split()[0]
    return None


def flipped_constant(instructions, code):
    """The constant that is used most, its second dword: the lowest bit of a byte, or the highest of a float's mantissa."""
    uses = {}
    for _, _, text in instructions:
        match = re.search(r"\(%rip\).*# 0x([0-9a-f]+)", text)
        if match and not text.startswith(("lea", "prefetch")):
            address = int(match[1], 16) // 64 * 64
            uses[address] = uses.get(address, 0) + 1
    if not uses:
        return None
    address = max(uses, key=lambda a: (uses[a], -a))
    dword = int.from_bytes(code[address + 4:address + 8], "little")
    is_float = 0x30 <= dword >> 24 & 0x7F <= 0x4F and dword & 0xFFFF != dword >> 16
    # A shuffle's control that gives zero gives it with any lower bits.
    at = address + 4 + (2 if is_float else next((i for i in range(4) if code[address + 4 + i] != 0x80), 0))
    return at, f"{code[at] ^ (0x40 if is_float else 1):02x}", f"flipped a bit of constant {dword:08x}"


def kernel_mutants(program, folder):
    """The kernels that dispatch uses, one of each family: dumped by running products."""
    families = {}
    for isa in ("avx2", "avx_vnni", "avx512_vnni", "amx"):
        dump = pathlib.Path(folder) / isa
        dump.mkdir()
        for test in (PRODUCTS[0], "half-precision inputs and outputs*", "C6: *", "generated dot products have the bits*",
                     "unquantised products give*" if isa == "avx2" else "C6: *"):
            subprocess.run([program, quoted(test)], env=dict(os.environ, NYBL_MAX_ISA=isa, NYBL_JIT_DUMP=str(dump)),
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for code in sorted(dump.glob("*.bin")):
            match = KERNEL.fullmatch(code.stem)
            if match:  # of tile kernels the last: the largest. What a quantizer writes is its variant.
                families[match[1], match[2], match[5], match[6] if match[1] == "quantize" else None] = code
    mutants = []
    for (kind, _, isa, _), path in sorted(families.items(), key=str):
        code, instructions = path.read_bytes(), objdump(path)
        for fault in (dropped_instruction(instructions), flipped_constant(instructions, code)):
            if fault:
                mutants.append(Mutant(kind, path.stem, fault[2], {"NYBL_MUTANT": f"{path.stem} {fault[0]} {fault[1]}",
                                                                   "NYBL_MAX_ISA": isa}))
    return mutants


def source_mutants():
    mutants, kind = [], None
    for line in (HERE / "mutants.txt").read_text().splitlines():
        if line.startswith("["):
            kind = line.strip("[] ")
        elif line.strip() and not line.startswith("#"):
            file, old, new = (part.strip() for part in line.split(" ~> "))
            mutants.append(Mutant(kind, file, f"{old} -> {new}", edit=(file, old, new)))
    return mutants


def is_there_once(mutant):
    path, old, _ = mutant.edit
    path = ROOT / path.partition("@")[0]
    return path.exists() and path.read_text().count(old) == 1


def check_names():
    """A change of a source or of a test's name may leave something here that points nowhere: a line for each."""
    stale = [f"mutants.txt: not once in {m.edit[0]}: {m.edit[1]}" for m in source_mutants() if not is_there_once(m)]
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("*/*.cpp"))
    names = re.findall(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', sources)
    names = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', name)) for name in names]
    for test in sorted({test for tests in TESTS.values() for test in tests}):
        if not any(name == test or test.endswith("*") and name.startswith(test[:-1]) for name in names):
            stale.append(f"mutate.py: no test is named {test}")
    print("\n".join(stale))
    return 1 if stale else 0


def build_source_mutant(build, program, mutant, folder):
    """The test program with that one object compiled from the changed source."""
    place, old, new = mutant.edit
    file, _, source = place.partition("@")
    source = source or file
    if not is_there_once(mutant):
        raise SystemExit(f"not once in {file}: {old}")
    text = (ROOT / file).read_text()
    work = pathlib.Path(tempfile.mkdtemp(dir=folder))
    changed = work / file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(old, new))
    compile_command = next(entry for entry in json.loads((build / "compile_commands.json").read_text())
                           if entry["file"] == str(ROOT / source) and "nybl_core.dir" in entry["command"])
    words = [word for word in shlex.split(compile_command["command"]) if word != "-Werror"]
    wanted, made, linked = words[words.index("-o") + 1], str(work / "changed.o"), str(work / "program")
    words[words.index("-o") + 1] = made
    words[words.index("-c") + 1] = str(changed if source == file else ROOT / source)
    # In front of the real folder: a changed header is found first.
    words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{work / 'src'}")
    for option in ("-MD", "-MT", "-MF"):
        if option in words:
            at = words.index(option)
            del words[at:at + (1 if option == "-MD" else 2)]
    subprocess.run(words, cwd=compile_command["directory"], check=True)
    link = subprocess.run(["ninja", "-C", str(build), "-t", "commands", program.name], check=True, capture_output=True,
                          text=True).stdout.splitlines()[-1]
    link = link.replace(f" {wanted} ", f" {made} ")
    link = re.sub(r" -o \S+", f" -o {linked} ", link, count=1)
    subprocess.run(link, shell=True, cwd=build, check=True)
    return linked


def try_mutant(build, program, mutant, folder):
    runs = build_source_mutant(build, program, mutant, folder) if mutant.edit else str(program)
    tests = []
    for test in TESTS[mutant.kind]:
        if noticed(runs, test, dict(os.environ, **mutant.environment)):
            tests.append(test)
        if len(tests) == WANTED:
            break
    if mutant.edit:
        os.unlink(runs)
    return tests


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="only look whether sources and tests named here are there")
    parser.add_argument("--only", default="", help="mutants whose kind or name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.check:
        return check_names()
    if not options.build:
        parser.error("which build folder?")
    build = options.build.resolve()
    program = build / "tests" / "placed" / "nybl_test_mutants"
    with tempfile.TemporaryDirectory() as folder:
        mutants = [m for m in kernel_mutants(program, folder) + source_mutants()
                   if options.only in f"{m.kind} {m.name}"]
        for test in sorted({test for m in mutants for test in TESTS[m.kind]}):
            if noticed(str(program), test, dict(os.environ)):
                raise SystemExit(f"without any mutant this test fails: {test}")
        table, survivors = {}, []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for mutant, tests in zip(mutants, pool.map(lambda m: try_mutant(build, program, m, folder), mutants)):
                row = table.setdefault(mutant.kind, [0, 0])
                row[0] += 1
                row[1] += len(tests) >= WANTED
                print(f"{'caught ' if len(tests) >= WANTED else 'MISSED '} {mutant.name}: {mutant.what}: "
                      f"{'; '.join(tests) or 'no test'}", flush=True)
                if len(tests) < WANTED:
                    survivors.append(mutant)
    print(f"\n{'kind':<16} mutants  caught by two tests")
    for kind, (count, caught) in sorted(table.items()):
        print(f"{kind:<16} {count:>7}  {caught:>7}")
    print(f"{len(mutants)} mutants, {len(survivors)} missed")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
