"""``--spark``: a session for as long as a command needs it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kretain.options.plans import InventoryOption, SparkFlags

if TYPE_CHECKING:
    from retention_cli.archive.writer import Archiver, ArchiverFor
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.core.progress import Progress
    from retention_cli.engines.fleet.planning import Engine
    from retention_cli.engines.spark.shipping import Sender
    from retention_cli.plan.make import PlanJob, Planner
    from retention_cli.plan.value import Plan
    from retention_cli.profile.reading import Profile, Read


@contextlib.contextmanager
def _opened(flags: SparkFlags, progress: Progress) -> Iterator[Sender]:
    """Open Spark, check that executors have what they need, and stop Spark at the end.

    Raises:
        SparkError: Spark can't be used, or an executor lacks something.
    """
    from retention_cli.engines.spark.session import (
        DRIVER_MEMORY,
        check_executors,
        is_connect,
        open_session,
        runs_here,
        stop_session,
    )
    from retention_cli.engines.spark.shipping import Sender

    with tempfile.TemporaryDirectory(prefix="kretain-spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        where = flags.master or "its own configuration"
        memory = flags.conf().get("spark.driver.memory", DRIVER_MEMORY)
        progress(f"starting Spark ({where}{'' if is_connect(flags.master) else f', driver memory {memory}'})")
        session = open_session(flags.master, flags.conf(), folder)
        try:
            if not runs_here(session):
                progress("Spark's executors")
                check_executors(
                    session, 4 if is_connect(flags.master) else max(2, session.sparkContext.defaultParallelism)
                )
            yield Sender(session, folder, flags.executor_command_config)
        finally:
            stop_session(session)


class SharedSpark(contextlib.ExitStack):
    """One session for all of a command's work, opened at first use. A context manager.

    Raises:
        UsageError: Spark's options don't go together.
    """

    def __init__(self, flags: SparkFlags) -> None:
        super().__init__()
        flags.check()
        self.flags = flags
        self._sender: Sender | None = None

    def get(self, progress: Progress) -> Sender:
        """Return what sends to the session's tasks.

        Raises:
            SparkError: Spark can't be used, or an executor lacks something.
        """
        if self._sender is None:
            self._sender = self.enter_context(_opened(self.flags, progress))
        return self._sender

    def archiver(self) -> ArchiverFor | None:
        """Return the function that creates an archiver over this session, None without ``--spark``."""
        return self._archiver if self.flags.spark else None

    def _archiver(self, reader: ClusterReader, cluster_id: str) -> Archiver:
        from retention_cli.engines.spark.archiver import SparkArchiver

        return SparkArchiver(reader, cluster_id, self.get)


def planner(shared: SharedSpark, inventory: InventoryOption) -> Planner:
    """Return what makes a plan: this process, or Spark.

    Raises:
        InventoryError: this process must read the inventory, and can't.
    """
    if not shared.flags.spark:
        from retention_cli.plan.make import LocalPlanner

        return LocalPlanner(inventory.view).plan
    from retention_cli.engines.spark.plans import Target, make_plans

    def over_spark(job: PlanJob) -> Plan:
        [(_name, plan)] = make_plans(
            shared.get, [Target("", job, inventory.paths)], job.progress, **shared.flags.limits()
        )
        if isinstance(plan, BaseException):
            raise plan
        return plan

    return over_spark


def fleet_engine(shared: SharedSpark) -> Engine:
    """Return the engine for several clusters: this process, or Spark."""
    if not shared.flags.spark:
        from retention_cli.engines.fleet.planning import plan_here

        return plan_here
    from retention_cli.engines.spark.plans import plan_over_spark

    return lambda members, now_ms, watch: plan_over_spark(shared.get, members, now_ms, watch, **shared.flags.limits())


def record_reader(shared: SharedSpark, reader: ClusterReader, found: Profile, progress: Progress) -> Read | None:
    """Return the reader of a profile's records: Spark's, or None for this process.

    Raises:
        SparkError: Spark can't be used, or an executor lacks something.
    """
    if not shared.flags.spark or not any(one.start < one.end for one in found.ranges.values()):
        return None
    from retention_cli.engines.spark.profile import SparkReading

    return SparkReading(shared.get(progress), reader)
