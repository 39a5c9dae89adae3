"""Coroutines on the client's loop that a caller waits for: none of them runs any more once it stops waiting.

The loop's thread hands what arrives to the caller's functions. A caller that is interrupted, or fails, closes what
these work on, such as a ledger; and if one thread closes what another one is using, SQLite crashes the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from retention_cli.brokers.errors import UnreachableError

T = TypeVar("T")


class NobodyWaitsError(Exception):
    """Ends a coroutine that no caller waits for any more."""


class Work:
    """One caller's coroutines: the one that it waits for, and those that this one starts (:meth:`current`)."""

    _now = threading.local()

    def __init__(self) -> None:
        self._step = threading.Lock()
        self._left = False

    @classmethod
    def current(cls) -> Work:
        """Return the work that the calling coroutine is part of."""
        return cast(Work, cls._now.work)

    def leave(self) -> None:
        """Run no more of it. Wait for the step that is running, such as handing over a reply."""
        self._left = True  # at once: a second Ctrl-C may interrupt the wait
        with self._step:
            pass

    async def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run the coroutine that the caller waits for. Those that it started end with it."""
        try:
            return await self.run_part(work(*args))
        finally:
            self._left = True

    async def run_part(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as a part of it.

        Raises:
            NobodyWaitsError: the work was left before the coroutine's next step.
        """
        try:
            return cast(T, await _Steps(self, coroutine))
        finally:
            coroutine.close()

    def step(self, go_on: Callable[[Any], Any], what: Any) -> Any:
        """Have one of its coroutines go on with a value or an error, to where it waits next.

        Raises:
            NobodyWaitsError: the work was left.
        """
        with self._step:
            if self._left:
                raise NobodyWaitsError
            Work._now.work = self
            return go_on(what)


class _Steps(Generator[Any, Any, T]):
    """A coroutine; each of its steps is a step of its work."""

    def __init__(self, work: Work, coroutine: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._coroutine = coroutine

    def __await__(self) -> _Steps[T]:
        return self

    def send(self, value: Any) -> Any:
        return self._work.step(self._coroutine.send, value)

    def throw(self, kind: Any, value: Any = None, _trace: Any = None) -> Any:
        return self._work.step(self._coroutine.throw, kind if value is None else value)

    def close(self) -> None:
        self._coroutine.close()


class Pending(Generic[T]):
    """Work that was started on a client's loop."""

    def __init__(self, future: Any, work: Work, bootstrap: str) -> None:
        self._future = future
        self._work = work
        self._bootstrap = bootstrap
        self._done = threading.Event()
        future.add_both(lambda _: self._done.set())

    def result(self, timeout_s: float | None = None, *, leave: bool = True) -> T:
        """Wait for its result. However the wait ends, none of the work runs any more, unless ``leave`` is false.

        Raises:
            UnreachableError: it did not finish within ``timeout_s``, if that is given.
        """
        try:
            finished = self._done.wait(timeout_s)
        finally:  # Ctrl-C, too
            if leave and not self._done.is_set():
                self._work.leave()
        if not finished:
            raise UnreachableError(f"{self._bootstrap} did not answer within {timeout_s:g} s")
        if self._future.exception is not None:
            raise self._future.exception
        return self._future.value  # type: ignore[no-any-return]
