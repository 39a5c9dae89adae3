"""Spark without a cluster: slices of records, values that tasks hand to each other, and what failures are told as."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import Ended, Range
from retention_cli.core.model import (
    EventMax,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TopicFacts,
    TopicPartition,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.engines.spark.profile import OFFSETS_A_SLICE, _Partition, chunks, packed
from retention_cli.engines.spark.session import LOG, as_spark_error, start_failure
from retention_cli.engines.spark.shipping import from_bytes, to_bytes
from retention_cli.profile.hours import STEPS_AT_MOST, Frame, PartitionHours
from tests.support.facts import known
from tests.support.says import says

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("span", "stable", "expected"),
    [
        ((0, 10), 10, [(0, 10)]),
        ((0, 25), 25, [(0, 10), (10, 20), (20, 25)]),
        ((7, 25), 25, [(7, 10), (10, 20), (20, 25)]),
        ((0, 20), 20, [(0, 10), (10, 20)]),
        ((0, 95), 15, [(0, 10), (10, 95)]),  # a broker is silent to who begins behind an open transaction
        ((0, 95), 10, [(0, 95)]),
        ((0, 95), 0, [(0, 95)]),
        ((0, 95), None, [(0, 95)]),
    ],
)
def test_pieces_end_at_multiples_and_never_start_behind_an_open_transaction(
    span: tuple[int, int], stable: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(chunks(Range(*span), stable, 10)) == expected


def test_profile_piece_never_exceeds_the_front_limit() -> None:
    """Else hours of chunks would not merge to exact ones."""
    assert OFFSETS_A_SLICE <= STEPS_AT_MOST


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), max_size=12), st.integers(1, 20), st.integers(1, 3))
def test_slices_contain_every_piece_once_within_their_limit(
    spans: list[tuple[int, int]], most: int, brokers: int
) -> None:
    ranges = {TopicPartition("t", number): Range(start, start + size) for number, (start, size) in enumerate(spans)}
    cut = {tp: list(chunks(span, span.end, most)) for tp, span in ranges.items()}
    leaders = {tp: tp.partition % brokers for tp in ranges}
    found: dict[TopicPartition, list[Range]] = {tp: [] for tp in ranges}
    for one in packed(cut, leaders, most):
        assert len({leaders[tp] for tp in one}) == 1
        assert sum(span.end - span.start for span in one.values()) <= most
        for tp, span in one.items():
            found[tp].append(span)
    assert found == cut, "each once, in order"
    for tp, span in ranges.items():
        ends = [span.start, *(piece.end for piece in cut[tp])]
        assert (list(pairwise(ends)), ends[-1]) == (cut[tp], span.end)


@given(
    st.lists(st.integers(0, 3_600_000 * 3), min_size=1, max_size=30),
    st.integers(1, 9),
    st.none() | st.integers(0, 29),
    st.booleans(),
    st.randoms(),
)
def test_pieces_merge_in_any_order_but_not_behind_a_gap(
    times: list[int], most: int, broken_at: int | None, failed: bool, chance: Any
) -> None:
    frame = Frame(NOW)
    stamps = [NOW - 40 * 3_600_000 + one for one in times]
    cut = list(chunks(Range(0, len(stamps)), len(stamps), most))
    end = len(stamps) if broken_at is None else min(broken_at, len(stamps))

    def hours(start: int, end: int, *, piece: bool) -> PartitionHours:
        found = PartitionHours.begin(frame, start, piece=piece)
        found.add(np.arange(start, end), np.array(stamps[start:end]), np.ones(end - start, np.int64))
        found.reached(end)
        return found

    results = []
    for one in cut:
        reached = end if one.start <= end < one.end else one.end
        error = RequestFailedError("gone", retriable=True) if failed and reached < one.end else None
        results.append((one, Ended(reached, error), hours(one.start, reached, piece=True)))
    chance.shuffle(results)
    partition = _Partition(cut, PartitionHours.begin(frame, 0))
    for result in results:
        partition.take(*result)
    ended = known(partition.ended)
    assert (ended.offset, ended.error is not None) == (end, failed and end < len(stamps))
    assert list(partition.hours.items()) == list(hours(0, end, piece=False).items())
    assert partition.hours.exact


LOST = "An error occurred while calling o59.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "


class TheirError(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "said", "todo"),
    [
        (
            f"{LOST}Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache",
            "Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137",
            "give it more memory (--spark-conf spark.driver.memory=4g",
        ),
        (
            f"{LOST}Lost task 1.0 in stage 0.0 (TID 1) (node executor 2): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache",
            "(node executor 2): Python worker exited unexpectedly (crashed)",
            "PYSPARK_PYTHON",
        ),
        (
            "An error occurred while calling o104.collectToPython.\n: java.lang.OutOfMemoryError: Java heap space\n\tat java.base",
            "java.lang.OutOfMemoryError: Java heap space",
            "give it more memory",
        ),
        (
            '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "failed to connect to all addresses"\n\tdebug_error_string = "UNAVAILABLE"\n>',
            "failed to connect to all addresses",
            "check that Spark is up, then run again",
        ),
        (
            'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "x.py", line 17, in boom\n    raise ValueError("of a task")\nValueError: of a task',
            "ValueError: of a task",
            "run again; -vv shows where",
        ),
        (
            "Job 3 cancelled because SparkContext was shut down",
            "SparkContext was shut down",
            "check that Spark is up",
        ),
    ],
)
def test_spark_error_is_reported_in_one_line_with_a_remedy(text: str, said: str, todo: str) -> None:
    shown = str(as_spark_error(TheirError(text)))
    assert shown.startswith("Spark could not carry it out: ")
    says(shown, said, todo, never=["\n", "collectToPython"])


@pytest.mark.parametrize("error", [ValueError("ours"), ConnectionRefusedError("a broker's"), KeyboardInterrupt()])
def test_error_that_is_not_sparks_is_unchanged(error: BaseException) -> None:
    assert as_spark_error(error) is None


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: Using incubator modules\nException in thread \"main\" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.\n\tat org.apache\n",
            "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.",
        ),
        (
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory\nbin/spark-class: line 97: CMD: bad array subscript\n",
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory",
        ),
        ("WARNING: Using incubator modules\n", None),
    ],
)
def test_failed_spark_start_is_explained_from_its_log(log: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(log)
    assert [start_failure(tmp_path / name) for name in (LOG, "none")] == [said, None]


WHY = Unknown((Reason("offsets", "nobody answered"), Reason("F3", "nor did a group")))
TOPIC = TopicFacts("orders", "id", internal=False, cleanup_policy=frozenset({"delete"}), retention_ms=WHY, tiered=True)
BARE = PartitionFacts(TOPIC, 3, 0, 9, 9, Floor(4, "group:g", (Reason("F5", "odd"),)))


@pytest.mark.parametrize(
    "facts",
    [
        BARE,
        BARE._replace(log_start=WHY, high_watermark=WHY, floor=WHY, size_bytes=WHY, samples=WHY, segment_bases=WHY),
        BARE._replace(
            lookups={5: LookUp(2, Reason("lookup", "stopped"), 4, 1), 6: WHY},
            data_lookups={5: WHY},
            newest=EventMax(7, 3, exact=False),
            samples=(Sample(1, 2),),
            usage=Usage("disk", 91.5, Watermark(90, 0.5, 1)),
            tails={"retention.bytes": Tail(4, exact=True), "retention.topic.bytes": WHY},
            segment_bases=(0, 4),
        ),
    ],
)
def test_partition_facts_survive_spark_serialization(facts: PartitionFacts) -> None:
    """A fact more, or a part of one, needs no line of Spark's: that a topic has remote storage had been left behind."""
    assert from_bytes(to_bytes(facts)) == facts
