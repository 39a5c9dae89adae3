"""Random commits, topic ids and logs of a few partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from hypothesis import strategies as st

from retention_cli.core.model import TopicPartition
from retention_cli.memory.group import GroupMemory, digest_of
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Logs, Positions, Rows

TOPICS = ("a", "b", "c")
EPOCHS = st.sampled_from([None, 0, 1, 2])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), EPOCHS), max_size=3, unique_by=lambda row: row[0])
COMMITS = st.dictionaries(st.sampled_from(TOPICS), ROWS, max_size=3)
IDS = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(["x", "x", "x", "y"]), max_size=3)
LOG = st.builds(
    LogNow,
    high_watermark=st.integers(0, 5),
    leader_epoch=st.integers(0, 2),
    unknown_epochs=st.sampled_from([frozenset(), frozenset({1})]),
    unasked_epochs=st.sampled_from([frozenset(), frozenset(), frozenset({2})]),
    cut=st.sampled_from([None, None, 2]),
    last_epoch=st.sampled_from([None, 0]),
    ended=st.sampled_from([(), (), ((1, 2),), ((0, 1), (1, 3))]),
)
LOGS = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), LOG, max_size=9)
LogOf = Callable[[tuple[str, int]], LogNow | None]


def judge(group: GroupMemory, log_of: LogOf) -> bool:
    """Judge a group's open commits by a function that returns a partition's log."""
    return group.judge(logs_at(group.open, log_of))


def judge_ledger(ledger: Ledger, log_of: LogOf, topics: Collection[str], cuts: Collection[TopicPartition] = ()) -> None:
    places = {place for group in ledger.groups().values() for place in group.live}
    ledger.judge(lambda: logs_at(places | {*cuts}, log_of), topics, cuts)


def logs_at(places: Collection[tuple[str, int]], log_of: LogOf) -> Logs:
    return Logs((place, log) for place in places if (log := log_of(place)) is not None)


def saw(
    group: GroupMemory, rows: Rows, ids: Mapping[str, str], now_ms: int, log: LogNow | None = None, **named: Any
) -> GroupMemory:
    """Let a group's memory see commits, and judge them if there is a log: all partitions have this one."""
    group.update(Positions.of(rows), ids, digest_of(rows, ids), now_ms, **named)
    if log is not None:
        judge(group, lambda _place: log)
    return group
