"""Files written in one step: a reader sees the old file or the whole new one."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

__all__ = ["write_bytes", "write_text"]


def write_text(path: str | os.PathLike[str], text: str, *, new: bool = False) -> Path:
    """Write text as UTF-8; as `write_bytes`.

    Returns
    -------
    pathlib.Path
        Where it was written.
    """
    return write_bytes(path, text.encode("utf-8"), new=new)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, new: bool = False) -> Path:
    """Write bytes; a link is followed. A file that is replaced keeps who may read it.

    Parameters
    ----------
    path : str or path
    content : bytes
    new : bool
        Whether there must be no such file, not even one that another process makes meanwhile.

    Returns
    -------
    pathlib.Path
        Where they were written.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    FileExistsError
        If there is one, and it must be new.
    PermissionError
        If there is one that may not be written.
    """
    path = Path(path)
    target = path.resolve()
    if not target.parent.is_dir():
        # else the error would name the draft
        rule = "`path` must lie in a folder that exists; there is none"
        raise FileNotFoundError(errno.ENOENT, rule, str(path.parent))
    # of a name that is no longer than most, since the target's may be as long as names can be
    draft = target.with_name(f".dpstats.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with draft.open("xb") as file:
            if target.is_file():
                if not os.access(target, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                shutil.copymode(target, draft)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if new:
            target.open("xb").close()
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return path
