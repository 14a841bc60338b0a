"""Files written in one step: a reader sees the old file or the whole new one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_bytes", "write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write text as UTF-8; a link is followed.

    Returns
    -------
    pathlib.Path
        Where it was written.
    """
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write bytes; a link is followed.

    Returns
    -------
    pathlib.Path
        Where they were written.
    """
    path = Path(path)
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return path
