"""Tables of the documentation from the CSVs of the studies, as Markdown.

python benchmarks/tables.py accuracy | coverage | sets | baseline | real
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from cells import rows_of
from processes import draw

RESULTS = Path("benchmarks/results")
# smallest entries of the published figures (code as shipped, not private) and of a private sketch
SMALLEST = {
    ("well_specified", "1000", "0.25"): 0.141,
    ("well_specified", "1000", "1.0"): 0.074,
    ("well_specified", "1000", "3.0"): 0.041,
    ("well_specified", "2500", "1.0"): 0.041,
    ("well_specified", "5000", "0.25"): 0.064,
    ("well_specified", "5000", "1.0"): 0.025,
    ("well_specified", "5000", "3.0"): 0.014,
    ("well_specified", "10000", "0.25"): 0.044,
    ("well_specified", "10000", "1.0"): 0.017,
    ("well_specified", "10000", "3.0"): 0.0091,
    ("well_specified", "25000", "0.25"): 0.022,
    ("well_specified", "25000", "1.0"): 0.0088,
    ("well_specified", "25000", "3.0"): 0.0050,
    ("low_overlap", "3000", "1.0"): 0.060,
    ("low_overlap", "10000", "1.0"): 0.030,
}


def number(text: str) -> str:
    """Show a small number without a leading zero."""
    value = float(text)
    shown = f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1g}"
    return shown.replace("0.", ".", 1) if abs(value) < 1.0 else shown


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def accuracy() -> list[str]:
    found = {(r["process"], r["n"], r["eps"], r["method"]): r for r in rows_of(RESULTS / NAMES[0])}
    lines = [
        line(["process", "n", "eps", "default (se)", "bias", "one block", "smallest before"]),
        "|---|---|---|---|---|---|---|",
    ]
    for key, before in SMALLEST.items():
        own, block = found.get((*key, "blocking")), found.get((*key, "diff_means"))
        if own is None or block is None:
            continue
        figures = [f"{number(own['rmse'])} ({number(own['rmse_se'])})", number(own["bias"])]
        lines.append(line([*key, *figures, number(block["rmse"]), number(str(before))]))
    return lines


def coverage() -> list[str]:
    rows = rows_of(RESULTS / NAMES[1])
    found = {(r["method"], r["process"], r["n"], r["eps"]): r for r in rows}
    columns = list(itertools.product(("1000", "10000"), ("0.5", "3.0")))
    lines = [
        line(["method", "process", *(f"{n}, {eps}" for n, eps in columns)]),
        "|---|---|---|---|---|---|",
    ]
    for method, process in dict.fromkeys((r["method"], r["process"]) for r in rows):
        shown = []
        for n, eps in columns:
            row = found.get((method, process, n, eps))
            if row is None:
                shown.append("")
                continue
            mark = "" if float(row["coverage"]) >= 0.93 else "**"
            covered = f"{mark}{100 * float(row['coverage']):.1f}{mark}"
            shown.append(f"{covered} / {float(row['width']):.2f} ({number(row['rmse'])})")
        lines.append(line([method, process, *shown]))
    return lines


def sets() -> list[str]:
    """Every method at eps = 1."""
    rows = rows_of(RESULTS / NAMES[2])
    methods = list(dict.fromkeys(r["method"] for r in rows))
    found = {(r["process"], r["n"], r["eps"], r["method"]): r for r in rows}
    lines = [line(["process", "n", "eps", *methods]), "|---" * (3 + len(methods)) + "|"]
    for cell in dict.fromkeys((r["process"], r["n"], r["eps"]) for r in rows if r["eps"] == "1.0"):
        own = [found.get((*cell, method)) for method in methods]
        lines.append(line([*cell, *(number(row["rmse"]) if row else "" for row in own)]))
    return lines


def baseline() -> list[str]:
    """The default over one block, by process and n eps."""
    rows = rows_of(RESULTS / "accuracy_baseline.csv") + [
        row for row in rows_of(RESULTS / NAMES[2]) if row["method"] in ("blocking", "diff_means")
    ]
    found = {(r["process"], r["n"], r["eps"], r["method"]): r for r in rows}
    sizes = [("1000", e) for e in ("1.0", "3.0")] + [("2500", e) for e in ("0.5", "1.0", "3.0")]
    sizes += [("10000", e) for e in ("0.25", "0.5", "1.0", "3.0")]
    lines = [
        line(["process", "bias of one block / C", *(f"{n}, {eps}" for n, eps in sizes)]),
        "|---" * (2 + len(sizes)) + "|",
    ]
    for process in dict.fromkeys(r["process"] for r in rows):
        shown = []
        for size in sizes:
            own, block = (found.get((process, *size, m)) for m in ("blocking", "diff_means"))
            both = own is not None and block is not None
            shown.append(f"{float(own['rmse']) / float(block['rmse']):.2f}" if both else "")
        low, high = draw(process, 10, [1]).bounds["y"]
        bias = abs(float(found[process, "10000", "3.0", "diff_means"]["bias"]))
        lines.append(line([process, number(f"{2.0 * bias / (high - low):.3f}"), *shown]))
    return lines


def real() -> list[str]:
    rows = rows_of(RESULTS / "accuracy_real.csv")
    methods = list(dict.fromkeys(r["method"] for r in rows))
    found = {(r["process"], r["eps"], r["method"]): r for r in rows}
    head = ["file", "n", "ordinary: weighting, means", "eps", "n eps", *methods]
    lines = [line(head), "|---" * len(head) + "|"]
    for process, n, eps in dict.fromkeys((r["process"], r["n"], r["eps"]) for r in rows):
        first = found[process, eps, methods[0]]
        ordinary = f"{number(first['ordinary'])}, {number(first['means'])}"
        figures = [
            f"{number(found[process, eps, m]['rmse'])} ({number(found[process, eps, m]['bias'])})"
            for m in methods
        ]
        lines.append(line([process, n, ordinary, eps, f"{int(n) * float(eps):,.0f}", *figures]))
    return lines


NAMES = ("accuracy_ate.csv", "coverage_ate.csv", "accuracy_sets.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    makers = {
        "accuracy": accuracy,
        "coverage": coverage,
        "sets": sets,
        "baseline": baseline,
        "real": real,
    }
    parser.add_argument("table", choices=makers)
    print("\n".join(makers[parser.parse_args().table]()))


if __name__ == "__main__":
    main()
