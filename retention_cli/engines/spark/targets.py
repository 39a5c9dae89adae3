"""The clusters that Spark is to plan, each under one name."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.engines.fleet.planning import ClusterNames
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.plan.make import PastDay
from retention_cli.policy.selection import Selection
from retention_cli.state.memories import Memories

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to plan: its open reader, policy and topics.

    ``name`` is its name in a fleet. ``connect`` sends its connection settings to executors, once Spark is there, and
    returns where they find them. ``inventory`` are the files of its inventory, for the disk rules. ``done`` is
    called once its plan is made, or it has failed: nothing more is read of the cluster then, or remembered of it.
    """

    name: str
    reader: ClusterReader
    selection: Selection
    connect: Callable[[], ConnectionRef]
    past_day: PastDay
    memories: Memories | None = None
    inventory: Sequence[Path] = ()
    done: Callable[[], None] = lambda: None


def identified(targets: Sequence[Target], failures: MutableMapping[str, BaseException]) -> list[tuple[Target, str]]:
    """Return the targets with their clusters' ids; those that can't be reached are in ``failures``, and done.

    Raises:
        SameClusterError: two targets are one cluster; its ledger is opened once alone.
    """
    names = ClusterNames([one.name for one in targets])

    def identify(target: Target) -> str | BrokerError:
        try:
            cluster: str = target.reader.metadata([]).cluster_id
        except BrokerError as error:
            return error
        names.claim(cluster, target.name)
        return cluster

    there = []
    with ThreadPool(max(1, min(_AT_ONCE, len(targets)))) as pool:  # its threads are daemons
        for target, found in zip(targets, pool.map(identify, targets, chunksize=1), strict=True):
            if isinstance(found, BrokerError):
                failures[target.name] = found
                target.done()
            else:
                there.append((target, found))
    return there
