"""Options of a command, made from the signature and docstring of the function behind it."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from dpstats.cli.values import read_value, stranger
from dpstats.errors import DPStatsError

__all__ = ["Entry", "Parser", "options_of"]

# how an argument is written: two numbers, a list, a name and two numbers, a name and a list
Shape = Literal["pair", "list", "named pair", "named list"]

# opened from a table, and replaced by --seed
_SEED = ("rng",)
_APART = ("ledger", *_SEED)
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of the package as the command line sees it.

    Attributes
    ----------
    function : callable
    frame : str or None
        Its argument that takes the data.
    positional : str or None
        Argument that may be written without its name.
    shapes : dict of str to str
        Arguments of more than one word.
    twin : callable or None
        The function that a TOML file may be for as well: its arguments are passed over there.
    options : frozenset of str
        Options of methods, which the catch-all takes.
    """

    function: Callable[..., Any]
    frame: str | None = None
    positional: str | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    twin: Callable[..., Any] | None = None
    options: frozenset[str] = frozenset()

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Arguments that can be given as a value, by name."""
        return {
            name: parameter
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD and name not in (self.frame, *_APART)
        }

    @property
    def open_ended(self) -> str | None:
        """Name of the catch-all for options of a method, where there is one."""
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                return name
        return None

    @property
    def passed_over(self) -> frozenset[str]:
        """Keys of a TOML file that are the other function's."""
        if self.twin is None:
            return frozenset()
        others = {*inspect.signature(self.twin).parameters, "data"} - {*_SEED}
        own = {*self.parameters, *self.options, *(["data", "ledger"] if self.frame else [])}
        return frozenset(others - own)

    @property
    def planned_options(self) -> frozenset[str]:
        """Options of methods that are arguments of the other function, so stand at the top too."""
        found = self.options - {*self.parameters}
        return found & {*(inspect.signature(self.twin).parameters if self.twin else ())}

    @property
    def required(self) -> tuple[str, ...]:
        """Arguments without a default."""
        return tuple(name for name, p in self.parameters.items() if p.default is _EMPTY)

    def flag(self, name: str) -> str:
        """Return an argument as an option."""
        return f"--{name.replace('_', '-')}"

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse a call that lacks an argument.

        Raises
        ------
        DPStatsError
            Naming the first.
        """
        for name in self.required:
            if name not in given:
                how = self.flag(name)
                if name == self.positional:
                    how = "the first word after the command"
                raise DPStatsError(f"`{name}` must be given: {how}, or a key of the TOML file")


class Parser(argparse.ArgumentParser):
    """A parser that raises in place of leaving the process, and takes ``-1e5`` for a number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|-inf")

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with a command line."""
        raise DPStatsError(message)

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Parse a command line; only what was given is in the result.

        Raises
        ------
        DPStatsError
            If a word is unknown or missing.
        """
        # intermixed, so that the formula may come after options
        found, rest = self.parse_known_intermixed_args(words)
        if rest:
            word = rest[0]
            if not word.startswith("-"):
                self.error(f"one word too many: {word!r} (quote what holds blanks)")
            known = [name for name in self._option_string_actions if name.startswith("--")]
            self.error(stranger("`options` must be known", word.partition("=")[0], known))
        return vars(found)


def options_of(entry: Entry, parser: Parser) -> None:
    """Add one option for each argument of the function.

    Parameters
    ----------
    entry : Entry
    parser : Parser
        Changed.
    """
    texts = _described(entry.function)
    group = parser.add_argument_group("arguments of the estimate")
    for name, parameter in entry.parameters.items():
        shown = texts.get(name, "").replace("%", "%%")
        if name == entry.positional:
            parser.add_argument(name, nargs="?", default=argparse.SUPPRESS, help=shown)
            continue
        group.add_argument(
            entry.flag(name),
            dest=name,
            default=argparse.SUPPRESS,
            help=shown,
            **_form(str(parameter.annotation), entry.shapes.get(name)),
        )
    group.add_argument(
        "--option",
        dest="option",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="any argument, or an option of the method; VALUE as in TOML, else text",
    )


def _form(annotation: str, shape: Shape | None) -> dict[str, Any]:
    if shape == "pair":
        return {"nargs": 2, "type": read_value, "metavar": ("LO", "HI")}
    if shape == "list":
        return {"nargs": "+", "type": read_value, "metavar": "LABEL"}
    if shape == "named pair":
        return {"nargs": 3, "action": "append", "metavar": ("NAME", "LO", "HI")}
    if shape == "named list":
        return {"nargs": "+", "action": "append", "metavar": ("NAME", "LEVEL")}
    if annotation.startswith("bool"):
        return {"nargs": "?", "const": True, "type": read_value, "metavar": "true|false"}
    if annotation in ("str", "str | None"):
        return {"type": str, "metavar": "TEXT"}
    return {"type": read_value, "metavar": "VALUE"}


def _described(function: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of the arguments in a numpydoc docstring."""
    text = inspect.getdoc(function) or ""
    _, _, rest = text.partition("Parameters\n----------\n")
    section = re.split(r"\n[A-Z][\w ]*\n-{3,}\n", rest)[0]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line[0].isspace():
            names = [name.strip(" *") for name in line.partition(" : ")[0].split(",")]
        for name in names:
            if line[:1].isspace():
                found[name] = f"{found.get(name, '')} {line.strip()}".strip().replace("``", "")
    return found
