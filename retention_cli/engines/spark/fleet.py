"""Spark as a fleet's engine: one job over all clusters (:class:`retention_cli.engines.fleet.planning.Engine`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.fleet.plan import Failure, failure_of
from retention_cli.engines.fleet.planning import Member, Watch
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.engine import make_plans
from retention_cli.engines.spark.prepare import Target
from retention_cli.plan.value import Plan
from retention_cli.policy.disks import check_without_inventory
from retention_cli.policy.errors import PolicyError
from retention_cli.trim.history import past_day

Connect = Callable[[ConnectionSettings], ConnectionRef]
"""Sends a cluster's settings to executors, and returns where they find them."""


class SparkEngine:
    """Plans all clusters at once, over one session.

    Args:
        session: the Spark session.
        connect: sends connections' settings to the executors.
    """

    def __init__(self, session: Any, connect: Connect) -> None:
        self._session = session
        self._connect = connect

    def plans(self, members: Sequence[Member], now_ms: int, watch: Watch) -> Iterator[tuple[str, Plan | Failure]]:
        """See :class:`retention_cli.engines.fleet.planning.Engine`."""
        with contextlib.ExitStack() as stack:
            progress = stack.enter_context(watch("Spark"))
            targets = []
            for member in members:
                try:
                    targets.append(self._target(member, now_ms, stack))
                except (BrokerError, PolicyError, StateError) as error:
                    yield member.name, failure_of(error)
            if not targets:
                return
            with make_plans(self._session, targets, now_ms, progress) as made:
                for name, failed in made.failures.items():
                    yield name, failure_of(failed)
                for name, plan in made.plans.items():
                    yield name, replace(plan, decisions=made.decisions(plan))

    def _target(self, member: Member, now_ms: int, stack: contextlib.ExitStack) -> Target:
        selection = member.selection()
        check_without_inventory(selection.policy)
        reader = stack.enter_context(member.reader())
        memories = member.memories(reader, selection.policy.state)
        stack.callback(memories.close)

        def trimmed(cluster: str) -> Amount:
            return past_day(member.state_dir, cluster, now_ms, selection.policy.limits)

        return Target(member.name, reader, selection, self._connect(member.settings), trimmed, memories)
