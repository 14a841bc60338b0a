"""The TOML file of a study, joined with the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.cli.values import parse_toml, read_value, stranger
from dpstats.errors import DPStatsError
from dpstats.privacy.store import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.cli.arguments import Entry
    from dpstats.privacy.ledger import PrivacyLedger

__all__ = ["Book", "Study", "book_of", "join", "read_study"]

_LEDGER = ("dataset", "delta", "eps", "path", "protects")


@dataclass(frozen=True, slots=True)
class Book:
    """Where the budget is kept.

    Attributes
    ----------
    path : Path
    dataset : str or None
        A named data set of the ledger.
    totals : dict
        Those of `eps`, `delta` and `protects` that were given.
    """

    path: Path
    dataset: str | None
    totals: dict[str, Any]

    def open(self, relation: str) -> PrivacyLedger:
        """Open the ledger, or make it where `eps` was given.

        Parameters
        ----------
        relation : str
            What a new one protects unless the file says otherwise.
        """
        from dpstats.privacy.ledger import PrivacyLedger

        totals = dict(self.totals)
        if "eps" in totals:
            totals.setdefault("protects", relation)
        if self.dataset is None:
            return PrivacyLedger(self.path, **totals)
        # the file's own totals are of no concern to a named data set
        whole = PrivacyLedger(self.path, **({} if self.path.exists() else totals))
        return whole.dataset(self.dataset, **totals)


@dataclass(frozen=True, slots=True)
class Study:
    """What a TOML file says.

    Attributes
    ----------
    arguments : dict
        Arguments of the function.
    data : Path or None
        File of the data.
    ledger : dict
        The table of that name.
    passed_over : tuple of str
        Keys that are arguments of the other function of the study, an estimate or its plan.
    """

    arguments: dict[str, Any]
    data: Path | None
    ledger: dict[str, Any]
    passed_over: tuple[str, ...] = ()


def read_study(path: str | None, entry: Entry) -> Study:
    """Read the TOML file; paths in it are relative to its folder.

    One file serves an estimate and its plan.

    Parameters
    ----------
    path : str or None
        None: an empty study.
    entry : Entry
        The function whose arguments are its keys.

    Returns
    -------
    Study

    Raises
    ------
    DPStatsError
        If it is no TOML or has an unknown key.
    """
    if path is None:
        return Study({}, None, {})
    file = Path(path)
    try:
        found = parse_toml(file.read_text(encoding="utf-8"))
    except DPStatsError:
        raise
    except UnicodeDecodeError:
        raise DPStatsError(f"`config` must be UTF-8 text; {file.name} is not") from None
    except ValueError as error:
        raise DPStatsError(f"`config` must be TOML; {file.name}: {error}") from None
    others = {name: found.pop(name) for name in entry.passed_over if name in found}
    if entry.twin is not None and entry.open_ended is None:
        # options of the method, as far as the plan has them
        options = _table(others.pop("method_options", {}), "[method_options]", None)
        others |= {name: x for name, x in options.items() if name not in entry.parameters}
        found = {name: x for name, x in options.items() if name in entry.parameters} | found
    data, ledger = None, {}
    if entry.frame is not None:
        data = found.pop("data", None)
        ledger = _table(found.pop("ledger", {}), "[ledger]", _LEDGER)
    if data is not None:
        if not isinstance(data, str):
            raise DPStatsError(f"`data` must be the name of a file; got {type(data).__name__}")
        data = file.parent / data
    if ledger.get("path", MEMORY) != MEMORY:
        ledger["path"] = str(file.parent / str(ledger["path"]))
    more = {}
    if entry.open_ended is not None:
        more = _table(found.pop(entry.open_ended, {}), f"[{entry.open_ended}]", None)
        more |= {name: found.pop(name) for name in entry.planned_options if name in found}
    _check_names(found, entry, f"`config` must have arguments of the call as keys, in {file.name}")
    for name, shape in entry.shapes.items():
        if name in found and shape in ("named pair", "named list"):
            _check_lists(name, found[name], 2 if shape == "named pair" else None)
    return Study(found | more, data, ledger, tuple(others))


def join(study: Study, given: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """Return the arguments of the call: what the command line gives wins over the file.

    Parameters
    ----------
    study : Study
    given : dict
        What was parsed.
    entry : Entry

    Returns
    -------
    dict

    Raises
    ------
    DPStatsError
        If an argument is unknown, given twice, or missing.
    """
    arguments = dict(study.arguments)
    named = {name: value for name, value in given.items() if name in entry.parameters}
    options = _options(given.get("option", ()), entry)
    for name in options.keys() & named.keys():
        raise DPStatsError(f"`{name}` must be given once: {entry.flag(name)} or --option")
    for name, value in named.items():
        shape = entry.shapes.get(name)
        if shape == "named pair":
            value = {key: [read_value(low), read_value(high)] for key, low, high in value}
        elif shape == "named list":
            value = {words[0]: [read_value(word) for word in words[1:]] for words in value}
        elif shape == "list" and len(value) == 1:
            value = value[0]
        if shape in ("named pair", "named list") and isinstance(arguments.get(name), dict):
            value = arguments[name] | value
        arguments[name] = value
    arguments |= options
    entry.check(arguments)
    return arguments


def book_of(study: Study, given: Mapping[str, Any]) -> Book | None:
    """Return where the budget is kept; None where no ledger was named.

    Raises
    ------
    DPStatsError
        If a ledger has no path.
    """
    table = dict(study.ledger)
    for key in ("path", "eps", "delta", "dataset"):
        if f"ledger_{key}" in given:
            table[key] = given[f"ledger_{key}"]
    if not table:
        return None
    path = table.pop("path", None)
    if path is None or str(path) == MEMORY:
        raise DPStatsError(
            "`ledger` must have the path of a file: path in [ledger] of the TOML file, or --ledger"
        )
    return Book(Path(path), table.pop("dataset", None), table)


def _options(texts: Sequence[str], entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise DPStatsError(f"`option` must be NAME=VALUE; got {text!r}")
        if name in found:
            raise DPStatsError(f"`{name}` must be given once; --option has it twice")
        found[name] = read_value(value.strip())
    if entry.open_ended is None:
        _check_names(found, entry, "`option` must name an argument of the call")
    else:
        _check_seed(found)
    return found


def _check_names(found: Mapping[str, Any], entry: Entry, rule: str) -> None:
    _check_seed(found)
    known = list(entry.parameters)
    known += entry.passed_over - {entry.open_ended}
    if entry.frame is not None:
        known += ["data", "ledger"]
    if entry.open_ended is not None:
        known.append(entry.open_ended)
    for name in found:
        if name not in entry.parameters:
            raise DPStatsError(stranger(rule, name, known))


def _check_seed(found: Mapping[str, Any]) -> None:
    if "rng" in found:
        raise DPStatsError("`rng` must be given as --seed: it makes the result not private")


def _check_lists(argument: str, value: Any, length: int | None) -> None:
    """Refuse a table with an entry that is no list: it may be meant for the level above."""
    for name, entry in _table(value, f"[{argument}]", None).items():
        if not isinstance(entry, list) or len(entry) != (length or len(entry)):
            form = "[lo, hi]" if length else "a list"
            raise DPStatsError(
                f"`{argument}` must have {form} for each name; {name!r} has something else (keys "
                f"below the line [{argument}] belong to it)"
            )


def _table(value: Any, what: str, known: Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DPStatsError(f"`{what}` must be a table; got {type(value).__name__}")
    for name in value:
        if known is not None and name not in known:
            raise DPStatsError(stranger(f"`config` must have known keys in {what}", name, known))
    return dict(value)
