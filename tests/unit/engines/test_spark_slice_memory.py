"""A group that a task has read is remembered, and recalled, as one that this process has read itself (F5, F6)."""

from __future__ import annotations

import tempfile
import zlib
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.consumers import key_of
from retention_cli.core.model import Sample, TopicPartition
from retention_cli.engines.spark.slice_memory import KnownGroup, ReadCommits, SliceMemory
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_columns import columns_of
from retention_cli.memory.interface import LogNow, RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition_rows import partition_of
from tests.unit.memory.test_seen_group import COMMITS, IDS, LOG, TOPICS

NAMES = ("g", "h", key_of("file", "flink"))
Rows = dict[str, list[tuple[int, int, int | None]]]
LOGS = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), LOG, max_size=9)
GROUPS = st.dictionaries(st.sampled_from(NAMES), COMMITS, min_size=1)
LOOKS = st.lists(st.tuples(st.none() | GROUPS, IDS, LOGS), min_size=2, max_size=5)
"""None: all groups stand where they stood."""


def judged(ledger: Ledger, logs: dict[tuple[str, int], LogNow], now_ms: int) -> dict[str, GroupMemory]:
    cuts = [TopicPartition(*place) for place, log in logs.items() if log.cut is not None]
    ledger.judge(logs.get, {topic for topic, _ in logs}, cuts)
    ledger.save(now_ms)
    return ledger.groups()


@settings(max_examples=30)
@given(looks=LOOKS)
def test_a_task_and_the_client_remember_what_one_process_does(
    looks: list[tuple[dict[str, Rows] | None, dict[str, str], dict[tuple[str, int], LogNow]]],
) -> None:
    groups: dict[str, Rows] = {}
    with tempfile.TemporaryDirectory() as folder:
        alone, client = (Ledger(Path(folder) / name) for name in ("alone", "client"))
        with alone, client:
            for number, (moved, ids, logs) in enumerate(looks):
                groups = groups if moved is None else moved
                now_ms, since_ms = 1_000 * (number + 1), 1_500
                for one in (alone, client):
                    one.begin(ids)
                known = {name: found for name in groups if (found := client.recalled_group(name)) is not None}
                task = SliceMemory(groups={name: KnownGroup(*one) for name, one in known.items()}, remembers=True)
                task.begin(ids)
                for name, commits in groups.items():
                    mine = alone.saw_group(name, commits, now_ms, since_ms)
                    assert task.saw_group(name, commits, now_ms, since_ms) == mine
                for name, value in task.seen.items():
                    if value is None:
                        client.saw_again(name, now_ms)
                    else:
                        read = ReadCommits.from_bytes(value)
                        if client.saw_columns(name, read.columns, read.digest, read.read_ms) is None:
                            client.saw_group(name, read.rows(), read.read_ms, since_ms, read.digest)
                assert task.seen.keys() == groups.keys()
                assert judged(client, logs, now_ms) == judged(alone, logs, now_ms)


def test_without_a_ledger_a_task_says_which_groups_it_has_read() -> None:
    task = SliceMemory()
    assert task.saw_group("g", {"a": [(0, 1, None)]}, 2, 1) == RecalledGroup()
    assert task.seen == {"g": None}


def as_bytes(commits: Rows, read_ms: int) -> bytes:
    """What a task tells of a group."""
    return ReadCommits(read_ms, b"d", columns_of(commits) or commits).as_bytes()


WHOLE = zlib.decompress(as_bytes({"a": [(0, 1, None), (3, 2**40, 7)], "b": []}, 17))
TWICE = zlib.decompress(as_bytes({"a": [(0, 1, None), (0, 2, 3)]}, 17))


@given(commits=COMMITS, read_ms=st.integers(0, 2**60))
def test_commits_arrive_as_they_were_read(commits: Rows, read_ms: int) -> None:
    found = ReadCommits.from_bytes(as_bytes(commits, read_ms))
    assert (found.read_ms, found.digest) == (read_ms, b"d")
    assert found.columns is not None
    assert found.rows() == {topic: sorted(rows, key=itemgetter(0)) for topic, rows in commits.items()}
    assert found.size == sum(map(len, commits.values()))


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param({"": [(0, 0, None), (2**31 - 1, 2**63 - 1, 2**31 - 1)], "ü\n": [(5, 1, 0)]}, id="large, odd"),
        pytest.param({"a": [(1, 5, None), (1, 6, 3)]}, id="a partition twice"),
        pytest.param({"a": [(0, 2**63, None)]}, id="too large for a column"),
        pytest.param({}, id="none"),
    ],
)
def test_odd_commits_arrive(commits: Rows) -> None:
    found = ReadCommits.from_bytes(as_bytes(commits, 1))
    assert found.rows() == commits
    assert found.size == sum(map(len, commits.values()))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no zlib",
        *map(
            zlib.compress,
            (
                WHOLE[:-1],
                WHOLE + b"\0",
                WHOLE[:3],
                WHOLE.replace(b'"a":2', b'"a":3'),
                WHOLE.replace(b'"a":2,"b":0', b'"a":"2","b":""'),
                WHOLE.replace(b'"a":2', b'"a":-'),
                WHOLE.replace(b'"a":2,"b":0', b'"b":0,"a":2'),  # not in order: it would be taken for another topic's
                WHOLE.replace(b'"a":2,"b":0', b'"a":3,"b":-'),
                WHOLE.replace(b'"a":2', b'"a":1').replace(b'"b":0', b'"b":2'),
                WHOLE.replace(b"[17", b'["7'),
                WHOLE.replace(b"[[17,", b"[[1.,"),
                WHOLE.replace(b'"64"', b'"xx"'),
                WHOLE.replace(b"null", b"[[]]"),
                WHOLE.replace(b"\3\0\0\0", b"\0\0\0\0", 1),  # a partition twice
                TWICE.replace(b"[0,1,null]", b'[0,"",null]'),
                TWICE.replace(b"[0,1,null]", b"[0,true,1]"),
                TWICE.replace(b"[0,1,null]", b"[1,null,1]"),
                TWICE.replace(b"[0,1,null]", b"[12345678]"),
                TWICE.replace(b'{"a":', b'["a",').replace(b"]},[", b"]],["),
            ),
        ),
    ],
)
def test_what_is_no_list_of_commits_is_refused(raw: bytes) -> None:
    """It comes from an executor, and goes into the ledger."""
    assert raw not in map(zlib.compress, (WHOLE, TWICE))
    with pytest.raises(ValueError, match="can't be read"):
        ReadCommits.from_bytes(raw)


def test_a_ledger_that_spares_memory_keeps_what_was_added_and_sees_every_topic(tmp_path: Path) -> None:
    ids = {"a": "id-a", "b": "id-b"}
    with Ledger(tmp_path / "one") as ledger:
        ledger.begin(ids)
        for number in range(3):
            one = ledger.partition("a", "id-a", number)
            one.continue_at(4, 0, 1)
            one.add_sample(Sample(1, 10 + number))
        ledger.save(5)
    with Ledger(tmp_path / "one") as ledger:
        with ledger.sparing():
            ledger.begin(ids)
            found = [
                (*row[:2], partition_of(row).high_watermark) for rows in ledger.stored_rows({"id-a"}) for row in rows
            ]
            assert sorted(found) == [("id-a", 0, 10), ("id-a", 1, 11), ("id-a", 2, 12)]
            assert list(ledger.stored_rows({"id-b"})) == [[]]
            ledger.saw_topics({topic_id: name for name, topic_id in ids.items()})
            ledger.partition("a", "id-a", 1).add_sample(Sample(9, 20))
            ledger.save(9)
        assert dict(ledger.topics().values()) == {"a": 9, "b": 9}
        ledger.begin(ids)
        there = [ledger.partition("a", "id-a", number).high_watermark for number in range(3)]
    assert there == [10, 20, 12]


def test_what_was_added_and_not_saved_is_still_there_when_memory_is_spared_no_more(tmp_path: Path) -> None:
    with Ledger(tmp_path / "one") as ledger:
        ledger.begin({"a": "id-a"})
        with ledger.sparing():
            ledger.partition("a", "id-a", 0).add_sample(Sample(9, 20))
        assert ledger.partition("a", "id-a", 0).high_watermark == 20
