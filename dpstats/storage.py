"""Results as JSON and back: released values and strings only."""

from __future__ import annotations

import json
import math
import os
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import DPStatsError, ResultExistsError
from dpstats.report._files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

__all__ = [
    "FORMAT",
    "NOT_SAVED",
    "check_new",
    "decode",
    "encode",
    "plain",
    "read_json",
    "write_json",
]

FORMAT = 1
NOT_SAVED = "`path` must be a file written by save() of this version of dpstats"


def encode(value: Any) -> Any:
    """Return a JSON-ready form from which `decode` rebuilds `value` exactly."""
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, "fields": content}
    if isinstance(value, np.ndarray):
        return {
            "type": "array",
            "shape": list(value.shape),
            "dtype": value.dtype.kind,
            "values": [encode(item) for item in value.ravel().tolist()],
        }
    if isinstance(value, tuple | list):
        return {"type": "tuple", "items": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"type": "dict", "items": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "float", "value": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # a level of a categorical may be anything: a date, say
    return str(value)


def decode(value: Any, types: Mapping[str, type[Any]]) -> Any:
    """Rebuild what `encode` wrote, from the dataclasses in `types` only."""
    if not isinstance(value, dict):
        return value
    kind = value["type"]
    if kind == "array":
        items = [decode(item, types) for item in value["values"]]
        dtype = {"f": float, "i": np.int64, "b": bool}[value["dtype"]]
        return np.array(items, dtype=dtype).reshape(value["shape"])
    if kind == "tuple":
        return tuple(decode(item, types) for item in value["items"])
    if kind == "dict":
        return {decode(k, types): decode(v, types) for k, v in value["items"]}
    if kind == "float":
        return float(value["value"])
    return types[kind](**{k: decode(v, types) for k, v in value["fields"].items()})


def plain(value: Any) -> Any:
    """Return a readable JSON form: numbers, strings, lists and dicts; inf and nan as strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def check_new(path: str | PathLike[str], argument: str, advice: str) -> None:
    """Refuse a file that exists.

    Parameters
    ----------
    path : str or path
    argument : str
        Named in the message.
    advice : str
        How to write over it all the same.

    Raises
    ------
    ResultExistsError
    """
    # a device or a pipe keeps nothing that could be lost
    if os.path.isfile(path):
        raise ResultExistsError(
            f"`{argument}` must be a new file: there is one at {os.fspath(path)}, and a private "
            f"result that is overwritten cannot be computed again without paying again; {advice}"
        )


def write_json(path: str | PathLike[str], content: Any, *, overwrite: bool = False) -> None:
    """Write `content`, strictly valid JSON, in one go.

    Raises
    ------
    ResultExistsError
        If the file exists and `overwrite` is false.
    """
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    advice = "choose another name or pass overwrite=True"
    if not overwrite:
        check_new(path, "path", advice)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    try:
        write_text(path, text, new=not overwrite)
    except FileExistsError:
        # made by another process since
        check_new(path, "path", advice)
        raise


def read_json(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a saved result.

    Raises
    ------
    DPStatsError
        If the file is not one.
    """
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError:
            content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DPStatsError(NOT_SAVED)
    return content
