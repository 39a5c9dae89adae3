"""A streaming query's checkpoint, as Spark 4.3 writes it: the last committed batch counts, what is odd holds (F3, F7)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retention_cli.observe.floors.sources import checkpoint
from retention_cli.observe.floors.sources.interface import Consumer, SourceError
from retention_cli.policy.settings import FloorSource
from tests.support.checkpoints import DONE, HEAD, NOW, written
from tests.support.reach import reach_at


def positions(source: FloorSource) -> dict[str, list[tuple[int, int]]]:
    [one] = checkpoint.read(source, reach_at(NOW)).values()
    assert one.reads is not None
    return {topic: list(rows) for topic, rows in one.positions.items()} | {topic: [] for topic in one.reads}


def test_checkpoint_counts_the_last_committed_batch(tmp_path: Path) -> None:
    assert positions(written(tmp_path)) == {"orders": [(0, 10), (1, 3)], "payments": [(0, 9)]}


def test_checkpoint_before_its_first_batch_counts_from_its_start(tmp_path: Path) -> None:
    source = written(tmp_path, commits_0=None, commits_1=None, offsets_1=None, offsets_2=None)
    assert positions(source) == {"orders": [(0, 2), (1, 0)], "payments": [(0, 1)]}


def test_source_without_offsets_in_the_batch_counts_from_its_start(tmp_path: Path) -> None:
    source = written(tmp_path, offsets_1=HEAD + '{"orders":{"0":10,"1":3}}\n-\n-')
    assert positions(source) == {"orders": [(0, 10), (1, 3)], "payments": [(0, 1)]}


def test_lower_of_two_sources_of_one_topic_counts(tmp_path: Path) -> None:
    """So too where one of them has no offsets yet: it begins at its start."""
    begins = '\0v1\n{"orders":{"0":2,"1":5}}'
    both = HEAD + '{"orders":{"0":10,"1":3}}\n{"orders":{"0":4,"1":7}}\n-'
    assert positions(written(tmp_path, offsets_1=both, offsets_2=None, sources_1_0=begins)) == {
        "orders": [(0, 4), (1, 3)]
    }
    one = HEAD + '{"orders":{"0":10,"1":3}}\n-\n-'
    assert positions(written(tmp_path, offsets_1=one, offsets_2=None, sources_1_0=begins)) == {
        "orders": [(0, 2), (1, 3)]
    }


def test_partition_known_to_only_one_source_is_unread(tmp_path: Path) -> None:
    """The other still begins it at its start."""
    both = HEAD + '{"orders":{"0":10}}\n{"orders":{"0":4,"1":7}}\n-'
    [one] = checkpoint.read(written(tmp_path, offsets_1=both, offsets_2=None), reach_at(NOW)).values()
    assert one == Consumer({"orders": [(0, 4)]}, frozenset({"orders"}), unread=frozenset({("orders", 1)}))


def test_partition_that_another_source_first_reads_in_the_batch_under_way_is_unread(tmp_path: Path) -> None:
    """That one begins it at its start, wherever the others stand; so too before the first batch is done."""
    late = HEAD + '{"orders":{"0":99,"1":99}}\n{"payments":{"0":99},"orders":{"0":99}}\n-'
    source = written(tmp_path, offsets_2=late)
    unread = frozenset({("orders", 0)})
    [one] = checkpoint.read(source, reach_at(NOW)).values()
    assert one == Consumer({"orders": [(1, 3)], "payments": [(0, 9)]}, frozenset({"orders"}), unread=unread)
    (tmp_path / "commits/0").unlink()
    (tmp_path / "commits/1").unlink()
    [one] = checkpoint.read(source, reach_at(NOW)).values()
    assert one == Consumer({"orders": [(1, 0)], "payments": [(0, 1)]}, frozenset({"orders"}), unread=unread)


def test_topic_of_only_the_uncommitted_batch_is_unknown(tmp_path: Path) -> None:
    """It matches the query's pattern since then; so too before the first batch is done."""
    late = HEAD + '{"orders":{"0":99,"1":99},"new":{"0":50}}\n{"payments":{"0":99}}\n-'
    stands = {"orders": [(0, 10), (1, 3)], "payments": [(0, 9)], "new": []}
    assert positions(written(tmp_path, offsets_2=late)) == stands
    (tmp_path / "commits/0").unlink()
    (tmp_path / "commits/1").unlink()
    assert positions(FloorSource("checkpoint", "enrich", place=str(tmp_path), max_age_ms=None)) == {
        "orders": [(0, 2), (1, 0)],
        "payments": [(0, 1)],
        "new": [],
    }


def test_lost_start_offsets_are_unknown_before_the_first_batch(tmp_path: Path) -> None:
    source = written(tmp_path, commits_0=None, commits_1=None, sources_0_0=None)
    assert positions(source) == {"orders": [], "payments": [(0, 1)]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offsets_1": None}, "offsets/1 is not there: is this the checkpoint of a query that ran?"),
        ({"offsets_1": "v2" + HEAD[2:] + '{"orders":{"0":1}}'}, "offsets/1: its format is 'v2', and kretain knows v1"),
        ({"offsets_1": ""}, "offsets/1: it is empty"),
        ({"offsets_1": "v1\n"}, "offsets/1 is damaged: cut short"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n{"paym'}, "offsets/1 is cut short: it has 2 of its sources"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}\n{"paym\n-'}, "offsets/1, line 4: it is not JSON, or was cut"),
        ({"offsets_1": HEAD + '{"orders":{"0":10,"1":3}}'}, "offsets/1 is cut short: it has 1 of its sources"),
        ({"offsets_1": HEAD.strip()}, "offsets/1 is cut short: it has 0 of its sources"),
        (
            {"offsets_1": HEAD + '{"orders":{"0":-1}}\n-\n-'},
            "offsets/1, line 3: partition 0 of orders stands at no off",
        ),
        (
            {"offsets_1": HEAD + '{"orders":{"0":1.5}}\n-\n-'},
            "offsets/1, line 3: partition 0 of orders stands at no off",
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
            "offsets/0 is not there",
        ),
        (
            {"offsets_1": HEAD + "-\n-\n-", "offsets_2": None, "sources_0_0": None, "sources_1_0": None},
            "no source of this query reads Kafka, or none has begun yet",
        ),
    ],
)
def test_malformed_checkpoint_is_a_source_error(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(SourceError) as caught:
        positions(written(tmp_path, **changes))
    assert said in str(caught.value)


def test_missing_checkpoint_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="offsets/0 is not there"):
        positions(FloorSource("checkpoint", "enrich", place=str(tmp_path / "none")))
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="file"):
        positions(FloorSource("checkpoint", "enrich", place=str(tmp_path / "file")))


def test_named_pipe_in_a_checkpoint_is_not_awaited(tmp_path: Path) -> None:
    source = written(tmp_path, commits_1=None)
    os.mkfifo(tmp_path / "commits/1")
    with pytest.raises(SourceError, match="commits/1 is not there"):
        positions(source)


def test_checkpoint_age_counts_if_the_policy_limits_it(tmp_path: Path) -> None:
    """A query at rest commits nothing, so it is asked for, not the default."""
    source = written(tmp_path)
    for name in ("offsets/1", "commits/1"):
        os.utime(tmp_path / name, ((NOW - 7_200_000) / 1000,) * 2)
    assert positions(source)
    with pytest.raises(SourceError, match=r"its positions are 2h old \(max.age: 1h\)"):
        positions(FloorSource("checkpoint", "enrich", place=str(tmp_path), max_age_ms=3_600_000))


def test_commit_older_than_its_batch_is_from_before_a_reset(tmp_path: Path) -> None:
    source = written(tmp_path)
    os.utime(tmp_path / "offsets/1", ((NOW + 1_000) / 1000,) * 2)
    with pytest.raises(SourceError, match="offsets/1 was written after commits/1"):
        positions(source)
