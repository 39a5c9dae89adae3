"""``kretain profile`` on real topics: what pandas finds in the same records, and what is no data or no time of ours."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from retention_cli.core.extras import arrow
from retention_cli.core.model import TopicPartition
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.profile.hours import HOUR_MS, summarize
from retention_cli.profile.reading import NoEventTimeError, Profile, Wanted, all_rows, fill, prepare
from tests.support.archives import Whole, flights, produce
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, leaders
from tests.support.says import refusal, says
from tests.support.world import DAY, HOUR, World, now_ms, reader_for, wait_until

RECORDS = 40_000


def profiled(world: World, *topics: str, policy: str | None = None, timeout_s: float = 30.0, **more: Any) -> Profile:
    loaded = None if policy is None else parse_policy(policy, "policy.yaml", "sha256:test")
    with reader_for(world.bootstrap, timeout_s) as reader:
        found = prepare(reader, Wanted(topics, now_ms(), loaded, **more))
        fill(reader, found)
    return found


@pytest.fixture(scope="module")
def flown(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pd.DataFrame]:
    """Real flights in two partitions, out of order as the file has them, with headers; and the same as a table."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("flown") / "state")
    topic = world.topic("flown", partitions=2)
    sent: tuple[list[Whole], list[Whole]] = ([], [])
    rows = []
    for number, one in enumerate(itertools.islice(flights(), RECORDS)):
        partition = len(one.key + str(number)) % 2
        headers = (("et", str(one.timestamp_ms + HOUR).encode()), ("ü", b"12345")) if number % 5 else ()
        sent[partition].append((one.timestamp_ms, one.key.encode(), one.value, headers))
        size = len(one.key) + len(one.value) + (2 + 13 + 2 + 5 if headers else 0)
        rows.append((partition, one.timestamp_ms, size))
    for partition, records in enumerate(sent):
        produce(world, topic, records, partition, "lz4")
    made = pd.DataFrame(rows, columns=["partition", "time", "size"])
    return topic, made.assign(offset=made.groupby("partition").cumcount())


def by_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    before = rows.groupby("partition").time.transform(lambda one: one.cummax().shift(fill_value=0))
    rows = rows.assign(hour=rows.time // HOUR_MS * HOUR_MS, lag=(before - rows.time).clip(lower=0))
    groups = rows.groupby(["partition", "hour"])
    return pd.DataFrame(
        {
            "records": groups.offset.count(),
            "bytes": groups["size"].sum(),
            "first_offset": groups.offset.min(),
            "last_offset": groups.offset.max(),
            "oldest_ms": groups.time.min(),
            "newest_ms": groups.time.max(),
            "newest_offset": rows.loc[groups.time.idxmax()].set_index(["partition", "hour"]).offset,
            "out_of_order": groups.lag.agg(lambda one: int((one > 0).sum())),
            "out_of_order_ms": groups.lag.max(),
        }
    ).reset_index()


def test_profile_counts_what_pandas_counts(world: World, flown: tuple[str, pd.DataFrame]) -> None:
    topic, rows = flown
    found = pd.DataFrame(list(all_rows(profiled(world, topic).topics.values())))
    assert set(found.kind) == {"hour"}
    expected = by_pandas(rows)
    counted = found[expected.columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(counted, expected, check_dtype=False, check_exact=True)
    assert found.out_of_order.sum() > 1000, "this data was to be out of order"


def test_profile_window_beyond_the_log_reads_nothing(world: World) -> None:
    """A −1 is not taken for the end, unless the newest stamp says so (docs/rules.md, Look-ups)."""
    topic = world.filled([5 * DAY] * 10)
    assert profiled(world, topic, from_ms=now_ms() - DAY).ranges == {TopicPartition(topic, 0): (10, 10)}
    world.produce(topic, [HOUR])
    found = profiled(world, topic, from_ms=now_ms() - DAY)
    assert found.ranges == {TopicPartition(topic, 0): (10, 11)}
    assert summarize(found.topics[topic].partitions).records == 1


def test_profile_skips_markers_and_aborted_and_open_records(world: World) -> None:
    topic = world.topic()
    now = now_ms()
    world.transaction(topic, [now - HOUR] * 3, end="commit")
    world.transaction(topic, [now + 0] * 5, end="abort")
    world.produce_at(topic, [now - 2 * HOUR])
    open_one = world.transaction(topic, [now] * 7, end="open")
    try:
        found = profiled(world, topic)
        hours = found.topics[topic].partitions[0]
        summary = summarize({0: hours})
        assert (summary.records, summary.size_bytes, summary.late, summary.late_ms) == (4, 3 * 100 + 102, 1, HOUR)
        assert (hours.end, found.ranges[TopicPartition(topic, 0)].end, found.unread) == (11, 18, [])
        assert [text for text in found.notes if "an open transaction begins" in text]
    finally:
        open_one.abort_transaction(30)


def test_profile_counts_tombstones_and_not_compacted_records(world: World) -> None:
    topic = world.topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="86400000"
    )
    now = now_ms()
    produce(world, topic, [(now - HOUR, b"k%d" % (n % 10), b"x" * 50, ()) for n in range(2000)])
    produce(world, topic, [(now - HOUR, b"k3", None, ()), (now - HOUR, b"k4", b"", ())])

    def compacted() -> bool:
        produce(world, topic, [(now, b"z", b"rolls the segment", ())])
        return len(world.records(topic)) < 100

    wait_until(compacted, "compaction")
    found = profiled(world, topic)
    summary = summarize(found.topics[topic].partitions)
    assert abs(summary.records - len(world.records(topic))) <= 1, "the cleaner may have come between the two"
    assert (summary.tombstones, found.unread) == (1, [])


def test_profile_of_a_missing_topic_or_partition_is_an_error(world: World) -> None:
    assert (
        world.cli("profile", "no-such-topic", check=1).err
        == "kretain: no topic matches 'no-such-topic' (or this user lacks DESCRIBE on it)\n"
    )
    for pattern in ("__consumer_offset*", "re:no.*"):
        assert "no topic matches" in refusal(NothingMatchesError, profiled, world, pattern)
    assert list(profiled(world, "__consumer_offsets").topics) == ["__consumer_offsets"]


def test_profile_by_event_time_needs_a_source(world: World) -> None:
    topic = world.topic()
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.ms: 1d}}]"
    says(
        refusal(NoEventTimeError, profiled, world, topic, policy=policy, by_event_time=True),
        f"retention.eventtime.source is not set for {topic}",
    )


INTERRUPTED = """
import contextlib, os, signal
from kretain.render import progress
from kretain.options.common import Output
from kretain.render.profile import print_profile
from retention_cli.brokers import records
from retention_cli.core.extras import arrow

@contextlib.contextmanager
def shown(*, quiet):
    sent = []
    def report(phase, done=0, total=None):
        if phase == "records" and done and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))
    yield report

progress.shown = shown
records.MESSAGES_AT_ONCE = 50
from kretain.__main__ import main
main()
"""


def test_interrupted_profile_shows_what_it_read_as_partial(world: World, tmp_path: Path) -> None:
    topic = world.filled([HOUR] * 5000)
    file = tmp_path / "part.parquet"
    words = ["profile", topic, "-b", world.bootstrap, "-o", "json", "--out", str(file)]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "interrupted: this shows what was read until then" in done.stderr
    found = json.loads(done.stdout)
    [unread] = found["unread"]
    assert (found["complete"], unread["reason"]) == (False, "reading was interrupted")
    reached = unread["reached"]
    assert 0 < reached < 5000
    assert found["topics"][0]["records"] == reached
    assert sum(arrow("pyarrow.parquet").read_table(file).column("records").to_pylist()) == reached


def test_profile_names_records_deleted_before_they_were_read(world: World) -> None:
    """Retention does not wait for a profile: what is left is read."""
    topic = world.filled([HOUR] * 100)
    with reader_for(world.bootstrap) as reader:
        found = prepare(reader, Wanted((topic,), now_ms()))
        world.delete_records(topic, 40)
        fill(reader, found)
    gone = f"{topic}-0: the records from offset 0 to 40 were deleted before they could be read"
    assert (found.notes, found.unread) == ([gone], [])
    assert summarize(found.topics[topic].partitions).records == 60


@pytest.mark.long
def test_profile_names_an_unreadable_partition_and_reads_the_others(tmp_path: Path) -> None:
    """One has no leader, and one has a leader that answers no more: exit 5, and what was read is right."""
    with EmbeddedKafka(3, settings=SETTINGS) as three:
        world = World(three.bootstrap, tmp_path / "state")
        topic = world.filled([HOUR] * 10, None, 3)
        led = {leader: partition for partition, leader in leaders(world, topic).items()}
        with reader_for(world.bootstrap, 5) as reader:
            ready = prepare(reader, Wanted((topic,), now_ms()))
            three.nodes[0].freeze()
            try:
                fill(reader, ready)
            finally:
                three.nodes[0].thaw()
        assert [(one.tp.partition, one.reached) for one in ready.unread] == [(led[1], 0)]
        assert "none of its records came for 5 s" in ready.unread[0].text
        assert summarize(ready.topics[topic].partitions).records == 20
        three.nodes[1].kill()
        wait_until(lambda: leaders(world, topic)[led[2]] is None, "the end of a leader")
        done = world.cli("profile", topic, check=5)
        assert done.err == f"kretain: {topic}-{led[2]} could not be read: its ends can't be read: has no leader\n"
        says(done.out, "20 records", "partial: 1 partition")
