"""Groups that are kept as rows until they are judged come to the same as those that are kept commit by commit."""

from __future__ import annotations

import json
import zlib
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import TopicPartition
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_rows import packed_of
from retention_cli.memory.interface import NO_LOG, LogNow, Rows
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.seen_group import Logs, SeenGroup, expanded, judged, recalled, recalled_of, seen, stored

TOPICS = ("a", "b", "c")
Place = tuple[str, int]

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
)
LOGS = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), LOG, max_size=9)
LOOKS = st.lists(st.tuples(COMMITS, IDS, LOGS, st.booleans()), min_size=1, max_size=5)


@settings(max_examples=400)
@given(looks=LOOKS)
def test_rows_come_to_what_commits_one_by_one_come_to(
    looks: list[tuple[dict[str, list[tuple[int, int, int | None]]], dict[str, str], dict[Place, LogNow], bool]],
) -> None:
    """Whatever a group commits, whatever became of its logs and topics: the memory is the same after each look."""
    known: GroupMemory | None = None
    commits: dict[str, list[tuple[int, int, int | None]]] = {}
    for number, (anew, ids, logs, same_places) in enumerate(looks):
        if same_places:  # what a live group does: it moves
            commits = {topic: [(p, offset + 1, epoch) for p, offset, epoch in rows] for topic, rows in commits.items()}
        else:
            commits = anew
        slow = GroupMemory() if known is None else known.copied()
        packed = packed_of(commits, ids)
        raw = None if known is None else known.as_bytes()
        before = None if raw is None else stored(raw)
        rows: SeenGroup | None = None
        if raw is None or before is not None:
            rows = seen(before, 0 if known is None else known.seen_ms, commits, ids, packed, 1_000 * number)
        now = 1_000 * number
        digest = b"" if rows is None else rows.digest
        slow.update(commits, ids, digest, now)
        if rows is not None:
            assert expanded(rows) == slow
            if before is not None:
                assert slow.recalled(ids, 0) == recalled(before) == recalled_of(known.as_bytes() if known else b"")
        slow.judge(logs.get)
        if rows is not None:
            fast = judged(rows, Logs(logs.get))
            assert GroupMemory.from_bytes(fast.document) == slow
            assert judged(rows, Logs(logs.get, partial(plain_logs, logs))) == fast
            assert (fast.seen_ms, fast.digest) == (slow.seen_ms, slow.digest)
            assert (fast.plain, fast.open) == (slow.plain, slow.open_topics)
        known = slow


def plain_logs(logs: dict[Place, LogNow], topic: str) -> tuple[list[int], list[int]]:
    """The plain ones of two partitions, in columns."""
    ends, proves = [], []
    for log in (logs.get((topic, number)) for number in range(2)):
        plain = log is not None and log == LogNow(log.high_watermark, log.leader_epoch, last_epoch=log.last_epoch)
        ends.append(log.high_watermark if log is not None and plain else NO_LOG)
        proves.append(0 if log is None else log.proves)
    return ends, proves


def test_a_commit_that_is_back_where_it_counted_is_judged_anew() -> None:
    """It was elsewhere at the last look, whose log could not be read: what proves it is the log of now."""
    group = GroupMemory()
    for offset, log in ((5, LogNow(100, 1)), (6, None)):
        group.update({"a": [(0, offset, None)]}, NOW, b"", 1_000)
        group.judge(lambda _place, log=log: log)  # type: ignore[misc]
    back: Rows = {"a": [(0, 5, None)]}
    rows = seen(stored(group.as_bytes()), group.seen_ms, back, NOW, packed_of(back, NOW), 3_000)
    assert rows is not None
    again = GroupMemory.from_bytes(judged(rows, Logs(lambda _place: LogNow(100, 3))).document)
    assert again.counted["a", 0].proven == 3


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param([(5, 100), (6, None)], 5, id="back where it counted, and waited since"),
        pytest.param([(101, 100)], 101, id="refused, and the log has grown"),
        pytest.param([(5, 100)], 5, id="where it was"),
        pytest.param([(5, 100)], 6, id="moved"),
        pytest.param([], 5, id="new"),
    ],
)
@pytest.mark.parametrize("epoch", [None, 1, 2])
def test_plain_logs_at_once_come_to_what_each_log_comes_to(
    before: list[tuple[int, int | None]], now: int, epoch: int | None
) -> None:
    """Whatever is known of the group: what waits is judged anew, what was refused stays so, what stands keeps its epoch."""
    group = GroupMemory()
    for offset, end in before:
        group.update({"a": [(0, offset, 1), (1, 1, 1)]}, NOW, b"", 1_000)
        group.judge(lambda _place, end=end: None if end is None else LogNow(end, 1))  # type: ignore[misc]
    commits: Rows = {"a": [(0, now, epoch), (1, 1, 1)]}
    raw = stored(group.as_bytes()) if before else None
    rows = seen(raw, group.seen_ms, commits, NOW, packed_of(commits, NOW), 3_000)
    if rows is None:  # a refused commit has moved
        assert now == 101
        return
    one_by_one = judged(rows, Logs(lambda _place: LogNow(102, 3)))
    assert judged(rows, Logs(lambda _place: LogNow(102, 3), lambda _topic: ([102, 102], [3, 3]))) == one_by_one


LIVE: Rows = {"a": [(0, 5, 1), (1, 6, None)], "b": [(0, 7, 1)]}
NOW = {"a": "x", "b": "y"}


def unless_c(log: LogNow, place: Place) -> LogNow | None:
    return log if place[0] != "c" else None


def log_of(place: Place) -> LogNow | None:
    """All logs end at 100."""
    return LogNow(100, 1)


def seen_once() -> GroupMemory:
    """A group that committed beyond the end of one log, and whose other commits counted."""
    group = GroupMemory()
    group.update({**LIVE, "c": [(0, 101, 1)]}, NOW, b"d", 1_000)
    group.judge(log_of)
    return group


def test_a_new_group_that_names_a_partition_twice_is_left_to_the_memory_of_commits() -> None:
    twice: Rows = {"a": [(0, 6, 1), (0, 7, 1)]}
    assert seen(None, 0, twice, NOW, packed_of(twice, NOW), 2_000) is None


def test_a_group_that_moved_is_kept_as_rows() -> None:
    """The ordinary case is not left to the slow way: the first look, and one at which every commit has moved."""
    assert seen(None, 0, LIVE, NOW, packed_of(LIVE, NOW), 1_000) is not None
    moved: Rows = {"a": [(0, 6, 1), (1, 7, None), (2, 1, 1)], "b": [(0, 8, 1)], "c": [(0, 101, 1)]}
    rows = seen(stored(seen_once().as_bytes()), 1_000, moved, NOW, packed_of(moved, NOW), 2_000)
    assert rows is not None
    assert rows.stood_ms == 2_000


@pytest.mark.parametrize(
    ("commits", "ids"),
    [
        pytest.param({"a": [(0, 6, 1)], "b": [(0, 7, 1)], "c": [(0, 101, 1)]}, NOW, id="a commit is gone"),
        pytest.param({"a": LIVE["a"], "c": [(0, 101, 1)]}, NOW, id="a topic's commits are gone"),
        pytest.param({**LIVE, "c": [(0, 102, 1)]}, NOW, id="a refused commit has moved"),
        pytest.param({**LIVE, "c": []}, NOW, id="a refused commit is gone"),
        pytest.param({**LIVE, "c": [(0, 101, 1)]}, NOW | {"a": "z"}, id="a topic was recreated"),
        pytest.param({**LIVE, "c": [(0, 101, 1), (0, 101, 1)]}, NOW, id="a partition is named twice"),
    ],
)
def test_what_is_odd_is_left_to_the_memory_of_commits(
    commits: dict[str, list[tuple[int, int, int | None]]], ids: dict[str, str]
) -> None:
    """Whatever could be gone or refused is no case for rows."""
    assert seen(stored(seen_once().as_bytes()), 1_000, commits, ids, packed_of(commits, ids), 2_000) is None


@pytest.mark.parametrize(
    "rows", [[[0, "5", 1, 1]], [[0, 5, 1]], [[0, True, 1, 1]], [[None, 5, 1, 1]], [[0, 5, 1.0, 1]]]
)
def test_a_document_with_something_else_than_numbers_is_left_to_who_refuses_it(rows: list[list[object]]) -> None:
    """A memory that can't be read is unknown, not new: the ordinary way raises."""
    data = seen_once().as_data()
    data["counted"] = {"a": rows}
    raw = zlib.compress(json.dumps(data).encode())
    assert stored(raw) is None
    if len(rows[0]) == 4:
        with pytest.raises(ValueError, match="can't be read"):
            GroupMemory.from_bytes(raw)


def test_a_refused_commit_that_is_no_number_is_left_to_who_refuses_it() -> None:
    """What is recalled is looked at as closely."""
    data = seen_once().as_data()
    data["refused"] = {"c": [[0, "101", 1]]}
    assert recalled_of(zlib.compress(json.dumps(data).encode())) is None


@pytest.mark.parametrize("seed", range(60))
def test_a_ledger_with_rows_is_the_ledger_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The same looks, some interrupted before they are judged, some with a cut, from one process or from two."""
    found = []
    for rows in (True, False):
        random = Random(seed)
        folder = tmp_path / str(rows)
        if not rows:
            monkeypatch.setattr(Ledger, "_seen_as_rows", lambda *_: None)
        ledgers = [Ledger(folder / "cluster"), Ledger(folder / "cluster")]
        told: list[object] = []
        for look in range(12):
            ledger = random.choice(ledgers)
            ids = {topic: "y" if random.random() < 0.02 else "x" for topic in TOPICS}
            ledger.begin(ids)
            for name in random.sample(["g", "h", "i"], 2):
                commits = {
                    topic: [
                        (p, random.choices([look, 7, 50], [60, 40, 2])[0], random.choice([None, None, 1]))
                        for p in range(3)
                    ]
                    for topic in TOPICS
                    if random.random() < 0.98
                }
                known = ledger.saw_group(name, commits, 100_000 * look, 0)
                told.append((known.gone, dict(known.refused)))
                if random.random() < 0.1:
                    told.append(ledger.unmoved_since(name, commits))
            if random.random() < 0.8:
                cuts = [TopicPartition("a", 0)] if random.random() < 0.3 else []
                log = LogNow(20, 1, cut=5 if cuts else None)
                ledger.judge({(topic, p): log for topic in "ab" for p in range(3)}.get, TOPICS, cuts)
            if random.random() < 0.5:
                told.append(sorted(ledger.save(100_000 * look)))
        for ledger in ledgers:
            ledger.save(2_000_000)
            ledger.close()
        with Ledger(folder / "cluster") as again:
            found.append((told, again.groups(), {name: again.unmoved_since(name, None) for name in "ghi"}))
    assert found[0] == found[1]
