"""Values for tasks in files: an executor fetches each once, and a task's code carries only their names.

What a cluster's tasks must know is proportional to its partitions and groups. In the code of every task it would be
sent as often as there are tasks; as rows it would pass through the driver's memory.
"""

from __future__ import annotations

import functools
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from retention_cli.engines.spark.session import runs_here, ship_file, shipped
from retention_cli.engines.spark.values import from_bytes, to_bytes

T = TypeVar("T")

_KEPT: Final = 8
"""How many values a Python worker keeps: those of the clusters that its tasks read at the time."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """A value in a file: at ``path`` on the client's machine. If it ``travels``, Spark sends the file to executors."""

    path: str
    travels: bool

    def load(self) -> T:
        """Return the value, in a task. It is shared with other tasks of the same worker: change nothing of it."""
        value: T = _loaded(self)
        return value

    def here(self) -> T:
        """Return the value, in the client, which has written it."""
        value: T = from_bytes(Path(self.path).read_bytes())
        return value


@functools.lru_cache(_KEPT)
def _loaded(one: Sent[Any]) -> Any:
    file = shipped(Path(one.path).name) if one.travels else Path(one.path)
    return from_bytes(file.read_bytes())


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends values to the tasks of a session.

    ``folder`` is for this user alone, and must outlive the session: executors that start later fetch all files anew.
    """

    session: Any
    folder: Path

    def send(self, value: T) -> Sent[T]:
        """Write a value to a file, and have Spark send it unless tasks run on this machine."""
        path = self.folder / f"kretain-{uuid.uuid4().hex}.values"
        path.write_bytes(to_bytes(value))
        travels = not runs_here(self.session)
        if travels:
            ship_file(self.session, path)
        return Sent(str(path), travels)
