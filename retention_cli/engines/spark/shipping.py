"""What tasks get from the client in files: values, other files, and a cluster's connection settings.

And what comes back: rows as Arrow batches, of several jobs at once.

What a cluster's tasks must know is proportional to its partitions and groups. In the code of every task it would be
sent as often as there are tasks; as rows it would pass through the driver's memory. And plans, logs and Spark's own
pages may show code and its arguments, but not the content of files. An executor fetches each file once.

Values are pickled, so no schema lists their fields. Only tasks unpickle them: the client, which can delete, does not.
"""

from __future__ import annotations

import copyreg
import functools
import json
import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

import pyarrow as pa
from pydantic import TypeAdapter

from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.grouping import in_batches
from retention_cli.engines.spark.session import SparkError, last_lines, runs_here, ship_file, shipped

T = TypeVar("T")

_CACHED_VALUES: Final = 8
"""How many values a Python worker keeps: those of the clusters that its tasks read at the time."""
_SETTINGS: Final = TypeAdapter(ConnectionSettings)


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file for tasks: at ``path`` on the client's machine. If it ``travels``, Spark sends it to executors."""

    path: str
    travels: bool = False

    def here(self) -> Path:
        """Return where it is, in a task."""
        return shipped(Path(self.path).name) if self.travels else Path(self.path)


@dataclass(frozen=True, slots=True)
class Sent(SentFile, Generic[T]):
    """A value in a file."""

    def load(self) -> T:
        """Return the value, in a task. It is shared with other tasks of the same worker: change nothing of it."""
        return cast(T, _loaded(self))

    def load_once(self) -> T:
        """Return the value, in the one task that needs it."""
        return cast(T, from_bytes(self.here().read_bytes()))


@functools.lru_cache(_CACHED_VALUES)
def _loaded(one: Sent[Any]) -> Any:
    return one.load_once()


@dataclass(frozen=True, slots=True)
class ConnectionRef:
    """The file in which an executor finds a cluster's settings: kretain's JSON.

    With ``bootstrap``, it is a client's properties file (``--executor-command-config``). Its ``bootstrap.servers``, if
    it has any, replace ``bootstrap``: executors may reach brokers at other addresses.
    """

    file: SentFile
    bootstrap: str | None = None

    def load(self) -> ConnectionSettings:
        """Read the settings, on an executor.

        Raises:
            SettingsError: the file is missing or not valid.
        """
        file = self.file.here()
        if self.bootstrap is not None:
            return translate({"bootstrap.servers": Setting(self.bootstrap, "the client"), **read_properties(file)})
        try:
            return _SETTINGS.validate_json(file.read_bytes())
        except OSError as error:
            raise SettingsError(f"the connection's file {file.name} can't be read here: {error.strerror}") from None
        except ValueError:  # without the error's text, which may quote a secret
            raise SettingsError(f"the connection's file {file.name} can't be understood here") from None


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends values, files and connection settings to the tasks of a session.

    ``folder`` is for this user alone, and must outlive the session: executors that start later fetch all files again.
    ``command_config`` is a file that lies on every executor, and replaces the settings of all connections.
    """

    session: Any
    folder: Path
    command_config: str | None = None
    _connections: dict[ConnectionSettings, ConnectionRef] = field(default_factory=dict)

    def send(self, value: T) -> Sent[T]:
        """Write a value to a file, and have Spark send it unless tasks run on this machine."""
        path = self._new("values")
        path.write_bytes(to_bytes(value))
        return Sent(str(path), self._travels(path))

    def send_file(self, path: Path) -> SentFile:
        """Have Spark send a file unless tasks run on this machine."""
        if runs_here(self.session):
            return SentFile(str(path.resolve()))
        own = self._new(path.suffix.lstrip("."))  # two files of one name would be one
        shutil.copyfile(path, own)
        return SentFile(str(own), self._travels(own))

    def connection(self, settings: ConnectionSettings) -> ConnectionRef:
        """Return where tasks find a cluster's settings: they are sent once, in a file that only this user may read."""
        if self.command_config is not None:
            return ConnectionRef(SentFile(self.command_config), settings.bootstrap)
        if settings not in self._connections:
            path = self._new("json", "connection-")
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                json.dump(asdict(settings), file)
            self._connections[settings] = ConnectionRef(SentFile(str(path), self._travels(path)))
        return self._connections[settings]

    def _new(self, suffix: str, kind: str = "") -> Path:
        return self.folder / f"kretain-{kind}{uuid.uuid4().hex}.{suffix}"

    def _travels(self, path: Path) -> bool:
        if travels := not runs_here(self.session):
            ship_file(self.session, path)
        return travels


def check_cluster(reader: ClusterReader, cluster: str) -> None:
    """Check that a reader has reached this cluster: on another machine, its address may resolve to another cluster.

    A group that the other cluster does not have would seem to be deleted, and would protect nothing (F1).

    Raises:
        BrokerError: the reader has reached another cluster.
    """
    if (found := reader.metadata(()).cluster_id) != cluster:
        raise BrokerError(f"{reader.settings.bootstrap} is cluster {found} from here, not {cluster}")


@contextmanager
def reader_of(cluster: str, connection: ConnectionRef, timeout_s: float) -> Iterator[ClusterReader]:
    """Yield a reader of a cluster, in a task; a request may take this many seconds.

    Raises:
        BrokerError: the cluster can't be reached from here, or another cluster answers.
    """
    with ExitStack() as stack:
        try:
            reader = stack.enter_context(ClusterReader(connection.load(), timeout_s))
        except SettingsError as error:
            raise BrokerError(str(error)) from None
        check_cluster(reader, cluster)
        yield reader


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


# Facts have read-only mappings, which pickle can't write by itself.
copyreg.pickle(MappingProxyType, lambda values: (_read_only, (dict(values),)))


def to_bytes(value: Any) -> bytes:
    """Return a value as bytes, for a task."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def from_bytes(raw: bytes) -> Any:
    """Return the value in bytes of :func:`to_bytes`. Only for use in a task."""
    return pickle.loads(raw)  # noqa: S301  (written by our client or task, and sent by Spark like our code)


Row = dict[str, Any]
ROWS_A_BATCH: Final = 5_000
_POLL_S: Final = 0.25


def task(rows_of: Callable[[int], Iterable[Row]], schema: pa.Schema) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the task for ``mapInArrow``: from numbers to what ``rows_of`` yields for each, in batches as it arrives.

    It reads all input: Spark ends a Python worker whose task leaves some, and the next must import everything again.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for some in in_batches(rows_of(number), ROWS_A_BATCH):
                yield pa.RecordBatch.from_pylist(some, schema=schema)

    return run


def ddl(schema: Any) -> str:
    """Return an Arrow schema in Spark's type syntax."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())


def run_tasks(
    session: Any, rows_of: Callable[[int], Iterable[Row]], schema: pa.Schema, count: int, failed: str
) -> list[Row]:
    """Run a task for each number below ``count``; return their rows (:func:`task`).

    Raises:
        SparkError: a task failed, or was interrupted; the text begins with ``failed``.
    """
    try:
        frame = session.range(0, count, 1, count).mapInArrow(task(rows_of, schema), ddl(schema))
        return [row.asDict() for row in frame.collect()]
    except Exception as error:  # noqa: BLE001  (PySpark's own, Py4J's, gRPC's: all mean the same here)
        raise SparkError(f"{failed}: {last_lines(error)}") from None


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
                done, waiting = wait(waiting, _POLL_S, FIRST_COMPLETED)
                yield from done
        finally:
            running = {one for one in waiting if not one.cancel()}
            while running:  # repeated while any is running: an interrupt does not affect jobs about to begin
                session.interruptAll()
                running = wait(running, _POLL_S).not_done
