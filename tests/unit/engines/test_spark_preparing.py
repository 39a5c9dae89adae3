"""A fleet's clusters are prepared in order, a few ahead of the one that is read; each has one name."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.state_dir import StateError
from retention_cli.engines.fleet.planning import SameClusterError
from retention_cli.engines.spark import preparing
from retention_cli.engines.spark.prepare import CLIENTS, Prepared
from retention_cli.engines.spark.preparing import AHEAD, all_prepared


class Cluster:
    """A cluster that says which one it is: each time that it is asked, another of these, or the last one again."""

    def __init__(self, name: str, *ids: str) -> None:
        self.name, self.closed, self.prepared = name, False, False
        self._ids = [*ids]
        self.reader = SimpleNamespace(metadata=self._metadata, settings=SimpleNamespace(bootstrap=f"{name}:9092"))

    def _metadata(self, topics: list[str]) -> Any:
        assert topics == []
        if not self._ids:
            raise BrokerError("it does not answer")
        return SimpleNamespace(cluster_id=self.asked())

    def asked(self) -> str:
        return self._ids.pop(0) if len(self._ids) > 1 else self._ids[0]

    def done(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the clusters whose ledgers were opened. None is read."""
    found: list[str] = []
    lock = threading.Lock()

    def prepare(target: Any, now_ms: int) -> Prepared:
        assert now_ms == 5
        target.prepared = True
        nothing: Any = None
        job: Any = SimpleNamespace(cluster=target.asked())
        return Prepared(target, nothing, nothing, job)

    def open_memory(one: Prepared) -> None:
        if one.target.name == "torn":
            raise StateError("its ledger is torn")
        with lock:
            found.append(one.target.name)

    monkeypatch.setattr(preparing, "prepare", prepare)
    monkeypatch.setattr(preparing, "open_memory", open_memory)
    return found


def test_clusters_come_in_order_and_those_that_fail_are_named_and_closed() -> None:
    clusters: Any = [Cluster("a", "1"), Cluster("b"), Cluster("torn", "3"), Cluster("d", "4")]
    failures: dict[str, BaseException] = {}
    assert [one.target.name for one in all_prepared(clusters, 5, failures)] == ["a", "d"]
    assert {name: str(error) for name, error in failures.items()} == {
        "b": "it does not answer",
        "torn": "its ledger is torn",
    }
    assert [one.closed for one in clusters] == [False, True, True, False]


def test_two_names_of_one_cluster_are_refused_before_any_ledger_is_opened(opened: list[str]) -> None:
    """The second is far behind the first, whose ledger would be saved by then."""
    clusters: Any = [Cluster(f"c{number}", str(number % (3 * CLIENTS))) for number in range(3 * CLIENTS + 1)]
    with pytest.raises(SameClusterError, match=f"c0 and c{3 * CLIENTS} are one cluster"):
        next(all_prepared(clusters, 5, {}))
    assert opened == []


def test_a_cluster_that_has_become_another_one_is_a_failure_and_its_ledger_is_not_opened(opened: list[str]) -> None:
    """It may be one by now that has a name of its own, and a policy of its own."""
    clusters: Any = [Cluster("a", "1"), Cluster("b", "2", "1")]
    failures: dict[str, BaseException] = {}
    assert [one.target.name for one in all_prepared(clusters, 5, failures)] == ["a"]
    assert str(failures["b"]) == "b:9092 was cluster 2 when it was asked first, and is 1 now"
    assert opened == ["a"]


def test_only_a_few_are_prepared_ahead() -> None:
    """What is known of a cluster's partitions is in memory from then on."""
    clusters: Any = [Cluster(f"c{number}", str(number)) for number in range(3 * CLIENTS)]
    prepared = all_prepared(clusters, 5, {})
    for number in range(3 * CLIENTS):
        assert next(prepared).target.name == f"c{number}"
        assert sum(one.prepared for one in clusters) <= number + AHEAD
