"""The commands: read, check what would be written, call one function, write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.cli.arguments import Entry, Parser, options_of
from dpstats.cli.files import check_outputs, read_data, read_labels
from dpstats.cli.study import book_of, join, read_study
from dpstats.cli.values import read_value, stranger
from dpstats.errors import DPStatsError
from dpstats.report._files import write_text
from dpstats.storage import check_new

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpstats.privacy.ledger import PrivacyLedger
    from dpstats.report.plan_table import PlanTable
    from dpstats.results import PrivateResults

__all__ = ["COMMANDS"]

_OUTPUTS = {
    "report": "report to write, .html, .tex or .md",
    "save": "JSON file to write, for dp.load and compare",
    "latex": "LaTeX table to write",
}
_EPILOG = (
    "Keys of the TOML file are the arguments above with underscores, besides data (a file) and "
    "[ledger] (path, eps, delta, dataset); paths in it are relative to its folder."
)


def _ate(words: Sequence[str]) -> None:
    from dpstats.ate.model import dp_ate

    entry = Entry(
        dp_ate,
        frame="data",
        positional="formula",
        shapes={"bounds": "named pair", "levels": "named list"},
    )
    _estimate("ate", "A treatment effect with differential privacy.", entry, "row", words)


def _synth(words: Sequence[str]) -> None:
    from dpstats.synth.model import dp_synth

    entry = Entry(dp_synth, frame="panel", shapes={"bounds": "pair", "treated": "list"})
    _estimate("synth", "A synthetic control with confidential donors.", entry, "unit", words)


def _estimate(name: str, text: str, entry: Entry, relation: str, words: Sequence[str]) -> None:
    """Estimate from a file."""
    parser = Parser(prog=f"python -m dpstats {name}", description=text, epilog=_EPILOG)
    _option(parser, "--data", "CSV, TSV, Parquet or Stata file", "FILE")
    _option(parser, "--config", "TOML file of the study; options given here win", "FILE")
    for output, purpose in _OUTPUTS.items():
        _option(parser, f"--{output}", purpose, "FILE")
    parser.add_argument(
        "--force",
        action="store_true",
        help="let --save replace a file that exists: the result in it is lost",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=argparse.SUPPRESS,
        help="draw the noise from a seed, for simulations: the result is then not private",
    )
    options_of(entry, parser)
    ledger = parser.add_argument_group("ledger")
    _option(ledger, "--ledger", "file of the ledger that is charged", "FILE", "ledger_path")
    _option(ledger, "--ledger-eps", "total eps of a new ledger", "EPS", "ledger_eps", read_value)
    _option(
        ledger, "--ledger-delta", "total delta of a new one", "DELTA", "ledger_delta", read_value
    )
    _option(ledger, "--ledger-dataset", "data set of the ledger", "NAME", "ledger_dataset")
    given = parser.read(words)
    config = given.get("config")
    study = read_study(config, entry)
    arguments = join(study, given, entry)
    book = book_of(study, given)
    path = Path(given["data"]) if "data" in given else study.data
    if path is None:
        raise DPStatsError("`data` must be given: --data, or a key of the TOML file")
    outputs = {key: given[key] for key in _OUTPUTS if key in given}
    inputs = {
        "data": path,
        "TOML file": None if config is None else Path(config),
        "ledger": None if book is None else book.path,
    }
    check_outputs(outputs, inputs)
    if "save" in outputs and not given["force"]:
        check_new(outputs["save"], "save", "choose another name or pass --force")
    frame = read_data(path)
    if relation == "unit":
        frame = read_labels(frame, arguments)
    if "seed" in given:
        print(f"Seed {given['seed']}: the noise can be drawn again, so the result is NOT PRIVATE.")
        arguments["rng"] = given["seed"]
    charged = None if book is None else book.open(relation)
    result: PrivateResults = entry.function(
        **{str(entry.frame): frame}, ledger=charged, **arguments
    )
    # the budget is spent: whichever of the two fails, what was bought comes out of the other
    try:
        print(result.summary())
    finally:
        _write(result, outputs, overwrite=given["force"])
    for name, path in outputs.items():
        print(f"{name}: {path}")
    if charged is not None:
        print(_account(charged))


def _write(result: PrivateResults, outputs: dict[str, str], *, overwrite: bool) -> None:
    if "save" in outputs:
        result.save(outputs["save"], overwrite=overwrite)
    if "latex" in outputs:
        write_text(outputs["latex"], f"{result.summary().as_latex()}\n")
    if "report" in outputs:
        result.report(outputs["report"])


def _account(ledger: PrivacyLedger) -> str:
    (eps, delta), (eps_left, delta_left) = ledger.spent, ledger.remaining
    which = f" (data set {ledger.name!r})" if ledger.name else ""
    return (
        f"ledger: {ledger.path}{which}: eps {eps:g} of {ledger.epsilon:g} spent, {eps_left:g} "
        f"left; delta {delta:.3g} of {ledger.delta:.3g} spent, {delta_left:.3g} left"
    )


def _plan(words: Sequence[str]) -> None:
    """Plan without data."""
    what = words[0] if words else ""
    if what in ("-h", "--help"):
        print("usage: python -m dpstats plan ate|synth ...")
        return
    if what == "ate":
        from dpstats.ate.plan import plan_ate

        entry = Entry(
            plan_ate,
            positional="formula",
            shapes={
                "y_bounds": "pair",
                "means": "pair",
                "bounds": "named pair",
                "levels": "named list",
            },
        )
    elif what == "synth":
        from dpstats.synth.plan import plan_synth

        entry = Entry(plan_synth, shapes={"bounds": "pair"})
    else:
        raise DPStatsError(f"`plan` must be followed by ate or synth; got {what!r}")
    parser = Parser(
        prog=f"python -m dpstats plan {what}", description="What to expect, before touching data."
    )
    _option(parser, "--config", "TOML file with the arguments; options given here win", "FILE")
    _option(parser, "--csv", "CSV file to write", "FILE")
    options_of(entry, parser)
    given = parser.read(words[1:])
    config = given.get("config")
    arguments = join(read_study(config, entry), given, entry)
    outputs = {"csv": given["csv"]} if "csv" in given else {}
    check_outputs(outputs, {"TOML file": None if config is None else Path(config)})
    table: PlanTable = entry.function(**arguments)
    print(table.as_text())
    if outputs:
        table.to_csv(outputs["csv"])
        print(f"csv: {outputs['csv']}")


def _compare(words: Sequence[str]) -> None:
    """Show saved results side by side."""
    from dpstats.loading import load
    from dpstats.report.compare import compare

    parser = Parser(prog="python -m dpstats compare", description="Saved results side by side.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="files written by --save")
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="headings, one a file")
    parser.add_argument(
        "--format",
        choices=("text", "html", "latex", "markdown"),
        default="text",
        help="of the table",
    )
    for name, purpose in (
        ("stars", "mark small p-values"),
        ("ci", "intervals in place of standard errors"),
        ("mixed", "allow results that are not private, marked as such"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=purpose)
    _option(parser, "--output", "file to write; by default it is printed", "FILE")
    given = parser.read(words)
    files = given["files"]
    if not files:
        raise DPStatsError("`compare` must be given files written by --save; got none")
    labels = given["labels"] or [f"({place})" for place in range(1, len(files) + 1)]
    if len(labels) != len(files) or len(set(labels)) != len(labels):
        raise DPStatsError(
            f"`labels` must be {len(files)} different headings, one a file; got {labels!r}"
        )
    outputs = {"output": given["output"]} if "output" in given else {}
    check_outputs(outputs, {file: Path(file) for file in files})
    results = {label: load(file) for label, file in zip(labels, files, strict=True)}
    table = compare(results, stars=given["stars"], ci=given["ci"], mixed=given["mixed"])
    text = str(getattr(table, f"as_{given['format']}")())
    if outputs:
        write_text(given["output"], f"{text}\n")
        print(f"output: {given['output']}")
    else:
        print(text)


def _demo(words: Sequence[str]) -> None:
    """Run a worked example."""
    from importlib import import_module

    parser = Parser(prog="python -m dpstats demo", description="Worked examples on public data.")
    parser.add_argument("example", nargs="?", default="ate", help="ate (the default) or synth")
    parser.add_argument("--eps", type=float, default=1.0, help="privacy budget of each estimate")
    parser.add_argument(
        "--output", default="dpstats-report.html", help="HTML page to write (default: %(default)s)"
    )
    given = parser.read(words)
    if given["example"] not in ("ate", "synth"):
        raise DPStatsError(stranger("`demo` must be known", given["example"], ("ate", "synth")))
    import_module(f"dpstats.demo.{given['example']}").run(given["eps"], given["output"])


def _option(
    parser: Any,
    flag: str,
    purpose: str,
    metavar: str,
    dest: str | None = None,
    kind: Callable[[str], Any] = str,
) -> None:
    """Add an option that leaves no trace where it is not given."""
    parser.add_argument(
        flag,
        dest=dest or flag.strip("-"),
        type=kind,
        default=argparse.SUPPRESS,
        metavar=metavar,
        help=purpose,
    )


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "ate": _ate,
    "synth": _synth,
    "plan": _plan,
    "compare": _compare,
    "demo": _demo,
}
