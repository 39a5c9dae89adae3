"""Groups that are kept as columns until they are judged come to the same as those that are kept commit by commit."""

from __future__ import annotations

import json
import zlib
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.consumers import key_of
from retention_cli.core.model import TopicPartition
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_columns import Document, columns_of
from retention_cli.memory.group_rows import digest_of
from retention_cli.memory.interface import NO_LOG, LogNow, Rows
from retention_cli.memory.judged_group import Logs, judged
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.seen_group import SeenGroup, expanded, recalled, seen, stored
from tests.support.group_commits import COMMITS, IDS, LOG, TOPICS

OUTSIDE = key_of("file", "flink")
Place = tuple[str, int]

LOGS = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), LOG, max_size=9)
HOWS = st.sampled_from(["anew", "all move", "some move", "an epoch changes", "nothing moves"])
LOOKS = st.lists(st.tuples(COMMITS, IDS, LOGS, HOWS), min_size=1, max_size=5)


def seen_now(
    before: Document | None, seen_ms: int, commits: Rows, ids: dict[str, str], now_ms: int
) -> SeenGroup | None:
    """A look of these rows."""
    known = None if before is None else before._replace(seen_ms=seen_ms)
    return seen(known, columns_of(commits), ids, digest_of(commits, ids), now_ms)


def moved_on(commits: Rows, how: str) -> Rows:
    """What a live group does."""
    found: Rows = {}
    for topic, rows in commits.items():
        for partition, offset, epoch in rows:
            moves = how == "all move" or (how == "some move" and partition != 1)
            own = 1 if how == "an epoch changes" and partition == 0 else epoch
            found.setdefault(topic, []).append((partition, offset + moves, own))
    return found


@settings(max_examples=600)
@given(looks=LOOKS)
def test_columns_come_to_what_commits_one_by_one_come_to(
    looks: list[tuple[Rows, dict[str, str], dict[Place, LogNow], str]],
) -> None:
    """Whatever a group commits, whatever became of its logs and topics: the memory is the same after each look."""
    known: GroupMemory | None = None
    raw: bytes | None = None
    commits: Rows = {}
    for number, (anew, ids, logs, how) in enumerate(looks):
        commits = anew if how == "anew" else moved_on(commits, how)
        slow = GroupMemory() if known is None else known.copied()
        before = None if raw is None else stored(raw)
        rows: SeenGroup | None = None
        if raw is None or before is not None:
            rows = seen_now(before, 0 if known is None else known.seen_ms, commits, ids, 1_000 * number)
        now = 1_000 * number
        digest = b"" if rows is None else rows.digest
        slow.update(commits, ids, digest, now)
        if rows is not None:
            assert expanded(rows) == slow
            if before is not None:
                assert slow.recalled(ids, 0) == recalled(before)
            if known is not None:  # its document may be one of columns by now: JSON comes to the same
                from_json = seen_now(stored(known.as_bytes()), known.seen_ms, commits, ids, now)
                assert from_json is not None
                assert expanded(from_json) == slow
        slow.judge(logs.get)
        if rows is not None:
            fast = judged(rows, Logs(logs.get))
            assert GroupMemory.from_bytes(fast.document) == slow
            assert judged(rows, Logs(logs.get, partial(plain_logs, logs))) == fast
            assert (fast.seen_ms, fast.digest) == (slow.seen_ms, slow.digest)
            assert (fast.plain, fast.open) == (slow.plain, slow.open_topics)
        known, raw = slow, slow.as_bytes() if rows is None else fast.document


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
    rows = seen_now(stored(group.as_bytes()), group.seen_ms, back, NOW, 3_000)
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
@pytest.mark.parametrize("more", [[], [(2, 200, 1)]], ids=["", "beside one that is refused"])
def test_commits_at_once_come_to_what_each_comes_to(
    before: list[tuple[int, int | None]], now: int, epoch: int | None, more: list[tuple[int, int, int | None]]
) -> None:
    """Whatever is known of the group: what waits is judged anew, what was refused stays so, what stands keeps its epoch."""
    group = GroupMemory()
    for offset, end in before:
        group.update({"a": [(0, offset, 1), (1, 1, 1), *more]}, NOW, b"", 1_000)
        group.judge(lambda _place, end=end: None if end is None else LogNow(end, 1))  # type: ignore[misc]
    commits: Rows = {"a": [(0, now, epoch), (1, 1, 1), *more]}
    raw = stored(group.as_bytes()) if before else None
    rows = seen_now(raw, group.seen_ms, commits, NOW, 3_000)
    if rows is None:  # a refused commit has moved
        assert now == 101
        assert epoch != 1
        return
    one_by_one = judged(rows, Logs(lambda _place: LogNow(202, 3)))
    plain = Logs(lambda _place: LogNow(202, 3), lambda _topic: ([202] * 3, [3] * 3))
    assert judged(rows, plain) == one_by_one
    group.update(commits, NOW, rows.digest, 3_000)
    group.judge(lambda _place: LogNow(202, 3))
    assert GroupMemory.from_bytes(one_by_one.document) == group


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
    assert seen_now(None, 0, twice, NOW, 2_000) is None


def test_a_group_that_moved_is_kept_as_columns() -> None:
    """The ordinary case is not left to the slow way: the first look, and one at which every commit has moved."""
    assert seen_now(None, 0, LIVE, NOW, 1_000) is not None
    moved: Rows = {"a": [(0, 6, 1), (1, 7, None), (2, 1, 1)], "b": [(0, 8, 1)], "c": [(0, 101, 1)]}
    rows = seen_now(stored(seen_once().as_bytes()), 1_000, moved, NOW, 2_000)
    assert rows is not None
    assert rows.stood_ms == 2_000


@pytest.mark.parametrize(
    ("commits", "ids"),
    [
        pytest.param({"a": [(0, 6, 1)], "b": [(0, 7, 1)], "c": [(0, 101, 1)]}, NOW, id="a commit is gone"),
        pytest.param({**LIVE, "a": [(0, 6, 1), (2, 6, 1)], "c": [(0, 101, 1)]}, NOW, id="one is gone, another there"),
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
    """Whatever could be gone or refused is no case for columns."""
    assert seen_now(stored(seen_once().as_bytes()), 1_000, commits, ids, 2_000) is None


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


@pytest.mark.parametrize("ids", [[], None, 7])
def test_a_document_without_topic_ids_is_damaged(ids: object) -> None:
    raw = zlib.compress(json.dumps({**seen_once().as_data(), "ids": ids}).encode())
    for read in (stored,):
        with pytest.raises(ValueError, match="can't be read"):
            read(raw)


def test_a_topic_without_commits_is_in_no_document() -> None:
    """Whichever way a group is judged, its document is the same."""
    rows = seen_now(None, 0, {"a": [], "c": [(0, 0, None)]}, {}, 1_000)
    assert rows is not None
    one_by_one = judged(rows, Logs(lambda _place: LogNow(0, 0), lambda _topic: ([NO_LOG], [0])))
    assert judged(rows, Logs(lambda _place: LogNow(0, 0))) == one_by_one


def test_a_refused_commit_that_is_no_number_is_left_to_who_refuses_it() -> None:
    """What is recalled is looked at as closely."""
    data = seen_once().as_data()
    data["refused"] = {"c": [[0, "101", 1]]}
    assert stored(zlib.compress(json.dumps(data).encode())) is None


@pytest.mark.parametrize("seed", range(60))
def test_a_ledger_with_columns_is_the_ledger_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same looks, some interrupted before they are judged, some with a cut, from one process or from two."""
    found = []
    for rows in (True, False):
        random = Random(seed)
        folder = tmp_path / str(rows)
        if not rows:
            monkeypatch.setattr(Ledger, "saw_columns", lambda *_: None)
        ledgers = [Ledger(folder / "cluster"), Ledger(folder / "cluster")]
        told: list[object] = []
        for look in range(12):
            ledger = random.choice(ledgers)
            ids = {topic: "y" if random.random() < 0.02 else "x" for topic in TOPICS}
            ledger.begin(ids)
            for name in random.sample(["g", "h", "i", OUTSIDE], 2):
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
            found.append(
                (told, again.groups(), {name: again.unmoved_since(name, None) for name in ("g", "h", "i", OUTSIDE)})
            )
    assert found[0] == found[1]
