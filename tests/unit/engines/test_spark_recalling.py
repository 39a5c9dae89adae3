"""What the ledger has of partitions, recalled in columns, is what it has of each (M2), and is added to as to each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.model import EventMax, Sample, TopicPartition
from retention_cli.decide.guards.limits import Amount
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.engines.spark.jobs import ClusterJob, Proofs
from retention_cli.engines.spark.places import Places
from retention_cli.engines.spark.prepare import Prepared, Target, open_memory
from retention_cli.engines.spark.recalling import created_now
from retention_cli.engines.spark.remember import remember
from retention_cli.engines.spark.schemas import CHUNK
from retention_cli.engines.spark.slice_memory import ReadCommits
from retention_cli.memory.documents import memory_as_bytes
from retention_cli.memory.group_columns import columns_of
from retention_cli.memory.group_rows import digest_of
from retention_cli.memory.interface import Rows
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.stores import Memories
from retention_cli.policy.settings import GroupRules, Settings

IDS = {"a": "id-a", "b": "id-b", "c": "id-c"}
COUNTS = {"a": 3, "b": 2, "c": 4}
NOTHING: Any = None


def prepared_for(state_dir: Path, *, configs: Mapping[str, Any] | None = None, whole: str = "") -> Prepared:
    """A cluster of three topics as the client has read it; the records of topic ``whole`` are needed by a rule."""
    names = sorted(COUNTS)
    first = np.cumsum([0, *(COUNTS[name] for name in names)]).tolist()
    numbers = np.concatenate([np.arange(COUNTS[name], dtype=np.int32) for name in names])
    zeros = np.zeros(len(numbers), np.int32)
    places = Places("c1", names, [IDS[name] for name in names], [False] * 3, first, numbers, zeros, zeros)
    rules = {name: Settings(min_wallclock_ms=1 if name == whole else None) for name in names}
    job = ClusterJob(1.0, GroupRules(), 1, places, rules, COUNTS, IDS, configs or {})
    target = Target("", NOTHING, NOTHING, ConnectionRef, lambda _: Amount(), Memories(state_dir))
    selection: Any = type("Selection", (), {"policy": type("Policy", (), {"disks": NOTHING})})
    return Prepared(target, selection, NOTHING, job)


def read_at_1_000(commits: Rows) -> bytes:
    """What a task tells of a group that it has read."""
    return ReadCommits(1_000, digest_of(commits, IDS), columns_of(commits) or commits).as_bytes()


KIND = st.sampled_from([None, "CreateTime", "LogAppendTime"])
KNOWN = st.builds(
    PartitionMemory,
    packed=st.sampled_from([b"", bytes(15) + b"\1", bytes(8) + b"\5" + bytes(7)]),
    newest=st.sampled_from([None, None, None, EventMax(5, 3), EventMax(5, 900)]),
    data_at=st.sampled_from([(), (), (4,)]),
    leader_epoch=st.sampled_from([None, 0, 3, 3]),
    last_epoch=st.sampled_from([None, 3, 2]),
    log_start=st.integers(0, 2),
    created=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(
    known=st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), KNOWN, max_size=9),
    kinds=st.lists(KIND, min_size=3, max_size=3),
    whole=st.sampled_from(["", "b"]),
)
def test_columns_have_what_each_row_has(
    known: dict[tuple[str, int], PartitionMemory],
    kinds: list[Any],
    whole: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also of partitions that are no more, and of topics whose whole records are needed."""
    state_dir = tmp_path_factory.mktemp("state")
    with closing(Memories(state_dir)) as memories:
        ledger = memories.ledger("c1")
        ledger.begin(IDS)
        for (topic, number), one in known.items():
            mine = ledger.partition(topic, IDS[topic], number)
            mine.become(one)
            mine.changed = True
        ledger.save(1_000)
    configs = {name: TopicConfig(frozenset(), 0, timestamp_type=kind) for name, kind in zip("abc", kinds, strict=True)}
    cluster = prepared_for(state_dir, configs=configs, whole=whole)
    places = cluster.job.places
    expected, memories_by = Proofs.of(len(places)), {}
    for (topic, number), memory in known.items():
        position = places.position(topic, number)
        if position is None:
            continue
        if topic == whole:
            memories_by[position] = memory_as_bytes(memory)
        else:
            expected.add(position, memory, created=created_now(cluster.job, topic))
    assert cluster.target.memories is not None
    with closing(cluster.target.memories):
        open_memory(cluster)
    assert cluster.recalled.memories == memories_by
    assert cluster.recalled.proofs is not None
    for found, wanted in zip(cluster.recalled.proofs[:-1], expected[:-1], strict=True):
        assert found.dtype == wanted.dtype
        assert found.tolist() == wanted.tolist()
    assert cluster.recalled.proofs.earlier == expected.earlier


def chunk(rows: list[tuple[str, int, int | None, int, int, str | None, bool, Any]]) -> Any:
    """Rows as tasks write them: topic, partition, S, H, leader epoch, topic id, doubt, ends of epochs."""
    names = sorted(COUNTS)
    at = {
        (name, n): sum(COUNTS[one] for one in names[: names.index(name)]) + n
        for name in names
        for n in range(COUNTS[name])
    }
    return pa.Table.from_pylist(
        [
            {
                "at": at[topic, number],
                "topic": topic,
                "topic_id": topic_id,
                "partition": number,
                "log_start": start,
                "high_watermark": end,
                "leader_epoch": epoch,
                "read_ms": 1_000,
                "doubt": doubt,
                "ends": ends,
            }
            for topic, number, start, end, epoch, topic_id, doubt, ends in rows
        ],
        schema=CHUNK,
    )


ROW = st.tuples(
    st.sampled_from([0, 0, 0, 1, None]),
    st.sampled_from([5, 6, 7, 9]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([True, True, True, True, False]),
    st.sampled_from([False] * 9 + [True]),
    st.sampled_from([None, None, None, [{"leader_epoch": 0, "end": 6, "text": None}]]),
)
PASS = st.tuples(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), ROW, min_size=1, max_size=6),
    st.lists(KIND, min_size=3, max_size=3),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(passes=st.lists(PASS, min_size=1, max_size=4))
def test_looks_at_once_come_to_what_looks_one_by_one_come_to(
    passes: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Elections, logs that were cut, doubts, topics without an id, and runs that write meanwhile: the file is the same."""
    found = []
    for plainly in (True, False):
        state_dir = tmp_path_factory.mktemp("state")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("retention_cli.core.clock.SystemClock.wall_ms", lambda _self: 2_000)
            patch.setattr("retention_cli.engines.spark.remember._JUDGED_COMMITS", 0 if plainly else 10**6)
            if not plainly:
                patch.setattr(
                    Ledger, "saw_logs", lambda _self, _topic, _id, looks, *_ms, **_created: [None] * len(looks)
                )
            for one in passes:
                run(state_dir, *one)
        with closing(Memories(state_dir)) as memories:
            ledger = memories.ledger("c1")
            rows = [(*row[:2], *row[3:]) for some in ledger.stored_rows({*IDS.values()}) for row in some]
            groups = {name: (group.counted, group.open, group.refused) for name, group in ledger.groups().items()}
            found.append((sorted(rows), groups))
    assert found[0] == found[1]


def run(state_dir: Path, rows: dict[Any, Any], kinds: list[Any], meanwhile: bool) -> None:
    configs = {name: TopicConfig(frozenset(), 0, timestamp_type=kind) for name, kind in zip("abc", kinds, strict=True)}
    one = prepared_for(state_dir, configs=configs)
    assert one.target.memories is not None
    with closing(one.target.memories):
        open_memory(one)
        if meanwhile:
            with closing(Memories(state_dir)) as memories:
                other = memories.ledger("c1")
                other.begin(IDS)
                theirs = other.partition("a", IDS["a"], 0)
                theirs.continue_at(0, 0, 1_500, last_epoch=0)
                theirs.add_sample(Sample(1_500, 8))
                other.save(1_500)
        table = chunk(
            [
                (topic, number, start, end, epoch, IDS[topic] if identified else None, doubt, ends)
                for (topic, number), (start, end, epoch, identified, doubt, ends) in sorted(rows.items())
            ]
        )
        commits: Rows = {topic: [(n, 6, None) for n in range(2)] for topic in IDS}
        remember(one, [table.slice(0, 2), table.slice(2)], [(name, read_at_1_000(commits)) for name in "gh"], dict)


def test_a_cut_that_the_client_itself_came_upon_refuses_commits_beyond_it(tmp_path: Path) -> None:
    """F5: it is found while the client looks at disks, and the log that tasks read later is the one after it."""
    one = prepared_for(tmp_path)
    assert one.target.memories is not None
    with closing(one.target.memories):
        open_memory(one)
        one.cuts = {TopicPartition("a", 0): Cut(3)}
        table = chunk([("a", 0, 0, 9, 0, IDS["a"], False, None)])
        remember(one, [table], [("g", read_at_1_000({"a": [(0, 6, None)]}))], dict)
        assert isinstance(one.memory, Ledger)
        assert list(one.memory.group("g").refused) == [("a", 0)]
