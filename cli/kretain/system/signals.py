"""A Ctrl-C that ends work in order: what is done by then is kept. A second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether somebody asked us to stop (SIGINT or SIGTERM)."""
    asked = False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # whoever started us wants us deaf to it
            signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
