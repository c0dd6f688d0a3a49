#!/usr/bin/env python3
"""Plots what nybl-bench --quality --quality-csv wrote: error against bits per weight. plot_quality.py FIGURES.csv OUT.svg|OUT.png"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)


def main():
    source, target = sys.argv[1:]
    with open(source, newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["bits"]))
    # Some formats need rows of a multiple of 256: other matrices than the rest saw, so a mark of their own.
    whole = max(int(row["weights"]) for row in rows)
    matplotlib.rcParams["svg.hashsalt"] = "nybl"  # the same figures give the same file
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axis, column, title in zip(axes, ("rmse", "weighted_rmse"), ("without importance", "with importance")):
        for name, label, colour in (("ggml_" + column, "ggml", "tab:gray"), (column, "Nybl", "tab:blue")):
            points = [row for row in rows if row[name] and float(row[name]) > 0]
            for row in points:
                full = int(row["weights"]) == whole
                axis.plot(float(row["bits"]), float(row[name]), "o" if full else "D", color=colour, markersize=5,
                          fillstyle="full" if full else "none")
                if label == "Nybl":
                    axis.annotate(row["format"], (float(row["bits"]), float(row[name])), textcoords="offset points",
                                  xytext=(6, -8), fontsize=8)
            axis.plot([], [], "o", color=colour, label=label)
        axis.plot([], [], "D", color="black", fillstyle="none", label="only rows of a multiple of 256")
        axis.set(title=title, xlabel="bits per weight", yscale="log")
        axis.grid(True, which="both", alpha=0.25)
    axes[0].set_ylabel("RMSE")
    axes[1].legend(fontsize=8)
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


main()
