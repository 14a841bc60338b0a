"""Pictures of the tables of accuracy, from their CSVs.

    python benchmarks/plots.py [--out DIR]

accuracy_ate.png: RMSE against n eps on "well_specified", a line for each n, from
accuracy_ate.csv and peers_ate.csv. accuracy_synth.png: median RMSE against the number of donors,
from accuracy_synth.csv and peers_synth.csv. Solid: calibrated to a proven sensitivity. Dashed: not
private. Colours are Okabe and Ito's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from cells import rows_of
from matplotlib.axes import Axes

BLACK, GREY, ORANGE, SKY = "#000000", "#8a8a8a", "#E69F00", "#56B4E9"
GREEN, BLUE, VERMILION, PURPLE = "#009E73", "#0072B2", "#D55E00", "#CC79A7"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "savefig.dpi": 150,
}
# method, label, colour, marker
Line = tuple[str, str, str, str]
ATE: dict[str, list[Line]] = {
    "dpstats": [
        ("blocking", "blocking (default)", BLACK, "o"),
        ("regression", "regression", BLUE, "s"),
        ("aipw", "aipw", GREEN, "^"),
        ("nipw ato", 'nipw, "ato"', VERMILION, "D"),
        ("diff_means", "diff_means", GREY, "x"),
    ],
    "diffprivlib": [
        ("logistic + blocks", "its logit + blocks", ORANGE, "o"),
        ("logistic + ipw", "its logit + IPW", SKY, "s"),
        ("logistic + nipw", "its logit + normalised IPW", PURPLE, "D"),
    ],
    "dpate": [
        ("dp_prop_blocking", "dp_prop_blocking", ORANGE, "o"),
        ("dp_ipw_sequential", "dp_ipw_sequential", SKY, "s"),
        ("dp_nipw_sequential", "dp_nipw_sequential", PURPLE, "D"),
        ("dp_ipw_split", "dp_ipw_split", VERMILION, "v"),
        ("dp_ate_by_aggregation", "dp_ate_by_aggregation", GREEN, "^"),
    ],
}
TITLES = {
    "dpstats": "dpstats",
    "diffprivlib": "diffprivlib's logit, honest noise",
    "dpate": "dpate, as shipped: not private",
}
SYNTH: list[Line] = [
    ("moments", "moments (default)", BLACK, "o"),
    ("did", "did", BLUE, "s"),
    ("output", "output, objective", ORANGE, "D"),
    ("objective (published)", "DPSC objective, published form", VERMILION, "^"),
    ("last value", "last value carried forward", GREY, "x"),
    ("ridge", "ridge, not private", PURPLE, "v"),
    ("did (not private)", "DiD, not private", SKY, "s"),
]
NOT_PRIVATE = ("ridge", "did (not private)")


def lines(
    ax: Axes, rows: Iterable[dict[str, str]], x: str, shown: Iterable[Line], dashed: Iterable[str]
) -> None:
    """Draw RMSE against a column, a line for each method and each n."""
    rows = list(rows)
    for method, label, colour, marker in shown:
        style = "--" if method in dashed else "-"
        mine = [row for row in rows if row["method"] == method]
        for i, n in enumerate(sorted({row.get("n", "") for row in mine})):
            found = sorted(
                (float(row[x]), float(row["rmse"])) for row in mine if row.get("n", "") == n
            )
            name = label if i == 0 else "_" + label
            ax.plot(*zip(*found, strict=True), style, color=colour, marker=marker, label=name)


def ate(folder: Path) -> None:
    ours = [row | {"package": "dpstats"} for row in rows_of(folder / "accuracy_ate.csv")]
    peers = rows_of(folder / "peers_ate.csv")
    # the longer study of a method where there are two
    known = {row["method"] for row in ours}
    rows = ours + [row for row in peers if row["method"] not in known]
    rows = [
        row | {"n eps": str(float(row["n"]) * float(row["eps"]))}
        for row in rows
        if row["process"] == "well_specified"
    ]
    default = ATE["dpstats"][:1]
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.2), sharex=True, sharey=True)
    for ax, (package, shown) in zip(axes, ATE.items(), strict=True):
        mine = [row for row in rows if row["package"] == package]
        dashed = [row["method"] for row in mine if row.get("private") == "no"]
        if package != "dpstats":
            reference = [(m, "dpstats, blocking", colour, mark) for m, _, colour, mark in default]
            others = [row for row in rows if row["package"] == "dpstats"]
            lines(ax, others, "n eps", reference, ())
        lines(ax, mine, "n eps", shown, dashed)
        ax.set(xscale="log", yscale="log", title=TITLES[package], xlabel="n eps")
        ax.legend(loc="lower left")
    axes[0].set_ylabel("root mean squared error (effect 2)")
    figure.tight_layout()
    figure.savefig(folder / "accuracy_ate.png")


def synth(folder: Path) -> None:
    peers = rows_of(folder / "peers_synth.csv")
    rows = rows_of(folder / "accuracy_synth.csv")
    rows += [row for row in peers if "published" in row["method"]]
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7.0), sharex=True, sharey="row")
    for line, process in zip(axes, ("factor", "smooth"), strict=True):
        for ax, delta in zip(line, ("1e-06", "0.0"), strict=True):
            mine = [row for row in rows if (row["process"], row["delta"]) == (process, delta)]
            lines(ax, mine, "donors", SYNTH, NOT_PRIVATE)
            title = f"{process}, eps = 1, delta = {float(delta):g}"
            ax.set(xscale="log", yscale="log", title=title)
            low, high = ax.get_ylim()
            ax.set_ylim(low, 2.0 * high)
            far = [float(row["rmse"]) for row in mine if row["method"] == "output (published)"]
            if far:
                text = (
                    f"off the scale: DPSC output, published form, {min(far):.2g} to {max(far):.2g}"
                )
                ax.text(0.02, 0.98, text, transform=ax.transAxes, va="top", fontsize=8)
        line[0].set_ylabel("median RMSE of the path")
    for ax in axes[1]:
        ax.set_xlabel("donors")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4)
    figure.tight_layout(rect=(0.0, 0.07, 1.0, 1.0))
    figure.savefig(folder / "accuracy_synth.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    mpl.use("agg")
    with mpl.rc_context(STYLE):
        ate(options.out)
        synth(options.out)


if __name__ == "__main__":
    main()
