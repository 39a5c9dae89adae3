"""Make one plan over several clusters: an engine reads each, and a failed cluster does not stop the others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader, Elsewhere
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.progress import Progress
from retention_cli.core.state_dir import StateError
from retention_cli.disks.inventory.format import InventoryError
from retention_cli.disks.inventory.read import inventory_paths, inventory_view
from retention_cli.engines.fleet.plan import Failure, FleetPlan, failure_of
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.state.memories import Kind, Memories, memories_of
from retention_cli.trim.history import past_day

CONCURRENT: Final = 4
"""How many clusters are read at a time."""

Watch = Callable[[str], contextlib.AbstractContextManager[Progress]]
"""Returns, for a cluster's name, a context manager of the progress to report to while the cluster is read."""


class SameClusterError(Exception):
    """Two names of a fleet are one cluster, which would be trimmed under two policies. Nothing was trimmed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster of a fleet: its name, how to reach it, and what may be trimmed there.

    ``selection`` returns the current policy; ``state_dir`` has audit logs, locks and ledgers; ``elsewhere`` knows other
    clusters by their contexts (F7).
    """

    name: str
    settings: ConnectionSettings
    timeout_s: float
    state_dir: Path
    selection: Callable[[], Selection]
    elsewhere: Elsewhere | None = None

    def reader(self) -> ClusterReader:
        """Return an unopened reader of the cluster."""
        return ClusterReader(self.settings, self.timeout_s, elsewhere=self.elsewhere)

    def memories(self, reader: ClusterReader, kind: Kind) -> Memories:
        """Return the cluster's ledgers, unopened; ``kind`` is the policy's ``state``."""
        return memories_of(self.state_dir, reader, kind)

    def job(self, selection: Selection, now_ms: int, progress: Progress, stack: contextlib.ExitStack) -> PlanJob:
        """Return the job to plan the cluster as of a moment (Unix ms); ``stack`` closes its reader and its ledgers."""
        reader = stack.enter_context(self.reader())
        memories = self.memories(reader, selection.policy.state)
        stack.callback(memories.close)
        return PlanJob(
            reader,
            selection,
            now_ms,
            lambda cluster: past_day(self.state_dir, cluster, now_ms, selection.policy.limits),
            memories,
            progress=progress,
        )


Engine = Callable[[Sequence[Member], int, Watch], Iterator[tuple[str, Plan | Failure]]]
"""Makes plans of clusters as of a moment (Unix ms), and yields each member's name with its plan, in any order.

A cluster that fails gets a :class:`Failure` of its own. Two members that are one cluster are a SameClusterError.
"""


def check_addresses(members: Sequence[Member]) -> None:
    """Check, before any broker is asked, that no two members share a broker address.

    Raises:
        SameClusterError: two do.
    """
    seen: dict[str, str] = {}
    for one in members:
        for address in one.settings.bootstrap.split(","):
            if (other := seen.setdefault(address.strip().lower(), one.name)) != one.name:
                raise SameClusterError(
                    f"{other} and {one.name} are both reached by {address.strip()}: name each cluster once, under one "
                    "policy; nothing was trimmed"
                )


def make_fleet_plan(
    engine: Engine,
    members: Sequence[Member],
    now_ms: int,
    *,
    source: str,
    digest: str | None,
    watch: Watch,
) -> FleetPlan:
    """Plan every member. Nothing is changed.

    Raises:
        SameClusterError: two of them are one cluster.
    """
    found = dict(engine(members, now_ms, watch))
    clusters = {one.name: found.get(one.name, Failure("the engine left it out")) for one in members}
    names = ClusterNames([one.name for one in members])
    for name, one in clusters.items():
        if isinstance(one, Plan):
            names.claim(one.cluster_id, name)
    return FleetPlan(now_ms, source, digest, clusters)


def plan_here(members: Sequence[Member], now_ms: int, watch: Watch) -> Iterator[tuple[str, Plan | Failure]]:
    """Plan members in this process, a few at a time, each in its own thread (:data:`Engine`).

    If the caller is interrupted, threads are abandoned, and what they read is discarded.
    """
    names = ClusterNames([one.name for one in members])

    def plan(member: Member) -> tuple[str, Plan | Failure]:
        with watch(member.name) as progress:
            try:
                return member.name, plan_one(member, now_ms, names, progress)
            except (BrokerError, PolicyError, NothingMatchesError, StateError, InventoryError) as error:
                return member.name, failure_of(error)

    with ThreadPool(max(1, min(CONCURRENT, len(members)))) as pool:  # its threads are daemons
        yield from pool.imap_unordered(plan, members)


def plan_one(member: Member, now_ms: int, names: ClusterNames, progress: Progress) -> Plan:
    """Plan one cluster."""
    selection = member.selection()
    inventory = inventory_view(inventory_paths(selection.policy))
    with contextlib.ExitStack() as stack:
        job = member.job(selection, now_ms, progress, stack)
        names.claim(job.reader.metadata([]).cluster_id, member.name)  # before two threads open one cluster's ledger
        return LocalPlanner(inventory).plan(job)


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The name of each cluster; a cluster has only one. ``order`` has all names."""

    order: Sequence[str]
    _by_id: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, cluster_id: str, name: str) -> None:
        """Record a cluster's name.

        Raises:
            SameClusterError: the cluster has another name already.
        """
        with self._lock:
            other = self._by_id.setdefault(cluster_id, name)
        if other != name:
            first, second = sorted((other, name), key=self.order.index)
            raise SameClusterError(
                f"{first} and {second} are one cluster, {cluster_id}: name it once, under one policy; "
                "nothing was trimmed"
            )
