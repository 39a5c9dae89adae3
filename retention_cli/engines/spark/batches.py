"""Work on one batch of clusters ahead of the next step of another: driver threads over one session.

A fleet's clusters go through the steps of a plan in batches, each of whole clusters and in the safe order. While one
batch is put together, the log ends of the next are read, and the commits of the one after it: three batches are under
way at most, so memory does not grow with the fleet.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing.pool import AsyncResult, ThreadPool
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

T = TypeVar("T")

PARTITIONS_A_BATCH: Final = 100_000
"""Small clusters are one batch up to so many partitions: each batch is some queries of Spark's, of some 0.2 s each."""
_ASKED_EVERY_S: Final = 0.25
_WAITED_FOR_S: Final = 5.0
"""Longer than that nobody waits for what a thread asks of a broker: it is a daemon, and nobody takes its result."""


def in_batches(clusters: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield clusters in batches, whole and in order: as many as have at most so many partitions, but at least one."""
    batch: list[T] = []
    room = most
    for one in clusters:
        if batch and size(one) > room:
            yield batch
            batch, room = [], most
        batch.append(one)
        room -= size(one)
        if room <= 0:  # so that it goes on at once, whatever follows
            yield batch
            batch, room = [], most
    if batch:
        yield batch


class StoppedError(Exception):
    """The threads were asked to stop: whoever waits for their results has gone."""


class Ahead(Generic[T]):
    """An iterator whose next item is made in a thread of its own while the caller works on the one before."""

    def __init__(self, items: Iterable[T], check: Callable[[], None]) -> None:
        self._items = iter(items)
        self._check = check
        self._pool = ThreadPool(1)  # its thread is a daemon
        self._next = self._begin()

    def _begin(self) -> AsyncResult[tuple[T, ...]]:
        return self._pool.apply_async(self._made)

    def _made(self) -> tuple[T, ...]:
        """Return an item, nothing at the end."""
        self._check()
        return tuple(islice(self._items, 1))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        made = self._next.get()
        if not made:
            raise StopIteration
        self._next = self._begin()
        return made[0]

    @property
    def is_made(self) -> bool:
        """Whether the next item is made, or there is none."""
        return self._next.ready()

    def leave(self) -> None:
        """Begin no more items."""
        self._pool.terminate()


class Threads:
    """The threads of a pipeline. A context manager: at its end they are stopped, and their Spark jobs interrupted."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._steps: list[Ahead[Any]] = []
        self._with_jobs: list[Ahead[Any]] = []
        self.session: Any = None

    def ahead(self, items: Iterable[T], *, spark: bool = True) -> Ahead[T]:
        """Return an iterator whose items are made one ahead of the caller. An error is raised in their place.

        ``spark``: they are made by jobs, which are waited for in the end.
        """
        step = Ahead(items, self.check)
        self._steps.append(step)
        if spark:
            self._with_jobs.append(step)
        return step

    def check(self) -> None:
        """Check that results are still waited for: before each job, as an interrupt does not affect later ones.

        Raises:
            StoppedError: they are not.
        """
        if self._stopped.is_set():
            raise StoppedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        until = time.monotonic() + _WAITED_FOR_S
        while not all(step.is_made for step in self._with_jobs) and time.monotonic() < until:
            if self.session is not None:  # again and again: a job that is about to begin is not affected
                with contextlib.suppress(Exception):  # Spark itself may be gone
                    self.session.interruptAll()
            time.sleep(_ASKED_EVERY_S)
        for step in self._steps:
            step.leave()
