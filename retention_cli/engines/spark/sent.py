"""Values for tasks in files: an executor fetches each once, and a task's code carries only their names.

What a cluster's tasks must know is proportional to its partitions and groups. In the code of every task it would be
sent as often as there are tasks; as rows it would pass through the driver's memory.

Values are pickled, so no schema lists their fields. Only tasks unpickle them: the client, which can delete, does not.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from retention_cli.engines.spark.session import runs_here, ship_file, shipped

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

    def load_once(self) -> T:
        """Return the value, in the one task that needs it."""
        value: T = from_bytes(SentFile(self.path, self.travels).here().read_bytes())
        return value


@functools.lru_cache(_KEPT)
def _loaded(one: Sent[Any]) -> Any:
    return one.load_once()


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file for tasks, as :class:`Sent`."""

    path: str
    travels: bool

    def here(self) -> Path:
        """Return where it is, in a task."""
        return shipped(Path(self.path).name) if self.travels else Path(self.path)


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
        return Sent(str(path), self._travels(path))

    def send_file(self, path: Path) -> SentFile:
        """Have Spark send a file unless tasks run on this machine."""
        if runs_here(self.session):
            return SentFile(str(path.resolve()), travels=False)
        own = self.folder / f"kretain-{uuid.uuid4().hex}{path.suffix}"  # two files of one name would be one
        shutil.copyfile(path, own)
        return SentFile(str(own), self._travels(own))

    def _travels(self, path: Path) -> bool:
        travels = not runs_here(self.session)
        if travels:
            ship_file(self.session, path)
        return travels


def _unchanging(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _Pickler(pickle.Pickler):
    """Facts contain read-only mappings, which pickle can't write by itself."""

    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda one: (_unchanging, (dict(one),))}


def to_bytes(value: Any) -> bytes:
    """Return a value as bytes, for a task."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def from_bytes(raw: bytes) -> Any:
    """Return the value in bytes of :func:`to_bytes`. Only for use in a task."""
    return pickle.loads(raw)  # noqa: S301  (written by our client or task, and sent by Spark like our code)
