"""A topic on which a consumer could not be read changes nothing that is known of it there, or on other topics (F3, F5)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.groups import ListedGroup
from retention_cli.core.model import Floor, TopicPartition
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Logs
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import read_groups
from retention_cli.observe.floors.outside import fold_outside
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.sources.interface import Consumer
from retention_cli.observe.floors.sources.zookeeper import _position
from retention_cli.policy.settings import FloorSource, GroupRules

HOUR = 3_600_000


class Passes:
    """Passes over topics t and u of one cluster, with one ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder / "c", 10**12

    def floor(self, fold_in: Any, high_watermark: int, rules: GroupRules) -> Any:
        """The floor of t-0 after one pass."""
        self.now += HOUR
        with Ledger(self.folder) as ledger:
            ledger.begin({"t": "A" * 22, "u": "B" * 22})
            fold = FloorFold({"t": TopicScope([3]), "u": TopicScope([3])})
            fold_in(fold, Recall(ledger, rules, self.now))
            logs = Logs(((topic, 0), LogNow(high_watermark, 3)) for topic in "tu")
            ledger.judge(lambda: logs, {"t", "u"}, ())
            ledger.save(self.now)
            found = fold.floor(TopicPartition("t", 0), 0, high_watermark)
            return found.offset if isinstance(found, Floor) else {one.code for one in found.reasons}


@pytest.mark.parametrize(
    "unread",
    [
        Consumer({}, frozenset(), {"t": "partition 1 holds nothing"}),
        Consumer({"t": [(1, 7)]}, frozenset({"t"}), unread=frozenset({("t", 0)})),
    ],
    ids=["a node of ZooKeeper can't be read", "one of a query's two sources has not met the partition"],
)
def test_refused_position_stays_refused_after_a_pass_that_did_not_read_it(tmp_path: Path, unread: Consumer) -> None:
    """F5, F7: that is no proof that the position was deleted."""
    rules = GroupRules(sources=(FloorSource("zookeeper", "zk"),))
    metadata: Any = SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None, 1: None})})

    def read(consumer: Consumer) -> Any:
        return lambda fold, recall: fold_outside(fold, metadata, recall, None, None, [{"g": consumer}])  # type: ignore[arg-type]

    stands = read(Consumer({"t": [(0, 500)]}))
    passes = Passes(tmp_path)
    passes.floor(stands, 100, rules)
    refused = passes.floor(stands, 1_000, rules)
    passes.floor(read(unread), 1_000, rules)
    assert passes.floor(stands, 1_000, rules) == refused == {"F5"}


def test_share_group_error_on_one_topic_leaves_the_floor_of_another(tmp_path: Path) -> None:
    """F6: where it stood on t before its offset was deleted counts, whatever becomes of u."""
    groups = [ListedGroup("s", "share", "share", "Stable"), ListedGroup("live", "classic", "consumer", "Stable")]

    def read(share: GroupCommits | CommitsUnknown) -> Any:
        reader: Any = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            describe_members=lambda *_: None,
            read_pending=lambda *_: [],
            read_share_offsets=lambda _names, on_group: on_group(share),
            read_commits=lambda _names, on_group, _deadline: on_group(
                GroupCommits("live", {"t": [(0, 900, 3)], "u": [(0, 900, 3)]})
            ),
        )
        return lambda fold, recall: read_groups(reader, groups, fold, recall, 1.0)

    passes = Passes(tmp_path)
    assert (
        passes.floor(read(GroupCommits("s", {"t": [(0, 10, None)], "u": [(0, 10, None)]})), 1_000, GroupRules()) == 10
    )
    assert passes.floor(read(GroupCommits("s", {"u": [(0, 10, None)]})), 1_000, GroupRules()) == 10
    unread = CommitsUnknown("s", "u-0: no answer", frozenset({"u"}), GroupCommits("s", {}))
    assert passes.floor(read(unread), 1_000, GroupRules()) == 10


@pytest.mark.parametrize("partition", ["2147483648", "4294967295", "4294967296", "9999999999", "01", "-1"])
def test_zookeeper_node_with_an_invalid_partition_number_is_refused(partition: str) -> None:
    """F3, F7: taken for another partition it would lower what protects that one."""
    with pytest.raises(ValueError, match="is not a partition"):
        _position(partition, (b"5", None))
    assert _position("2147483647", (b"5", None)) == (2**31 - 1, 5)
