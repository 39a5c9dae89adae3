"""Spark as a fleet's engine: one job over all clusters (:class:`retention_cli.engines.fleet.planning.Engine`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.progress import Progress
from retention_cli.core.state_dir import StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_paths
from retention_cli.engines.fleet.plan import Failure, failure_of
from retention_cli.engines.fleet.planning import Member, Watch
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.plans import make_plans
from retention_cli.engines.spark.sent import Sender
from retention_cli.engines.spark.targets import Target
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError

Open = Callable[[Progress], tuple[Sender, Callable[[ConnectionSettings], ConnectionRef]]]
"""Opens Spark, or returns the open session, with the function that sends a cluster's settings to executors and returns
where they find them."""


class SparkEngine:
    """Plans all clusters at once, over one session.

    Args:
        spark: opens the session.
        connections: how many tasks read from a broker at a time, at most.
        a_task: the most partitions that one task plans.
    """

    def __init__(self, spark: Open, connections: int, a_task: int) -> None:
        self._open = spark
        self._connections = connections
        self._a_task = a_task

    def plans(self, members: Sequence[Member], now_ms: int, watch: Watch) -> Iterator[tuple[str, Plan | Failure]]:
        """See :class:`retention_cli.engines.fleet.planning.Engine`."""
        with contextlib.ExitStack() as stack:
            progress = stack.enter_context(watch("Spark"))
            targets = []
            for member in members:
                own = contextlib.ExitStack()
                stack.callback(own.close)  # where it was not done before
                try:
                    targets.append(self._target(member, now_ms, own, progress))
                except (BrokerError, PolicyError, StateError, InventoryError) as error:
                    yield member.name, failure_of(error)
            if not targets:
                return
            sender = partial(self._sender, progress)
            made = make_plans(sender, targets, now_ms, progress, connections=self._connections, a_task=self._a_task)
            for name, failed in made.failures.items():
                yield name, failure_of(failed)
            yield from made.plans.items()

    def _sender(self, progress: Progress) -> Sender:
        return self._open(progress)[0]

    def _target(self, member: Member, now_ms: int, stack: contextlib.ExitStack, progress: Progress) -> Target:
        selection = member.selection()
        files = inventory_paths(selection.policy)
        reader = stack.enter_context(member.reader())
        memories = member.memories(reader, selection.policy.state)
        stack.callback(memories.close)

        def connect() -> ConnectionRef:
            return self._open(progress)[1](member.settings)

        return Target(
            member.name,
            reader,
            selection,
            connect,
            member.past_day(selection, now_ms),
            memories,
            files,
            done=stack.close,
        )
