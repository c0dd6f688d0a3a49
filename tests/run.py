#!/usr/bin/env python3
"""Runs every test program of one or more build folders and counts test cases over all of them.

Each build folder lists its programs in tests/manifest.txt (written by tests/CMakeLists.txt), one a line:
  catch NAME PROGRAM             a Catch2 program: its test cases are counted
  script NAME COMMAND [ARGS...]  prints lines "ok NAME", "not ok NAME: why", "skip NAME: why": those are counted
A skip that tests/expected-skips.txt does not list fails the run. The last line is "N passed, N failed[, N skipped]".
"""
import argparse
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIME_LIMIT_S = 1800


class Results:
    """Outcomes of one program: names that passed, (name, why) of the others."""

    def __init__(self):
        self.passed, self.failed, self.skipped = [], [], []


def describe_exit(code):
    if code is None:
        return f"still running after {TIME_LIMIT_S} s"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit status {code}"


def run(command, log, environment):
    """Runs to the end or to the time limit, output into the log file; None for a time-out."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
        try:
            return process.wait(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def catch_spec(text, slow):
    name = '"*' + re.sub(r'(["\\,\[\]])', r"\\\1", text) + '*"' if text else ""
    specs = [name + "~[.]"]
    if slow:
        specs.append(name + "[slow]")
    return ",".join(specs)


def skip_reason(case):
    return " ".join(" ".join((node.text or "").split()) for node in case.iter("Skip")) or "no reason given"


def failure_text(case):
    for node in case.iter():
        if node.tag == "Expression" and node.get("success") == "false":
            expanded = " ".join((node.findtext("Expanded") or "").split())
            return f"{node.get('filename')}:{node.get('line')}: {expanded}"
        if node.tag in ("Failure", "Exception", "FatalErrorCondition"):
            return f"{node.get('filename')}:{node.get('line')}: {' '.join((node.text or '').split())}"
    return "failed without a message"


def read_catch_report(report, results):
    """Reads what was written, as far as it goes: a program that died leaves a report without its end."""
    case = None
    try:
        for event, node in ET.iterparse(report, events=("start", "end")):
            if node.tag != "TestCase":
                continue
            case = node.get("name") if event == "start" else None
            if event == "start":
                continue
            overall = node.find("OverallResult")
            if overall is None or overall.get("success") != "true":
                results.failed.append((node.get("name"), failure_text(node)))
            elif int(overall.get("skips", "0")) and node.find(".//Skip") is not None and not node.findall(
                    ".//Expression"):
                results.skipped.append((node.get("name"), skip_reason(node)))
            else:
                results.passed.append(node.get("name"))
    except (ET.ParseError, FileNotFoundError) as error:
        return case, str(error)
    return None, ""


def run_catch(name, program, log, options, environment):
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    # A fixed seed: the same inputs on every run; a test that wants others makes them itself.
    code = run([program, "--reporter", f"xml::out={report}", "--reporter", "console::out=-", "--rng-seed", "1",
                "--allow-running-no-tests", catch_spec(options.filter, options.slow)], log, environment)
    results = Results()
    unfinished, error = read_catch_report(report, results)
    if unfinished or error or (code != 0 and not results.failed):
        results.failed.append((unfinished or name, describe_exit(code)))
    return results


def run_script(name, command, log, options, environment):
    results = Results()
    if options.filter and options.filter.lower() not in name.lower():
        return results
    code = run(command, log, environment)
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(ok|not ok|skip) ([^:]+)(?:: (.*))?$", line)
        if not match:
            continue
        kind, case, why = match.groups()
        if kind == "ok":
            results.passed.append(case)
        else:
            (results.failed if kind == "not ok" else results.skipped).append((case, why or "no reason given"))
    if code != 0 and not results.failed:
        results.failed.append((name, describe_exit(code)))
    if code == 0 and not (results.passed or results.failed or results.skipped):
        results.failed.append((name, "ran no test case"))
    return results


def read_expected_skips():
    """Lines "part of the test's name | part of the reason"."""
    expected = []
    for line in (ROOT / "tests" / "expected-skips.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            case, _, reason = line.partition("|")
            expected.append((case.strip(), reason.strip()))
    return expected


def is_expected(skip, expected):
    return any(case in skip[0] and reason in skip[1] for case, reason in expected)


def environment_for(build):
    environment = dict(os.environ, NYBL_SOURCE_DIR=str(ROOT), NYBL_BUILD_DIR=str(build))
    environment.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    environment.setdefault("TSAN_OPTIONS", "halt_on_error=1")
    return environment


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="only test cases (and scripts) whose name contains this")
    parser.add_argument("--slow", action="store_true", help="also test cases tagged [.slow]")
    parser.add_argument("builds", nargs="+", help="build folders; FOLDER:PROGRAM,PROGRAM...: only these of its programs")
    options = parser.parse_args()

    expected = read_expected_skips()
    passed = failed = skipped = 0
    for folder, _, programs in (text.partition(":") for text in options.builds):
        build = pathlib.Path(folder).resolve()
        logs = build.parent / "logs"
        logs.mkdir(exist_ok=True)
        for line in (build / "tests" / "manifest.txt").read_text().splitlines():
            kind, name, *command = shlex.split(line)
            if programs and name not in programs.split(","):
                continue
            log = logs / f"{build.name}-{name}.log"
            start = time.monotonic()
            if kind == "catch":
                results = run_catch(name, command[0], log, options, environment_for(build))
            else:
                results = run_script(name, command, log, options, environment_for(build))
            for skip in results.skipped:
                if not is_expected(skip, expected):
                    results.failed.append((skip[0], f"skipped, and not in tests/expected-skips.txt: {skip[1]}"))
            results.skipped = [skip for skip in results.skipped if is_expected(skip, expected)]
            counts = [len(results.passed), len(results.failed), len(results.skipped)]
            if not any(counts):
                continue
            print(f"  {build.name} {name:<26} {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped"
                  f" ({time.monotonic() - start:.1f} s)", flush=True)
            for case, why in results.failed:
                print(f"    FAILED {case}: {why}")
            if results.failed:
                print(f"    log: {os.path.relpath(log, ROOT)}")
            for case, why in results.skipped:
                print(f"    skipped {case}: {why}")
            passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]

    if passed + failed + skipped == 0:
        print("no test case matches")
        failed = 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
