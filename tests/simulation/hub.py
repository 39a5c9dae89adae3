"""Several kretains at once in one thread: each is a greenlet that stops at every request, where anything may happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet


class KilledError(BaseException):
    """The process is killed with SIGKILL: nothing of it goes on, and what it does while it unwinds is undone."""


@dataclass(slots=True)
class Process:
    """One run of kretain. It goes on until it is done, ``alive`` until it is done or killed."""

    name: str
    work: Callable[[], None]
    alive: bool = True
    killed: bool = False
    requests: int = 0
    last: str = ""
    thread: greenlet = field(init=False)

    def __post_init__(self) -> None:
        self.thread = greenlet(self._run)

    def _run(self) -> None:
        try:
            self.work()
        except KilledError:
            self.killed = True
        finally:
            self.alive = False

    def step(self, requests: int = 1) -> None:
        for _ in range(requests):
            if not self.alive:
                return
            self.thread.parent = getcurrent()
            self.thread.switch()

    def finish(self, at_most: int = 100_000) -> None:
        self.step(at_most)
        assert not self.alive, f"{self.name} does not end: {self.last}"

    def kill(self) -> None:
        if self.alive:
            self.killed = True
            self.thread.parent = getcurrent()
            self.thread.throw(KilledError())


class Hub:
    """Knows which process runs now; whoever speaks to the cluster pauses here."""

    def __init__(self) -> None:
        self.running: dict[greenlet, Process] = {}

    def start(self, name: str, work: Callable[[], None]) -> Process:
        process = Process(name, work)
        self.running[process.thread] = process
        return process

    @property
    def current(self) -> Process | None:
        return self.running.get(getcurrent())

    def pause(self, what: str) -> None:
        """Stop before a request: others go on meanwhile."""
        process = self.current
        if process is None:
            return
        if process.killed:  # it unwinds: no request of it goes out any more
            raise KilledError
        process.requests += 1
        process.last = what
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()
        if process.killed:
            raise KilledError
