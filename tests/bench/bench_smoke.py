#!/usr/bin/env python3
"""Runs nybl-bench briefly: right outputs, names by their grammar, counters in the JSON, refusals in words."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

BENCH = sys.argv[1]
NAME = re.compile(r"(decode|prefill|moe|decode_original|prefill_original|prefill_f32|vec_dot|pack|quantize|"
                  r"quantize_importance|quantize_fast|dequantize)"
                  r"/[A-Z0-9_]+/\d+x\d+x\d+/(scalar|avx2|avx_vnni|avx512_vnni|amx)/t\d+")


def bench(*arguments):
    return subprocess.run([BENCH, "--threads", "1", *arguments], capture_output=True, text=True, timeout=900)


def check(name, problem):
    print(f"not ok {name}: {problem}" if problem else f"ok {name}", flush=True)


def quick_run():
    done = bench("--quick", "--hot", "--benchmark_min_time=0.001", "--benchmark_format=json")
    if done.returncode != 0:
        return f"exit status {done.returncode}: {' '.join(done.stderr.split())[-300:]}"
    report = json.loads(done.stdout)
    if not report["context"].get("nybl", "").startswith("nybl "):
        return "the report does not name the library's build"
    cases = report["benchmarks"]
    for case in cases:
        if not NAME.fullmatch(case["name"]):
            return f"the name {case['name']} does not follow the grammar"
        if not case.get("GB/s", 0) > 0:
            return f"{case['name']} has no rate"
        if case["name"].startswith("decode/") and not 0 <= case["nmse"] < 1e-3:
            return f"{case['name']} has nmse {case['nmse']}"
    seen = {case["name"].split("/")[0] for case in cases}
    missing = {"decode", "prefill", "moe", "pack", "quantize", "quantize_importance", "quantize_fast", "dequantize"} - seen
    return f"no case of {sorted(missing)}" if missing else ""


def list_matches():
    done = bench("--quick", "--list", "--format", "Q4_1", "--op", "decode")
    names = done.stdout.split()
    if done.returncode != 0 or not names:
        return f"exit status {done.returncode}, {len(names)} names"
    wrong = [name for name in names if not name.startswith("decode/Q4_1/")]
    if wrong:
        return f"lists {wrong[0]} too"
    done = bench("--quick", "--list", "--benchmark_filter=decode/Q4_1/1x")
    unfiltered = [name for name in done.stdout.split() if not name.startswith("decode/Q4_1/1x")]
    if done.returncode != 0 or not done.stdout or unfiltered:
        return f"--benchmark_filter: exit status {done.returncode}, lists {unfiltered[:1]} too"
    done = bench("--quick", "--list", "--benchmark_filter=nosuch")
    return "" if done.returncode == 1 and not done.stdout else f"a filter that fits nothing: {done.returncode}"


def gpu_run():
    done = bench("--gpu", "0", "--quick", "--format", "Q4_K", "--benchmark_min_time=0.001", "--benchmark_format=json")
    if done.returncode != 0:
        return f"exit status {done.returncode}: {' '.join(done.stderr.split())[-300:]}"
    cases = json.loads(done.stdout)["benchmarks"]
    devices = {case["name"].split("/", 3)[3].rsplit("/", 1)[0] for case in cases}
    kernels = {case["label"].split(":")[0] for case in cases}
    if {case["name"].split("/")[0] for case in cases} != {"decode", "prefill", "moe", "prefill_f32"}:
        return f"other ops than those of GPUs: {[case['name'] for case in cases]}"
    if len(devices) != 1 or devices & {"scalar", "avx2", "avx_vnni", "avx512_vnni", "amx"}:
        return f"the field isa is no device: {devices}"
    return "" if kernels <= {"opencl", "onednn", "compute f32"} else f"not every kernel is a GPU's: {kernels}"


def check_gpu():
    name = "bench: the same cases on a GPU"
    refusal = bench("--gpu", "0", "--list", "--quick", "--op", "decode")
    if refusal.returncode != 0 and "unsupported hardware: GPU: " in refusal.stderr:
        print(f"skip {name}: {refusal.stderr.strip().splitlines()[-1]}")
    else:
        check(name, gpu_run())


def refuses(expected, *arguments):
    done = bench(*arguments)
    if done.returncode == 0:
        return "ends with status 0"
    return "" if expected in done.stderr + done.stdout else f"does not say '{expected}': {done.stderr[-200:]!r}"


def main():
    check("bench: every op on small shapes", quick_run())
    check("bench: --list obeys --format and --op", list_matches())
    check_gpu()
    check("bench: an unknown flag is refused", refuses("--no-such-flag", "--no-such-flag"))
    check("bench: an unknown op is refused", refuses("'decoed'", "--op", "decoed", "--list"))
    check("bench: an unknown shape file is refused", refuses("'nowhere'", "--shapes", "nowhere", "--list"))
    with tempfile.TemporaryDirectory() as folder:
        shapes = pathlib.Path(folder, "wrong.txt")
        shapes.write_text("# fine\ndecode 1 4096\n")
        check("bench: a wrong line of shapes is named", refuses("wrong.txt:2", "--shapes", str(shapes), "--list"))
        model = pathlib.Path(folder, "cut.gguf")
        model.write_bytes(b"GGUF\x03\0\0\0\x01\0\0")
        check("bench: a truncated model is named", refuses("cut.gguf: the file ends within", "--model", str(model)))


main()
