#!/usr/bin/env python3
"""Runs nybl-tune briefly: a table for every instruction set, a file that the next run reads, refusals in words."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TUNE = sys.argv[1]


def tune(*arguments, tuning=""):
    return subprocess.run([TUNE, "--quick", *arguments], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "NYBL_TUNING": tuning})


def check(name, problem):
    print(f"not ok {name}: {problem}" if problem else f"ok {name}", flush=True)


def file_round_trip(folder):
    path = folder / "made" / "tuning"
    first = tune("--isa", "avx2", "--write", str(path))
    if first.returncode != 0:
        return f"exit status {first.returncode}: {' '.join(first.stderr.split())[-300:]}"
    measured = re.search(r"stream_max_m +\d+ \(table\) +(\d+)", first.stdout)
    if not measured:
        return "the table does not show the threshold now and measured"
    if f"avx2.stream_max_m {measured[1]}\n" not in path.read_text():
        return "the file does not hold the measured threshold"
    second = tune("--isa", "avx2", tuning=str(path))
    if not re.search(rf"stream_max_m +{measured[1]} \(file\)", second.stdout):
        return "the next run does not take the threshold from the file"
    return None


def other_settings_stay(folder):
    path = folder / "tuning"
    if tune("--isa", "avx2", "--write", str(path)).returncode != 0:
        return "the first run failed"
    path.write_text(path.read_text() + "amx.tiled_tokens 13\n")
    if tune("--isa", "avx2", "--write", tuning=str(path)).returncode != 0: # to NYBL_TUNING
        return "the second run failed"
    return None if "amx.tiled_tokens 13\n" in path.read_text() else "what the file held before is gone"


def wrong_file(folder):
    path = folder / "wrong"
    path.write_text("nybl-tuning 1\nnonsense\n")
    if "is ignored: line 2:" not in tune("--isa", "avx2", tuning=str(path)).stdout:
        return "a wrong file is not told"
    return None


def refusals():
    if tune("--isa", "mmx").returncode == 0:
        return "an unknown instruction set is accepted"
    if tune("--isa", "avx2", "--write", "/proc/no/such/file").returncode == 0:
        return "a file that cannot be written is no failure"
    return None


with tempfile.TemporaryDirectory() as name:
    if "none of these instruction sets" in tune("--isa", "avx2").stderr:
        print("skip tune: this machine has no AVX2")
    else:
        check("tune measures, writes a file and reads it", file_round_trip(pathlib.Path(name)))
        check("tune leaves other instruction sets of a file alone", other_settings_stay(pathlib.Path(name)))
        check("tune tells that a wrong file is ignored", wrong_file(pathlib.Path(name)))
        check("tune refuses what it does not know", refusals())
