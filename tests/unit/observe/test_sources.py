"""Consumers outside Kafka's groups: their positions, and the floors that these set as groups do (F3, F7)."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, strategies as st

from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.core.consumers import key_of
from retention_cli.core.model import Floor, TopicPartition, Unknown
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Rows
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.outside import fold_outside, read_sources
from retention_cli.observe.floors.sources import checkpoint
from retention_cli.observe.floors.sources.interface import Consumer, SourceError
from retention_cli.observe.floors.sources.proof import Print, Proof, Run, Sync, out_of_range, proven_to
from retention_cli.observe.floors.sources.replica import Committed, parse_committed, parse_sync, position_of
from retention_cli.observe.floors.sources.stored import MAX_BYTES, check_age, read_positions
from retention_cli.observe.recall import Recall
from retention_cli.policy.settings import FloorSource, GroupRules
from tests.support.checkpoints import DONE, HEAD, NOW, reach_at, written
from tests.support.http_server import Answer, LocalServer
from tests.support.ledgers import judge_ledger
from tests.support.says import refusal


def positions(source: FloorSource) -> dict[str, list[tuple[int, int]]]:
    [one] = checkpoint.read(source, reach_at(NOW)).values()
    assert one.reads is not None
    return {topic: list(rows) for topic, rows in one.positions.items()} | {topic: [] for topic in one.reads}


FRESH: dict[str, str | None] = {"commits_0": None, "commits_1": None}
"""Before the first batch is done."""
BEGINS = '\0v1\n{"orders":{"0":2,"1":5}}'
LATE = HEAD + '{"orders":{"0":99,"1":99}}\n{"payments":{"0":99},"orders":{"0":99}}\n-'
NEW = HEAD + '{"orders":{"0":99,"1":99},"new":{"0":50}}\n{"payments":{"0":99}}\n-'
ONE_FILE: dict[str, str | None] = {"offsets_2": None}


@pytest.mark.parametrize(
    ("changes", "stands", "reads", "unread"),
    [
        pytest.param(
            {}, {"orders": [(0, 10), (1, 3)], "payments": [(0, 9)]}, set(), set(), id="the last committed batch"
        ),
        pytest.param(
            FRESH | {"offsets_1": None, "offsets_2": None},
            {"orders": [(0, 2), (1, 0)], "payments": [(0, 1)]},
            set(),
            set(),
            id="no batch: the start",
        ),
        pytest.param(
            {"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n-\n-'},
            *({"orders": [(0, 10), (1, 3)], "payments": [(0, 1)]}, set(), set()),
            id="a source without offsets in the batch stands at its start",
        ),
        pytest.param(
            ONE_FILE
            | {"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n{"orders":{"0":4,"1":7}}\n-', "sources_1_0": BEGINS},
            *({"orders": [(0, 4), (1, 3)]}, set(), set()),
            id="the lower of two sources of one topic counts",
        ),
        pytest.param(
            ONE_FILE | {"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n-\n-', "sources_1_0": BEGINS},
            *({"orders": [(0, 2), (1, 3)]}, set(), set()),
            id="also where one of them has no offsets yet",
        ),
        pytest.param(
            ONE_FILE | {"offsets_1": HEAD + '{"orders":{"0":10}}\n{"orders":{"0":4,"1":7}}\n-'},
            *({"orders": [(0, 4)]}, {"orders"}, {("orders", 1)}),
            id="a partition that only one source knows: the other begins it at its start",
        ),
        pytest.param(
            *({"offsets_2": LATE}, {"orders": [(1, 3)], "payments": [(0, 9)]}, {"orders"}, {("orders", 0)}),
            id="one that another source first reads in the batch under way",
        ),
        pytest.param(
            *({**FRESH, "offsets_2": LATE}, {"orders": [(1, 0)], "payments": [(0, 1)]}, {"orders"}, {("orders", 0)}),
            id="so too before the first batch is done",
        ),
        pytest.param(
            *({"offsets_2": NEW}, {"orders": [(0, 10), (1, 3)], "payments": [(0, 9)]}, {"new"}, {("new", 0)}),
            id="a topic of only the uncommitted batch is unknown",
        ),
        pytest.param(
            *({**FRESH, "offsets_2": NEW}, {"orders": [(0, 2), (1, 0)], "payments": [(0, 1)]}, {"new"}, {("new", 0)}),
            id="which matches the query's pattern since then",
        ),
        pytest.param(
            *({**FRESH, "sources_0_0": None}, {"payments": [(0, 1)]}, {"orders"}, {("orders", 0), ("orders", 1)}),
            id="start offsets that are lost are unknown",
        ),
    ],
)
def test_query_stands_where_its_last_committed_batch_ended_or_it_is_unknown(
    tmp_path: Path,
    changes: dict[str, str | None],
    stands: dict[str, list[tuple[int, int]]],
    reads: set[str],
    unread: set[tuple[str, int]],
) -> None:
    """F7: where nobody can tell a partition's position, it is not one of another source."""
    [one] = checkpoint.read(written(tmp_path, **changes), reach_at(NOW)).values()
    assert one == Consumer(stands, frozenset(reads), unread=frozenset(unread))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offsets_1": None}, "offsets/1 does not exist: is this the checkpoint of a query that has run?"),
        ({"offsets_1": "v2" + HEAD[2:] + '{"orders":{"0":1}}'}, "offsets/1: its format is 'v2', and kretain knows v1"),
        ({"offsets_1": ""}, "offsets/1: it is empty"),
        ({"offsets_1": "v1\n"}, "offsets/1 is damaged: cut short"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n{"paym'}, "offsets/1 is cut short: it has 2 of its sources"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n{"paym\n-'}, "offsets/1, line 4: it is not JSON, or was cut"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}'}, "offsets/1 is cut short: it has 1 of its sources"),
        ({"offsets_1": HEAD.strip()}, "offsets/1 is cut short: it has 0 of its sources"),
        (
            {"offsets_1": HEAD + '{"orders":{"0":-1}}\n-\n-'},
            "offsets/1, line 3: partition 0 of orders has no off",
        ),
        (
            {"offsets_1": HEAD + '{"orders":{"0":1.5}}\n-\n-'},
            "offsets/1, line 3: partition 0 of orders has no off",
        ),
        ({"offsets_1": HEAD + '{"orders":{"0":1,"x":1}}\n-\n-'}, "offsets/1, line 3: orders has a partition 'x'"),
        ({"offsets_1": HEAD + '{"orders":{"0":1,"0":2}}\n-\n-'}, "offsets/1, it has a key twice"),
        (
            {"offsets_1": HEAD + '{"orders":{"0":1},"x":1}\n-\n-'},
            "offsets/1, line 3: x is not a topic with its offsets",
        ),
        ({"offsets_1": HEAD + '{"\\ud800":{"0":1}}\n-\n-'}, "is not a topic with its offsets"),
        ({"offsets_1": HEAD + "-\n" * 10_001}, "offsets/1 has too many sources"),
        ({"commits_1": ""}, "commits/1: it is empty"),
        ({"commits_1": 'v1\n{"nextBatch'}, "line 1: it is not JSON, or was cut short"),
        ({"commits_1": "v9\n{}"}, "commits/1: its format is 'v9', and kretain knows v1 and v2"),
        ({"commits_9.compact": DONE}, "commits/9.compact is not of a checkpoint that kretain knows"),
        ({"commits_0": None, "commits_1": None, "sources_0_0": "\0v7\n{}"}, "sources/0/0: its format is 'v7'"),
        (
            {"commits_0": None, "commits_1": None, "offsets_0": None, "offsets_1": None, "offsets_2": None},
            "offsets/0 does not exist",
        ),
        (
            {"offsets_1": HEAD + "-\n-\n-", "offsets_2": None, "sources_0_0": None, "sources_1_0": None},
            "no source of this query reads Kafka, or none has begun yet",
        ),
    ],
)
def test_malformed_checkpoint_is_a_source_error(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    assert said in refusal(SourceError, positions, written(tmp_path, **changes))


@pytest.mark.parametrize(("name", "said"), [("none", "offsets/0 does not exist"), ("file", "file")])
def test_missing_checkpoint_folder_is_an_error(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    assert said in refusal(SourceError, positions, FloorSource("checkpoint", "enrich", place=str(tmp_path / name)))


def test_named_pipe_in_a_checkpoint_is_not_awaited(tmp_path: Path) -> None:
    source = written(tmp_path, commits_1=None)
    os.mkfifo(tmp_path / "commits/1")
    assert "commits/1 does not exist" in refusal(SourceError, positions, source)


def test_checkpoint_age_counts_if_the_policy_limits_it(tmp_path: Path) -> None:
    """A query at rest commits nothing, so it is asked for, not the default."""
    source = written(tmp_path)
    for name in ("offsets/1", "commits/1"):
        os.utime(tmp_path / name, ((NOW - 7_200_000) / 1000,) * 2)
    assert positions(source)
    assert "its positions are 2h old (max.age: 1h)" in refusal(
        SourceError, positions, replace(source, max_age_ms=3_600_000)
    )


def test_commit_older_than_its_batch_is_from_before_a_reset(tmp_path: Path) -> None:
    source = written(tmp_path)
    os.utime(tmp_path / "offsets/1", ((NOW + 1_000) / 1000,) * 2)
    assert "offsets/1 was written after commits/1" in refusal(SourceError, positions, source)


AT = 1_800_000_000_000
ROW = {"topic": "orders", "partition": 0, "offset": 7}


def as_json(*rows: object, at: object = AT) -> bytes:
    return json.dumps({"at": at, "positions": list(rows)}).encode()


@pytest.mark.parametrize(
    ("content", "at_ms", "found"),
    [
        pytest.param(
            as_json(ROW, {**ROW, "partition": 2, "offset": 9}, {"topic": "payments", "partition": 0, "offset": 0}),
            *(AT, {"orders": [(0, 7), (2, 9)], "payments": [(0, 0)]}),
            id="JSON",
        ),
        pytest.param(
            as_json(ROW, at="2027-01-15T09:00:00+01:00"), AT, {"orders": [(0, 7)]}, id="JSON with a time in ISO 8601"
        ),
        pytest.param(b'"orders",0,7\norders,2,9\r\n\n', None, {"orders": [(0, 7), (2, 9)]}, id="CSV of Kafka's tool"),
        pytest.param(b"topic,partition,offset\norders,0,7\n", None, {"orders": [(0, 7)]}, id="CSV with a head"),
    ],
)
def test_positions_are_read_with_their_time(
    content: bytes, at_ms: int | None, found: dict[str, list[tuple[int, int]]]
) -> None:
    assert read_positions(content) == (at_ms, found)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty: was it cut short?"),
        (b" \n", "it is empty: was it cut short?"),
        (b"\xff\n", "it is not UTF-8 text"),
        (as_json(), "it holds no positions"),
        (b"topic,partition,offset\n", "it holds no positions"),
        (as_json(ROW)[:-3], "line 1: it is not JSON, or was cut short"),
        (b"orders,0,7\norders,1,", "its last line has no end: was it cut short?"),
        (b"orders,0,7\norders,1,12", "its last line has no end: was it cut short?"),
        (b"orders,0,7\norders,0,8\n", "line 2: 'orders', partition 0, appears twice"),
        (as_json(ROW, {**ROW, "offset": 8}), "position 2: 'orders', partition 0, appears twice"),
        (b"orders,0,-1\n", "line 1: offset '-1' is not a whole number from 0"),
        (b"orders,0,7.0\n", "line 1: offset '7.0' is not a whole number from 0"),
        (b"orders,0, 7\n", "line 1: offset ' 7' is not a whole number from 0"),
        (b"url,jdbc:postgres://u:hunter2@db,1\n", "line 1: partition something else is not a whole number from 0"),
        (as_json({**ROW, "offset": "hunter2"}), "position 1: offset something else is not a whole number from 0"),
        (b"orders,-,7\n", "line 1: partition '-' is not a whole number from 0"),
        (b"orders,0,9999999999999999999\n", "line 1: a number is larger than Kafka allows"),
        (b"billing,orders,0,7\n", "line 1 is not topic,partition,offset"),
        (b",0,7\n", "line 1 is not topic,partition,offset"),
        (b'"orders,0,7\n', "it is not CSV: a quote is not closed, or it is not text"),
        (as_json({**ROW, "offset": -1}), "position 1: offset -1 is not a whole number from 0"),
        (as_json({**ROW, "offset": 7.0}), "position 1: offset 7.0 is not a whole number from 0"),
        (as_json({**ROW, "offset": True}), "position 1: offset True is not a whole number from 0"),
        (as_json({**ROW, "offset": "7"}), "position 1: offset '7' is not a whole number from 0"),
        (as_json({**ROW, "partition": 2**31}), "position 1: partition 2147483648 is not a whole number from 0"),
        (as_json({**ROW, "offset": None}), "position 1: offset nothing (null) is not a whole number from 0"),
        (as_json({**ROW, "cluster": "b"}), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (as_json({"topic": "orders", "offset": 7}), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (as_json([]), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (b"[]", 'it is not {"at": …, "positions": […]}'),
        (b'{"positions": []}', 'it is not {"at": …, "positions": […]}'),
        (b'{"at": 1, "positions": {}}', '"positions" is not a list'),
        (b'{"at": 1, "at": 2, "positions": []}', "it has a key twice"),
        (b'{"at": 1, "positions": [{"topic": "a", "partition": 0, "offset": 1, "offset": 9}]}', "it has a key twice"),
        (b'{"at": 1, "positions": [NaN]}', "it is not readable JSON"),
        (b"[" * 100_000, "it is not readable JSON"),
        (as_json(ROW, at="soon"), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
        (as_json(ROW, at=0), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
        (as_json(ROW, at=1.5), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
    ],
)
def test_one_odd_row_makes_the_source_unreadable(content: bytes, said: str) -> None:
    assert refusal(SourceError, read_positions, content) == said


def test_positions_above_the_size_limit_are_refused() -> None:
    assert "larger than 64 MiB" in refusal(SourceError, read_positions, b"\n" * (MAX_BYTES + 1))


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda one: "\r" not in one and "\0" not in one),
        st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1),
        min_size=1,
    )
)
def test_written_positions_read_back(positions: dict[str, dict[int, int]]) -> None:
    rows = [(topic, partition, offset) for topic, some in positions.items() for partition, offset in some.items()]
    wanted = {topic: sorted(some.items()) for topic, some in positions.items()}
    assert read_positions(
        as_json(*[dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows])
    ) == (AT, wanted)
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
    text = written.getvalue()
    if text.lstrip()[0] not in "{[":
        assert read_positions(text.encode("utf-8", "surrogatepass")) == (None, wanted)


@pytest.mark.parametrize(
    ("at", "limit_ms", "said"),
    [
        (AT - 3_600_000, 3_600_000, ""),
        (AT + 60_000, 0, ""),
        (AT - 7_200_000, 3_600_000, "its positions are 2h old (max.age: 1h): export them again"),
        (AT + 120_000, 3_600_000, "its positions are dated 2m ahead of this clock: check both clocks"),
    ],
)
def test_positions_older_than_their_limit_are_refused(at: int, limit_ms: int, said: str) -> None:
    if said:
        assert refusal(SourceError, check_age, at, AT, limit_ms) == said
    else:
        check_age(at, AT, limit_ms)


TP = TopicPartition("t", 1)
KEY = b"\x00\x06orders\x00\x00\x00\x02"
VALUE = struct.pack(">qq", 9, 4)


@given(st.text(max_size=300), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
@example("orders", 2, 9, 4)
def test_encoded_sync_reads_back(topic: str, partition: int, upstream: int, downstream: int) -> None:
    name = topic.encode("utf-8", "ignore")
    assert parse_sync(
        (struct.pack(">h", len(name)) + name + struct.pack(">i", partition)), struct.pack(">qq", upstream, downstream)
    ) == (
        (name.decode(), partition),
        (upstream, downstream),
    )


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_sync_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        tp, sync = parse_sync(key, value)
    except ValueError:
        return
    assert min(tp.partition, *sync) >= 0


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (["m", {"cluster": "a", "partition": 1, "topic": "t"}], {"offset": 9}, (Committed("m", "a", TP), 9)),
        (["m", {"cluster": "a", "partition": 1, "topic": "t"}], None, (Committed("m", "a", TP), None)),
        (["c", {"group": "g", "partition": 1, "topic": "t"}], {"offset": 9}, None),
        (["h", {"sourceClusterAlias": "a", "targetClusterAlias": "b"}], {"offset": 9}, None),
    ],
)
def test_connect_offset_is_the_last_copied_record(key: object, value: object, told: object) -> None:
    assert parse_committed(json.dumps(key).encode(), None if value is None else json.dumps(value).encode()) == told


@pytest.mark.parametrize(
    ("parse", "key", "value"),
    [
        *(
            (parse_sync, *one)
            for one in [
                (None, VALUE),
                (b"", VALUE),
                (b"\x00", VALUE),
                (b"\xff\xffxxxx", VALUE),
                (KEY[:-1], VALUE),
                (KEY + b"x", VALUE),
                (b"\x00\x01\xff\x00\x00\x00\x00", VALUE),
                (KEY[:-4] + b"\xff" * 4, VALUE),
                (KEY, VALUE[:-1]),
                (KEY, VALUE + b"x"),
                (KEY, b""),
                (KEY, struct.pack(">qq", -1, 4)),
                (KEY, struct.pack(">qq", 9, -1)),
            ]
        ),
        *(
            (parse_committed, *one)
            for one in [
                (None, b"{}"),
                (b"x", b"{}"),
                (b"[" * 9_000, b"{}"),
                (b'{"a": 1}', b"{}"),
                (b'["m", {"cluster": 1, "partition": 1, "topic": "t"}]', b'{"offset": 1}'),
                (b'["m", {"cluster": "a", "partition": -1, "topic": "t"}]', b'{"offset": 1}'),
                (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b"{}"),
                (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": -1}'),
                (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": true}'),
                (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": 1.5}'),
                (b'["m", {"cluster": "a", "partition": 1, "topic": "t"}]', b'{"offset": 9223372036854775807}'),
            ]
        ),
    ],
)
def test_invalid_sync_or_connect_offset_message_is_refused(parse: Any, key: bytes | None, value: bytes) -> None:
    refusal(ValueError, parse, key, value)


@pytest.mark.parametrize(
    ("extent", "sync", "committed", "position"),
    [
        (Range(0, 20), Sync(9, 4), 9, 10),
        (Range(0, 20), Sync(9, 4), 12, 10),
        (Range(0, 20), Sync(9, 4), 6, 7),
        (Range(7, 7), None, None, 7),
        (Range(7, 7), Sync(3, 3), 3, 7),
        (Range(12, 20), Sync(9, 4), 9, 10),
        (Range(0, 20), None, 9, "MirrorMaker 2 has no offset sync"),
        (Range(0, 20), Sync(9, 4), None, "MirrorMaker 2 has no committed offset"),
    ],
)
def test_copy_position_is_the_lower_of_both_sources(
    extent: Range, sync: Sync | None, committed: int | None, position: int | str
) -> None:
    found = position_of(extent, sync, committed)
    assert found == position if isinstance(position, int) else str(found).startswith(position)


@pytest.mark.parametrize(
    ("sync", "there", "said"),
    [
        (Sync(9, 4), Range(0, 5), None),
        (Sync(9, 4), Range(4, 5), None),
        (Sync(9, 4), Range(0, 4), "the copy of offset 9 no longer exists"),
        (Sync(9, 4), Range(5, 9), "the copy of offset 9 no longer exists"),
        (Sync(20, 4), Range(0, 9), "its offset sync is of offset 20"),
    ],
)
def test_sync_counts_only_for_existing_records(sync: Sync, there: Range, said: str | None) -> None:
    found = out_of_range(Run(TP, Range(0, 20), TP, there, sync))
    assert found is None if said is None else str(found).startswith(said)


@pytest.mark.parametrize(
    ("offsets", "matched", "whole", "proven"),
    [
        ([0, 1, 4, 9], 4, True, 10),
        ([0, 1, 4, 9], 4, False, 10),
        ([0, 1, 4], 3, False, 5),
        ([0, 1, 4], 2, True, 4),
        ([3, 4], 0, True, 3),
        ([], 0, False, 0),
    ],
)
def test_copy_is_proven_up_to_its_first_missing_record(
    offsets: list[int], matched: int, whole: bool, proven: int
) -> None:
    assert (
        proven_to(
            Run(TP, Range(0, 20), TP, Range(0, 20), Sync(9, 9)),
            [Print(one, 5, b"a") for one in offsets],
            matched,
            complete=whole,
        )
        == proven
    )


def stored(offset: int, value: bytes) -> Any:
    """Return a record as confluent-kafka does, without a key or headers."""
    none = {"key": lambda: None, "headers": lambda: None}
    return SimpleNamespace(offset=lambda: offset, timestamp=lambda: (1, 5), value=lambda: value, **none)


@dataclass
class Records:
    """A cluster's records by offset, of one partition, with their values: what a proof asks of a reader."""

    values: Mapping[int, bytes]

    def read_ranges(self, ranges: Mapping[TopicPartition, Range], _until: float, take: Any, **_more: Any) -> Any:
        for tp, one in ranges.items():
            for offset in range(one.start, one.end):
                value = self.values.get(offset)
                if value is not None and take(tp, stored(offset, value)):
                    break
        return dict.fromkeys(ranges)


def test_copy_is_proven_no_farther_than_it_was_compared() -> None:
    """Of a long partition 20,000 records are compared; the copy of those behind them is missing, but for the last."""
    long = {offset: b"%d" % offset for offset in range(20_010)}
    copied = {offset: value for offset, value in long.items() if offset < 20_000 or offset == 20_009}
    run = Run(TP, Range(0, 20_010), TP, Range(0, 20_010), Sync(20_009, 20_009))
    here, there = (cast(ClusterReader, Records(one)) for one in (long, copied))
    proof = Proof(here, there, ClusterMetadata("there", frozenset(), {}), "dr", time.monotonic() + 60)
    assert proof.check([run]) == {TP: 20_000}


def test_record_fingerprints_ignore_offsets() -> None:
    others = Print(9, 5, b"a"), Print(1, 6, b"a"), Print(1, 5, b"b")
    assert [Print(1, 5, b"a").is_of(other) for other in others] == [True, False, False]


# -- they set floors as groups do (F7): read from files, commands and HTTP --


GROUPS: Mapping[str, Rows] = {"billing": {"orders": [(0, 50, 5), (1, 60, 5)], "payments": [(0, 70, 5)]}}


TOPICS = {
    name: TopicMetadata(name, f"{name}-id", False, {number: PartitionMetadata(1, 5) for number in range(count)})
    for name, count in (("orders", 2), ("payments", 1), ("elsewhere", 1))
}


CLUSTER = ClusterMetadata("c", frozenset({1}), TOPICS)


def recalling(**seen: Rows) -> Recall:
    """Recall what was seen a moment ago of consumers in files."""
    ledger = Ledger(None)
    ledger.begin({name: f"{name}-id" for name in TOPICS})
    for name, rows in seen.items():
        ledger.saw_group(key_of("file", name), rows, NOW - 1, 0)
    judge_ledger(ledger, lambda _place: LogNow(100, 5), TOPICS)
    ledger.save(NOW - 1)
    return Recall(ledger, GroupRules(), NOW, lambda: NOW)


def a_file(folder: Path, text: str, name: str = "flink", **more: object) -> FloorSource:
    place = folder / f"{name}.csv"
    place.write_text(text)
    os.utime(place, (NOW / 1000, NOW / 1000))
    return FloorSource("file", name, place=str(place), **more)  # type: ignore[arg-type]


def folded(
    *sources: FloorSource, recall: Recall | None = None, now_ms: int = NOW, groups: Mapping[str, Rows] = GROUPS
) -> FloorFold:
    fold = FloorFold({"orders": TopicScope([5, 5]), "payments": TopicScope([5])}, with_rows=True)
    for name, rows in groups.items():
        fold.add(name, rows)
    recall = replace(recall or recalling(), rules=GroupRules(sources=sources))
    fold_outside(fold, CLUSTER, recall, reach_at(now_ms).reader)
    return fold


def floor(fold: FloorFold, topic: str = "orders", partition: int = 0) -> str:
    found = fold.floor(TopicPartition(topic, partition), 0, 100)
    return (
        f"{found.offset} {found.by}"
        if isinstance(found, Floor)
        else "; ".join(f"{one.code}: {one.text}" for one in found.reasons)
    )


NO_POSITION = (
    "F2: file:flink has a position on orders-1 (9) and none on this partition: add it (0, if nothing was read)"
)
EMPTY = "F3: file:flink could not be read: it is empty: was it cut short?"


@pytest.mark.parametrize(
    ("text", "groups", "floors"),
    [
        pytest.param(
            "orders,0,7\norders,1,99\nelsewhere,0,1\n",
            GROUPS,
            ["7 file:flink", "60 group:billing", "70 group:billing"],
            id="where it has positions",
        ),
        pytest.param("orders,0,7\norders,1,9\n", {}, ["7 file:flink", "9 file:flink"], id="without any group"),
        pytest.param("orders,1,9\n", GROUPS, [NO_POSITION], id="without a position here"),
        pytest.param(
            "orders,0,7\norders,1,9\n",
            {"file:flink": {"orders": [(0, 3, 5), (1, 3, 5)]}},
            ["3 group:file:flink"],
            id="beside a group of the same name",
        ),
    ],
)
def test_position_file_counts_like_a_group(
    tmp_path: Path, text: str, groups: Mapping[str, Rows], floors: list[str]
) -> None:
    fold = folded(a_file(tmp_path, text), groups=groups)
    places = [("orders", 0), ("orders", 1), ("payments", 0)]
    assert [floor(fold, *place) for place, _ in zip(places, floors, strict=False)] == floors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders,0,7\norders,2,9\n", "it names partition 2 of orders, which has no such partition"),
        ("orders,0,7\nother,0,9\n", "it names other, which this cluster does not have (or this user may not describe)"),
        ("orders,0,-1\n", "line 1: offset '-1' is not a whole number from 0"),
    ],
)
def test_invalid_row_makes_every_topic_of_its_source_unknown(tmp_path: Path, text: str, said: str) -> None:
    some, every = (folded(a_file(tmp_path, text, topics=topics)) for topics in (("ord*",), None))
    assert [floor(some), floor(some, "orders", 1), floor(every, "payments")] == [
        f"F3: file:flink could not be read: {said}"
    ] * 3
    assert floor(some, "payments") == "70 group:billing"


@pytest.mark.parametrize(("text", "expected"), [("", EMPTY), ("orders,0,7\norders,1,9\n", "7 file:flink")])
def test_remembered_position_is_unknown_with_its_source_and_else_counts(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert (
        floor(
            folded(a_file(tmp_path, text, topics=("ord*",)), recall=recalling(flink={"payments": [(0, 7, 5)]})),
            "payments",
        )
        == expected
    )


def test_readable_source_still_counts_beside_an_unreadable_one(tmp_path: Path) -> None:
    good, missing = a_file(tmp_path, "orders,0,7\norders,1,9\n"), tmp_path / "missing"
    fold = folded(good, FloorSource("file", "other", place=str(missing), topics=("payments",)))
    said = f"F3: file:other could not be read: {missing}: no such file or directory"
    assert [floor(fold), floor(fold, "payments")] == ["7 file:flink", said]


def test_file_that_is_too_old_is_unknown(tmp_path: Path) -> None:
    assert (
        floor(folded(a_file(tmp_path, "orders,0,7\norders,1,9\n"), now_ms=NOW + 7_200_000))
        == "F3: file:flink could not be read: its positions are 2h old (max.age: 1h): export them again"
    )


def test_fold_lists_each_external_consumer_as_rows(tmp_path: Path) -> None:
    sources = (a_file(tmp_path, "orders,0,7\n"), FloorSource("file", "none", place=str(tmp_path), topics=("pay*",)))
    key = key_of("file", "flink")
    assert {
        (one.group, one.topic, one.partition, one.kind, one.offset) for one in folded(*sources, groups={}).rows or ()
    } == {
        (key, "orders", 0, "commit", 7),
        (key, "orders", 1, "missing", None),
        (key_of("file", "none"), "payments", None, "failed", None),
    }


# -- commands --------------------------------------------------------------------------


def a_command(*command: str, timeout_ms: int = 20_000) -> FloorSource:
    return FloorSource("command", "prod", command=command, timeout_ms=timeout_ms)


def said_of(source: FloorSource) -> object:
    """Return the consumers of a source, or why it can't be read."""
    [found] = read_sources([source], reach_at(NOW))
    return str(found) if isinstance(found, SourceError) else found


@pytest.mark.parametrize("topic", ["orders", "$(id)"])
def test_command_prints_what_a_file_holds_and_has_no_shell(topic: str) -> None:
    assert said_of(a_command("printf", r"%s,0,7\n%s,1,9\n", topic, topic)) == {
        "prod": Consumer({topic: [(0, 7), (1, 9)]})
    }


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("sh", "-c", "echo orders,0,7; echo password=hunter2 >&2; exit 3"),
            "the command exited with 3: run it by hand to see why",
        ),
        (
            ("sh", "-c", "echo orders,0,7; kill -9 $$"),
            "the command was ended by signal 9: run it by hand to see why",
        ),
        (("no-such-program",), "no-such-program can't be run: no such file or directory"),
        (("cat", "/dev/zero"), "the command prints more than 64 MiB"),
    ],
)
def test_failed_command_is_reported_without_its_stderr(command: tuple[str, ...], said: str) -> None:
    assert said_of(a_command(*command)) == said


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("(sleep 1.5; touch {alive}) & echo orders,0,7; sleep 60", id="it hangs"),
        pytest.param("(sleep 1.5; touch {alive}; sleep 60) & echo orders,0,7", id="its child has the pipe open"),
    ],
)
def test_command_that_times_out_is_ended_with_all_that_it_started(tmp_path: Path, script: str) -> None:
    alive = tmp_path / "alive"
    assert (
        said_of(a_command("sh", "-c", script.format(alive=alive), timeout_ms=300))
        == "the command was not done within 0.3 s (timeout)"
    )
    time.sleep(2)
    assert not alive.exists()


def test_sources_that_hang_are_waited_for_together() -> None:
    began = time.monotonic()
    slow = [FloorSource("command", f"c{n}", command=("sleep", "60"), timeout_ms=2_000) for n in range(5)]
    assert {str(one) for one in read_sources(slow, reach_at(NOW))} == {"the command was not done within 2 s (timeout)"}
    assert time.monotonic() - began < 9


# -- HTTP ------------------------------------------------------------------------------


class Web(LocalServer):
    """A file with positions, by paths: dated or not, absent, cut short, or byte by byte."""

    def reply(self, path: str, _headers: Mapping[str, str], _content: bytes) -> Answer:
        body = b"orders,0,7\norders,1,9\n"
        answers: dict[str, Answer] = {
            "/dated": (200, {"Last-Modified": formatdate(NOW / 1000, usegmt=True)}, body),
            "/undated": (200, {}, body),
            "/down": (503, {}, body),
            "/short": (200, {"Content-Length": str(len(body) + 1)}, body),
            "/dribble": (200, {"Content-Length": "1000000"}, dribbled()),
        }
        return answers[path]


def dribbled() -> Iterator[bytes]:
    for _ in range(40):
        yield b"o"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with Web() as server:
        yield server.address


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dated", {"web": Consumer({"orders": [(0, 7), (1, 9)]})}),
        ("/undated", 'nothing says how old it is: write JSON with "at"'),
        ("/down", "{url}: HTTP 503"),
        ("/short", "{url}: its answer was cut short"),
        ("/dribble", "{url}: not read within 1 s (timeout)"),
    ],
)
def test_file_over_http_is_read_or_fails_with_the_reason(web: str, path: str, expected: object) -> None:
    assert said_of(FloorSource("file", "web", place=web + path, timeout_ms=1_000)) == (
        expected.format(url=web + path) if isinstance(expected, str) else expected
    )


def test_server_that_does_not_exist_is_an_error() -> None:
    source = FloorSource("file", "web", place="http://127.0.0.1:1/x")
    assert "could not be read" not in str(said_of(source))
    assert isinstance(folded(source).floor(TopicPartition("orders", 0), 0, 9), Unknown)
