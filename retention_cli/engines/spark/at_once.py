"""Run several Spark jobs at once, and interrupt them when asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

T = TypeVar("T")

_ASKED_EVERY_S: Final = 0.25


def as_they_end(
    session: Any, jobs: Iterable[Callable[[], T]], most: int, stop: Callable[[], bool] = lambda: False
) -> Generator[Future[T], None, None]:
    """Run jobs, at most ``most`` at a time, and yield each when it has ended, until ``stop`` returns true.

    Close it (``contextlib.closing``) if it may be left early, e.g. by Ctrl-C: jobs still running on Spark are then
    interrupted, and waited for.
    """
    with ThreadPoolExecutor(most, "kretain-spark") as pool:
        waiting: set[Future[T]] = set()
        try:
            for job in jobs:
                waiting.add(pool.submit(job))
            while waiting and not stop():
                done, waiting = wait(waiting, _ASKED_EVERY_S, FIRST_COMPLETED)
                yield from done
        finally:
            running = {one for one in waiting if not one.cancel()}
            while running:  # repeated while any is running: an interrupt does not affect jobs about to begin
                session.interruptAll()
                running = wait(running, _ASKED_EVERY_S).not_done
