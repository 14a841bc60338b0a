"""``python -m dpstats``: the command line (`dpstats.cli`)."""

from __future__ import annotations

import sys

from dpstats.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        # a name that the terminal cannot show must not cost a result that was paid for
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main())
