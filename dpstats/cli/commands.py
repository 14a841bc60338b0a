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
from dpstats.report._float import check_float
from dpstats.report._layout import WIDEST
from dpstats.report._numbers import check_decimals
from dpstats.storage import check_new

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpstats.cli.arguments import Shape
    from dpstats.cli.study import Study
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
    "[ledger] (path, eps, delta, dataset); paths in it are relative to its folder. Those of the "
    "plan may stand there too."
)
# arguments of an estimate that name columns and files, which a plan is made without
_NAMES = frozenset(
    ("T0", "data", "ledger", "missing", "outcome", "time", "treat", "treated", "unit", "wide")
)


def _ate(words: Sequence[str]) -> None:
    from dpstats.ate.kernels import KERNELS
    from dpstats.ate.model import dp_ate
    from dpstats.ate.plan import plan_ate

    entry = Entry(
        dp_ate,
        frame="data",
        positional="formula",
        shapes={"bounds": "named pair", "levels": "named list"},
        twin=plan_ate,
        options=frozenset(name for kernel in KERNELS.values() for name in kernel.method_options),
    )
    _estimate("ate", "A treatment effect with differential privacy.", entry, "row", words)


def _synth(words: Sequence[str]) -> None:
    from dpstats.synth.model import dp_synth
    from dpstats.synth.plan import plan_synth

    shapes: dict[str, Shape] = {"bounds": "pair", "treated": "list"}
    entry = Entry(dp_synth, frame="panel", shapes=shapes, twin=plan_synth)
    _estimate("synth", "A synthetic control with confidential donors.", entry, "unit", words)


def _estimate(name: str, text: str, entry: Entry, relation: str, words: Sequence[str]) -> None:
    """Estimate from a file."""
    parser = Parser(prog=f"python -m dpstats {name}", description=text, epilog=_EPILOG)
    _option(parser, "--data", "CSV, TSV, Parquet or Stata file", "FILE")
    _option(parser, "--config", "TOML file of the study; options given here win", "FILE")
    for output, purpose in _OUTPUTS.items():
        _option(parser, f"--{output}", purpose, "FILE")
    _looks(parser)
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
    _check_looks(given)
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
        print(result.summary(decimals=given.get("decimals")))
    finally:
        _write(result, outputs, given)
    for name, path in outputs.items():
        print(f"{name}: {path}")
    if charged is not None:
        print(_account(charged))


def _write(result: PrivateResults, outputs: dict[str, str], given: dict[str, Any]) -> None:
    caption, label, decimals = (given.get(name) for name in ("caption", "label", "decimals"))
    if "save" in outputs:
        result.save(outputs["save"], overwrite=given["force"])
    if "latex" in outputs:
        source = result.summary(decimals=decimals).as_latex(caption, label)
        write_text(outputs["latex"], f"{source}\n")
    if "report" in outputs:
        result.report(outputs["report"], caption=caption, label=label, decimals=decimals)


def _looks(parser: Any) -> None:
    """Add the options of tables."""
    _option(parser, "--caption", "caption of the LaTeX table", "TEXT")
    _option(parser, "--label", "label of the LaTeX table, such as tab:effect", "LABEL")
    _option(
        parser, "--decimals", "digits after the point of estimates, errors and intervals", "DIGITS",
        kind=read_value,
    )  # fmt: skip


def _check_looks(given: dict[str, Any]) -> None:
    """Refuse what a table could not have, before any budget is spent."""
    check_float(given.get("caption"), given.get("label"), None)
    check_decimals(given.get("decimals"))


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
        from dpstats.ate.model import dp_ate
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
            twin=dp_ate,
        )
    elif what == "synth":
        from dpstats.synth.model import dp_synth
        from dpstats.synth.plan import plan_synth

        entry = Entry(plan_synth, shapes={"bounds": "pair"}, twin=dp_synth)
    else:
        raise DPStatsError(f"`plan` must be followed by ate or synth; got {what!r}")
    parser = Parser(
        prog=f"python -m dpstats plan {what}", description="What to expect, before touching data."
    )
    _option(
        parser, "--config", "TOML file of the plan or of the study; options given here win", "FILE"
    )
    _option(parser, "--csv", "CSV file to write", "FILE")
    options_of(entry, parser)
    given = parser.read(words[1:])
    config = given.get("config")
    study = read_study(config, entry)
    arguments, unplanned = _plannable(join(study, given, entry), study)
    outputs = {"csv": given["csv"]} if "csv" in given else {}
    check_outputs(outputs, {"TOML file": None if config is None else Path(config)})
    table: PlanTable = entry.function(**arguments)
    print(table.as_text())
    if unplanned:
        print(f"Not in the plan, of {Path(str(config)).name}: {', '.join(unplanned)}.")
    if outputs:
        table.to_csv(outputs["csv"])
        print(f"csv: {outputs['csv']}")


def _plannable(arguments: dict[str, Any], study: Study) -> tuple[dict[str, Any], list[str]]:
    """Return what a plan can take of a study, and the arguments whose effect it leaves out."""
    left = {name for name in study.passed_over if name not in _NAMES}
    # a plan knows no columns: of propensities only a known probability
    if "propensity" in study.arguments and isinstance(arguments.get("propensity"), str):
        left.add("propensity")
    kept = {name: value for name, value in arguments.items() if name not in left}
    return kept, sorted(left)


def _show(words: Sequence[str]) -> None:
    """Print a saved result again."""
    from dpstats.loading import load

    parser = Parser(prog="python -m dpstats show", description="A saved result again.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="written by --save")
    parser.add_argument(
        "--format", choices=("text", "html", "latex"), default="text", help="of the summary"
    )
    parser.add_argument("--diagnostics", action="store_true", help="show every reading too")
    _looks(parser)
    given = parser.read(words)
    if given["file"] is None:
        raise DPStatsError("`show` must be given a file written by --save; got none")
    _check_looks(given)
    result = load(given["file"])
    summary = result.summary(diagnostics=given["diagnostics"], decimals=given.get("decimals"))
    if given["format"] == "latex":
        print(summary.as_latex(given.get("caption"), given.get("label")))
    else:
        print(getattr(summary, f"as_{given['format']}")())


def _ledger(words: Sequence[str]) -> None:
    """Print what a ledger holds."""
    from dpstats.privacy.ledger import PrivacyLedger
    from dpstats.report.readable import ReadableFrame

    parser = Parser(prog="python -m dpstats ledger", description="Totals, spent, left, history.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="file of the ledger")
    given = parser.read(words)
    if given["file"] is None:
        raise DPStatsError("`ledger` must be given the file of a ledger; got none")
    path = Path(given["file"])
    if not path.is_file():
        raise DPStatsError(f"`ledger` must be a file; there is none at {path}")
    whole = PrivacyLedger(path)
    held = whole.datasets()
    books = [whole if not name else whole.dataset(name) for name in held["data"]]
    totals = {
        "data set": [name or "(the file)" for name in held["data"]],
        "protects": [f"one {name}" for name in held["protects"]],
        "charges": held["charges"],
    }
    for place, budget in enumerate(("eps", "delta")):
        totals[budget] = held[("epsilon", "delta")[place]]
        totals[f"{budget} spent"] = [book.spent[place] for book in books]
        totals[f"{budget} left"] = [book.remaining[place] for book in books]
    print(f"Ledger {whole.path}\n")
    print(ReadableFrame(totals).as_text(WIDEST))
    history = whole.history(everything=True)
    if history.empty:
        print("\nNothing was charged yet.")
        return
    shown = {
        "time (UTC)": history["time"].dt.strftime("%Y-%m-%d %H:%M"),
        "call": history["call"],
        "eps": history["epsilon"],
        "delta": history["delta"],
    }
    if len(books) > 1:
        shown["data set"] = [name or "(the file)" for name in history["data"]]
    print()
    print(ReadableFrame(shown).as_text(WIDEST))


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
        ("ci", "intervals below the standard errors"),
        ("mixed", "allow results that are not private, marked as such"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=purpose)
    _looks(parser)
    _option(parser, "--output", "file to write; by default it is printed", "FILE")
    given = parser.read(words)
    _check_looks(given)
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
    latex, caption = given["format"] == "latex", given.get("caption")
    table = compare(
        results,
        stars=given["stars"],
        ci=given["ci"],
        mixed=given["mixed"],
        decimals=given.get("decimals"),
        # where there are no captions it stands above the table
        title="" if latex else caption or "",
    )
    if latex:
        text = table.as_latex(caption, given.get("label"))
    else:
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
    "show": _show,
    "compare": _compare,
    "ledger": _ledger,
    "demo": _demo,
}
