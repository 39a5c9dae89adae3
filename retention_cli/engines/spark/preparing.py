"""Prepare a fleet's clusters in order, a few ahead; each is one cluster under one name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, MutableMapping, Sequence
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.state_dir import StateError
from retention_cli.engines.fleet.planning import ClusterNames
from retention_cli.engines.spark.prepare import CLIENTS, Prepared, Target, open_memory, prepare
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError

AHEAD: Final = 3
"""So many clusters are prepared at a time, or wait: a cluster's whole metadata is in memory while it is read."""


def all_prepared(
    targets: Sequence[Target], now_ms: int, failures: MutableMapping[str, BaseException]
) -> Iterator[Prepared]:
    """Yield the targets in order, with their small data and ledgers read; those that fail are in ``failures``.

    Which cluster each one is was asked of all before the first is yielded: so nothing was saved yet.

    Raises:
        SameClusterError: two targets are one cluster.
    """
    waiting = deque(identified(targets, failures))
    with ThreadPool(AHEAD) as pool:  # its threads are daemons
        running: deque[tuple[Target, AsyncResult[Prepared | BaseException]]] = deque()
        while waiting or running:
            while waiting and len(running) < AHEAD:
                target, cluster = waiting.popleft()
                running.append((target, pool.apply_async(_prepared, (target, cluster, now_ms))))
            target, result = running.popleft()
            found = result.get()
            if isinstance(found, Prepared):
                yield found
            else:
                failures[target.name] = found
                target.done()


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
    with ThreadPool(max(1, min(CLIENTS, len(targets)))) as pool:  # its threads are daemons
        for target, found in zip(targets, pool.map(identify, targets, chunksize=1), strict=True):
            if isinstance(found, BrokerError):
                failures[target.name] = found
                target.done()
            else:
                there.append((target, found))
    return there


def _prepared(target: Target, cluster: str, now_ms: int) -> Prepared | BaseException:
    """Read the small data of a cluster and its ledger, or return why that failed."""
    try:
        one = prepare(target, now_ms)
        _check_identity(one, cluster)
        open_memory(one)
    except (BrokerError, PolicyError, NothingMatchesError, StateError) as error:
        return error
    return one


def _check_identity(one: Prepared, cluster: str) -> None:
    """Check that a target is the cluster that it was: it may be one by now that has another name in the fleet.

    Raises:
        BrokerError: it is another one.
    """
    if one.cluster != cluster:
        address = one.target.reader.settings.bootstrap
        raise BrokerError(f"{address} was cluster {cluster} when it was asked first, and is {one.cluster} now")
