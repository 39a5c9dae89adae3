"""What tasks do once in each Python process that runs them."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Leave all that is loaded by now out of garbage collections, once.

    PySpark collects garbage after every task of a process, and looks at each object of each imported module: 40 ms,
    which is longer than many tasks take.
    """
    global _settled  # noqa: PLW0603  (a process's own state)
    if not _settled:
        _settled = True
        gc.freeze()
