#!/usr/bin/env python3
"""From nybl-bench's JSON (run with --peer ggml) and the lines of peers.py: one table of ratios, a roofline, bars against peers.

  plots.py BENCH.json [--peers PEERS.csv] [--roofline OUT.svg] [--bars OUT.svg]
"""
import argparse
import csv
import json

FORMATS = ["Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q5_K", "IQ4_NL"]
BLOCK_BITS = {"Q4_0": 4.5, "Q4_1": 5, "Q5_1": 6, "Q4_K": 4.5, "Q5_K": 5.5, "IQ4_NL": 4.5}
PEERS = {"ggml": "ggml (better path)", "onnxruntime": "ONNX Runtime, 4 bits", "openvino": "OpenVINO, u4"}


def read_cases(path):
    """(format, m) -> rates of the one-thread cases, and the limits."""
    with open(path) as file:
        report = json.load(file)
    cases = {}
    for run in report["benchmarks"]:
        operation, kind, shape, isa, threads = run["name"].split("/")[:5]
        if run.get("error_occurred") or threads != "t1" or operation not in ("decode", "prefill") or kind not in FORMATS:
            continue
        m = int(shape.split("x")[0])
        cases[kind, m] = {"nybl": run["GFLOP/s"], "ggml": run.get("ggml_GFLOP/s"), "isa": isa, "shape": shape}
    return cases, report["context"]


def read_peers(path):
    peers = {}
    if path:
        with open(path, newline="") as file:
            for library, m, _, rate in csv.reader(file):
                peers[library, int(m)] = float(rate)
    return peers


def print_table(cases, peers):
    ms = sorted({m for _, m in cases})
    print("| over | " + " | ".join(f"M = {m}" for m in ms) + " |")
    print("|---" * (len(ms) + 1) + "|")
    for kind in FORMATS:
        cells = [cases.get((kind, m), {}) for m in ms]
        print(f"| ggml, {kind} | " + " | ".join(f"{c['nybl'] / c['ggml']:.2f}" if c.get("ggml") else "" for c in cells) + " |")
    for library in ("onnxruntime", "openvino"):
        # The same kind of weights: 4 bits, a scale and a zero point in 32.
        cells = [(cases.get(("Q4_1", m), {}).get("nybl"), peers.get((library, m))) for m in ms]
        if any(peer for _, peer in cells):
            print(f"| {PEERS[library]}, Q4_1 | " + " | ".join(f"{own / peer:.2f}" if own and peer else "" for own, peer in cells) + " |")


def plot_roofline(cases, context, path, plt):
    figure, axes = plt.subplots(figsize=(7.5, 5))
    read = float(context["read/t1"])
    peaks = [(key.split("/")[0], float(value)) for key, value in context.items() if key.endswith("/t1") and not key.startswith("read")]
    isa = next(iter(cases.values()))["isa"]
    wanted = {"avx2": ["dot1", "dot2"], "avx_vnni": ["vpdpbusd_ymm"], "avx512_vnni": ["vpdpbusd_zmm"],
              "amx": ["vpdpbusd_zmm", "tdpbusd"]}[isa]
    peaks = [peak for peak in peaks if peak[0] in wanted] or peaks
    intensities = [0.5 * 1.15**i for i in range(60)]
    for name, peak in peaks:
        axes.plot(intensities, [min(peak, read * i) for i in intensities], color="black", linewidth=1)
        axes.annotate(name, (intensities[-1], peak), fontsize=8, ha="right", va="bottom")
    for index, kind in enumerate(FORMATS):
        points = sorted((m, case["nybl"]) for (name, m), case in cases.items() if name == kind)
        axes.plot([16 * m / BLOCK_BITS[kind] for m, _ in points], [rate for _, rate in points], marker="os^vD*"[index], label=kind, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="operations per weight byte (2 M x 8 / bits)", ylabel="GFLOP/s, one thread",
             title=f"Nybl, {isa}, N = K = 4096; roof: streaming read {read:g} GB/s and dot peaks")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, which="both")
    figure.tight_layout()
    figure.savefig(path)


def plot_bars(cases, peers, path, plt):
    ms = sorted({m for _, m in cases})
    figure, rows = plt.subplots(len(ms), 1, figsize=(7.5, 2 * len(ms)))
    for axes, m in zip(rows, ms):
        entries = [(kind, cases[kind, m]["nybl"], cases[kind, m]["ggml"]) for kind in FORMATS if (kind, m) in cases]
        places = range(len(entries))
        axes.bar([p - 0.2 for p in places], [own for _, own, _ in entries], 0.4, label="Nybl", color="#2a6f97")
        axes.bar([p + 0.2 for p in places], [peer or 0 for *_, peer in entries], 0.4, label=PEERS["ggml"], color="#b0b0b0")
        labels = [kind for kind, *_ in entries]
        others = [(library, peers[library, m]) for library in ("onnxruntime", "openvino") if (library, m) in peers]
        for index, (library, rate) in enumerate(others):
            axes.bar(len(entries) + index, rate, 0.4, color="#d08c60")
            labels.append(PEERS[library].split(",")[0])
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylabel(f"M = {m}\nGFLOP/s", fontsize=8)
        axes.grid(alpha=0.3, axis="y")
    rows[0].legend(fontsize=8)
    rows[0].set_title(f"One thread, N = K = 4096, {next(iter(cases.values()))['isa']}")
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--peers")
    parser.add_argument("--roofline")
    parser.add_argument("--bars")
    arguments = parser.parse_args()
    cases, context = read_cases(arguments.bench)
    peers = read_peers(arguments.peers)
    print_table(cases, peers)
    if arguments.roofline or arguments.bars:
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams.update({"svg.hashsalt": "nybl", "svg.fonttype": "none"})
        import matplotlib.pyplot as plt
        if arguments.roofline:
            plot_roofline(cases, context, arguments.roofline, plt)
        if arguments.bars:
            plot_bars(cases, peers, arguments.bars, plt)


if __name__ == "__main__":
    main()
