#!/usr/bin/env python3
"""Stock llama.cpp against the same with the plugin: makes models, measures speed in interleaved rounds, compares logits, writes the table.

  engine.py models  FOLDER MODEL.gguf       requantized and random-weight files, by llama.cpp's own quantizer
  engine.py speed   FOLDER [options]        appends rounds to docs/engine.csv
  engine.py logits  FOLDER TEXT [options]   appends perplexity and divergence to docs/engine-logits.csv
  engine.py table                           rewrites the tables of docs/engine.md from the two files
"""
import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SPEED, LOGITS, PAGE = (ROOT / "docs" / name for name in ("engine.csv", "engine-logits.csv", "engine.md"))
FORMATS = ["Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q5_K", "IQ4_NL"]
# The instruction sets of both sides: llama.cpp by its build, Nybl by its environment.
BUILDS = {"avx2": {"NYBL_MAX_ISA": "avx2"}, "native": {}}
SPEED_FIELDS = ["model", "format", "build", "threads", "side", "what", "tokens", "round", "tokens_per_s"]
LOGITS_FIELDS = ["format", "base", "other", "rows", "base_perplexity", "perplexity", "kld", "kld_max", "same_top", "share"]


def environment(folder, build, plugin):
    env = dict(os.environ, LD_LIBRARY_PATH=f"{folder}/{build}/bin", **BUILDS[build])
    env.pop("NYBL_GGML_PLUGIN", None)
    if plugin:
        env["NYBL_GGML_PLUGIN"] = str(plugin)
    return env


def run(options, build, plugin, *arguments):
    command = [str(options.binaries / "nybl-engine"), *map(str, arguments)]
    env = environment(options.folder, build, options.binaries / "libggml-nybl.so" if plugin else None)
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def model_path(options, model, kind):
    return options.folder / "models" / f"{model}-{kind.lower()}.gguf"


def append(path, fields, rows):
    new = not path.exists()
    with open(path, "a", newline="") as out:
        writer = csv.DictWriter(out, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def make_models(options):
    (options.folder / "models").mkdir(exist_ok=True)
    source = model_path(options, "smollm2", "Q4_1")
    if not source.exists():
        source.symlink_to(options.model.resolve())
    random = model_path(options, "random", "F16")
    jobs = [(source, model_path(options, "smollm2", kind), kind) for kind in FORMATS]
    jobs += [(random, model_path(options, "random", kind), kind) for kind in FORMATS]
    for origin, target, kind in jobs:
        if target.exists():
            continue
        if origin == random and not random.exists():
            subprocess.run([sys.executable, ROOT / "tools/engine/random_model.py", random], check=True)
        print(f"  {target.name}", file=sys.stderr, flush=True)
        part = target.with_suffix(".part")
        run(options, "native", False, "quantize", origin, part, kind)
        part.rename(target)


def measure_speed(options):
    for number in range(options.rounds):
        for model in options.models:
            for kind in options.formats:
                for build in options.builds:
                    rows = []
                    for side in ("stock", "nybl"):
                        text = run(options, build, side == "nybl", "bench", model_path(options, model, kind), options.threads,
                                   options.prompts, options.generate, 1)
                        for line in text.splitlines():
                            what, tokens, rate = line.split()
                            rows.append(dict(zip(SPEED_FIELDS, [model, kind, build, options.threads, side, what, tokens,
                                                                options.first_round + number, rate])))
                    append(SPEED, SPEED_FIELDS, rows)
                    print(" ".join(f"{row['side']}:{row['what']}{row['tokens']}={row['tokens_per_s']}" for row in rows), flush=True)


def measure_logits(options):
    """How far from the exact products: the base is the same weights in f32, which no 8-bit activations touch. The noise floor is what
    stock's own two builds have. Beside it what the builds differ by among themselves."""
    work = options.folder / "logits"
    work.mkdir(exist_ok=True)

    def logits(name, build, plugin, model):
        out = work / f"{name}.bin"
        text = run(options, build, plugin, "logits", model, options.text, out, options.chunks, options.threads)
        return out, text.split()[1] if text.startswith("share") else ""

    for kind in options.formats:
        model, exact_model = model_path(options, "smollm2", kind), work / "exact.gguf"
        run(options, "native", False, "quantize", model, exact_model, "F32")
        exact, _ = logits("exact", "native", False, exact_model)
        exact_model.unlink()
        stock = {build: logits(f"stock-{build}", build, False, model)[0] for build in BUILDS}
        nybl, share = logits("nybl", "native", True, model)
        pairs = [("f32", exact, f"stock {build}", path, "") for build, path in stock.items()]
        pairs += [("f32", exact, "nybl", nybl, share), ("stock native", stock["native"], "stock avx2", stock["avx2"], ""),
                  ("stock native", stock["native"], "nybl", nybl, share)]
        for base_name, base, other_name, other, counted in pairs:
            values = {}
            for line in run(options, "native", False, "compare", base, other).splitlines():
                key, *rest = line.split()
                values[key] = rest
            row = [kind, base_name, other_name, values["rows"][0], *values["perplexity"], values["kld"][0], values["kld_max"][0],
                   values["same_top"][0], counted]
            append(LOGITS, LOGITS_FIELDS, [dict(zip(LOGITS_FIELDS, row))])
            print(" ".join(row), flush=True)


def median(rows, **wanted):
    values = [float(row["tokens_per_s"]) for row in rows if all(row[key] == value for key, value in wanted.items())]
    return statistics.median(values) if values else None


def speed_table(rows):
    kinds = [("prompt", "256"), ("prompt", "2048"), ("generate", "128")]
    lines = ["| model | format | llama.cpp for | " + " | ".join(f"{what} {n}: stock, plugin | ratio" for what, n in kinds) + " |",
             "|---" * (3 + 2 * len(kinds)) + "|"]
    seen = dict.fromkeys((row["model"], row["build"], row["format"]) for row in rows)
    order = sorted(seen, key=lambda key: (key[0] == "random", key[1] != "avx2", FORMATS.index(key[2])))
    for model, build, kind in order:
        cells = []
        for what, tokens in kinds:
            stock, nybl = (median(rows, model=model, format=kind, build=build, side=side, what=what, tokens=tokens)
                           for side in ("stock", "nybl"))
            cells += [f"{stock:.1f}, {nybl:.1f}", f"{nybl / stock:.2f}"] if stock and nybl else ["", ""]
        lines.append(f"| {model} | {kind} | {build} | " + " | ".join(cells) + " |")
    return lines


def logits_table(rows):
    lines = ["| format | from | to | perplexity | KL divergence | largest | same top token | share of multiplies |", "|---" * 8 + "|"]
    for row in rows:
        share = f"{100 * float(row['share']):.2f} %" if row["share"] else ""
        lines.append(f"| {row['format']} | {row['base']} | {row['other']} | {float(row['base_perplexity']):.3f}, {float(row['perplexity']):.3f} "
                     f"| {float(row['kld']):.5f} | {float(row['kld_max']):.3f} | {100 * float(row['same_top']):.1f} % | {share} |")
    return lines


def write_tables():
    text = PAGE.read_text()
    for name, path, make in (("speed", SPEED, speed_table), ("logits", LOGITS, logits_table)):
        if not path.exists():
            continue
        with open(path, newline="") as rows:
            table = "\n".join(make(list(csv.DictReader(rows))))
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        text = before + begin + "\n" + table + "\n\n" + end + rest.split(end)[1]
    PAGE.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["models", "speed", "logits", "table"])
    parser.add_argument("folder", type=pathlib.Path, nargs="?", help="with llama.cpp and its builds")
    parser.add_argument("input", type=pathlib.Path, nargs="?", help="models: the Q4_1 file; logits: a text")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build/release/examples/ggml-backend")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first-round", type=int, default=0)
    parser.add_argument("--prompts", default="256,2048")
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--models", nargs="+", default=["smollm2", "random"])
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--builds", nargs="+", default=list(BUILDS))
    options = parser.parse_args()
    options.model = options.text = options.input
    {"models": make_models, "speed": measure_speed, "logits": measure_logits,
     "table": lambda _: write_tables()}[options.command](options)


if __name__ == "__main__":
    main()
