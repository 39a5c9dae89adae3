"""``--spark``: a session for as long as a command needs it."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kretain.options.spark import SparkFlags

if TYPE_CHECKING:
    from kretain.flows.inventory import InventoryOption
    from retention_cli.archive.interface import Archiver, ArchiverFor
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.brokers.security.settings import ConnectionSettings
    from retention_cli.core.progress import Progress
    from retention_cli.engines.fleet.planning import Engine
    from retention_cli.engines.spark.connections import ConnectionRef
    from retention_cli.engines.spark.sent import Sender
    from retention_cli.plan.make import PlanJob, Planner
    from retention_cli.plan.value import Plan
    from retention_cli.profile.reading import Profile, Read


@dataclass(frozen=True, slots=True)
class OpenSpark:
    """A session, and how connections' settings get to executors."""

    session: Any
    folder: Path
    flags: SparkFlags

    @property
    def sender(self) -> Sender:
        """What sends values to the session's tasks."""
        from retention_cli.engines.spark.sent import Sender

        return Sender(self.session, self.folder)

    def connection(self, settings: ConnectionSettings) -> ConnectionRef:
        """Send a cluster's settings to executors, and return where they find them."""
        from retention_cli.engines.spark.connections import ConnectionRef, write_connection
        from retention_cli.engines.spark.session import runs_here, ship_file

        if self.flags.executor_command_config is not None:
            return ConnectionRef(path=self.flags.executor_command_config, bootstrap=settings.bootstrap)
        path = write_connection(settings, self.folder, f"kretain-connection-{uuid.uuid4().hex}.json")
        if runs_here(self.session):
            return ConnectionRef(path=str(path))
        ship_file(self.session, path)
        return ConnectionRef(shipped=path.name)


@contextmanager
def opened(flags: SparkFlags, progress: Progress) -> Iterator[OpenSpark]:
    """Open Spark, check that executors have what they need, and stop Spark at the end.

    Raises:
        SparkError: Spark can't be used, or an executor lacks something.
    """
    from retention_cli.engines.spark.session import DRIVER_MEMORY, is_connect, open_session, runs_here, stop_session

    with tempfile.TemporaryDirectory(prefix="kretain-spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        where = flags.master or "its own configuration"
        memory = flags.conf().get("spark.driver.memory", DRIVER_MEMORY)
        progress(f"starting Spark ({where}{'' if is_connect(flags.master) else f', driver memory {memory}'})")
        session = open_session(flags.master, flags.conf(), folder)
        try:
            if not runs_here(session):
                from retention_cli.engines.spark.environment import check_executors

                progress("Spark's executors")
                tasks = 4 if is_connect(flags.master) else max(2, session.sparkContext.defaultParallelism)
                check_executors(session, tasks)
            yield OpenSpark(session, folder, flags)
        finally:
            stop_session(session)


class SharedSpark:
    """One session for all of a command's work, opened at first use. A context manager.

    Raises:
        UsageError: Spark's options don't go together.
    """

    def __init__(self, flags: SparkFlags) -> None:
        flags.check()
        self.flags = flags
        self._stack = contextlib.ExitStack()
        self._open: OpenSpark | None = None
        self._connections: dict[str, ConnectionRef] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *told: object) -> None:
        self._stack.close()

    def get(self, progress: Progress) -> OpenSpark:
        """Return the session.

        Raises:
            SparkError: Spark can't be used, or an executor lacks something.
        """
        if self._open is None:
            self._open = self._stack.enter_context(opened(self.flags, progress))
        return self._open

    def archiver(self) -> ArchiverFor | None:
        """Return the function that creates an archiver over this session, None without ``--spark``."""
        return self._archiver if self.flags.spark else None

    def _archiver(self, reader: ClusterReader, cluster_id: str) -> Archiver:
        from retention_cli.engines.spark.archiver import SparkArchiver

        def connect(progress: Progress) -> tuple[Any, ConnectionRef]:
            spark = self.get(progress)
            if cluster_id not in self._connections:
                self._connections[cluster_id] = spark.connection(reader.settings)
            return spark.session, self._connections[cluster_id]

        return SparkArchiver(reader, cluster_id, connect)


@dataclass(frozen=True, slots=True)
class SparkPlanner:
    """Makes plans over Spark; see :class:`retention_cli.plan.make.Planner`."""

    shared: SharedSpark
    inventory: InventoryOption

    def plan(self, job: PlanJob) -> Plan:
        """Return one cluster's plan."""
        from retention_cli.engines.spark.plans import make_plans
        from retention_cli.engines.spark.targets import Target

        def connect() -> ConnectionRef:
            return self.shared.get(job.progress).connection(job.reader.settings)

        files = self.inventory.paths
        target = Target("", job.reader, job.selection, connect, job.past_day, job.memories, files)
        made = make_plans(
            lambda: self.shared.get(job.progress).sender,
            [target],
            job.now_ms,
            job.progress,
            connections=self.shared.flags.connections,
            a_task=self.shared.flags.a_task,
        )
        if "" in made.failures:
            raise made.failures[""]
        return made.plans[""]


def planner(shared: SharedSpark, inventory: InventoryOption) -> Planner:
    """Return what makes a plan: this process, or Spark.

    Raises:
        InventoryError: this process must read the inventory, and can't.
    """
    if shared.flags.spark:
        return SparkPlanner(shared, inventory)
    from retention_cli.plan.make import LocalPlanner

    return LocalPlanner(inventory.view())


@contextmanager
def fleet_engine(shared: SharedSpark) -> Iterator[Engine]:
    """Yield the engine for several clusters: this process, or Spark."""
    if not shared.flags.spark:
        from retention_cli.engines.fleet.planning import LocalEngine

        yield LocalEngine()
        return
    from retention_cli.engines.spark.fleet import SparkEngine

    def spark(progress: Progress) -> tuple[Sender, Callable[[ConnectionSettings], ConnectionRef]]:
        there = shared.get(progress)
        return there.sender, there.connection

    yield SparkEngine(spark, shared.flags.connections, shared.flags.a_task)


@contextmanager
def record_reader(
    flags: SparkFlags, reader: ClusterReader, found: Profile, progress: Progress
) -> Iterator[Read | None]:
    """Yield the reader of a profile's records: Spark's, or None for this process.

    Raises:
        SparkError: Spark can't be used, or an executor lacks something.
    """
    if not flags.spark or not any(one.start < one.end for one in found.ranges.values()):
        yield None
        return
    from retention_cli.engines.spark.profile import SparkReading

    with opened(flags, progress) as spark:
        yield SparkReading(spark.session, reader, spark.connection(reader.settings))
