"""Advice and profiles on real topics: each danger where a topic has it; what pandas finds in the same records."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer

from retention_cli.core.extras import arrow
from retention_cli.core.model import TopicPartition
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.profile.hours import HOUR_MS, summarize
from retention_cli.profile.reading import NoEventTimeError, Profile, Wanted, all_rows, fill, prepare
from tests.conftest import QUICK
from tests.support.advising import ANY_STAMP, Shop, advice, carry_out, codes, judged
from tests.support.archives import Whole, flights, produce
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import SETTINGS, leaders
from tests.support.says import json_of, refusal, refuses, says
from tests.support.world import DAY, HOUR, MIB, MINUTE, QUIET, World, now_ms, reader_for, wait_until, written


@pytest.fixture(scope="module")
def advised(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A topic for each danger, in other respects well."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("advise") / "state")
    week: dict[str, Any] = {"retention_ms": str(7 * DAY), "segment_ms": str(DAY)}
    hour: dict[str, Any] = {"retention_ms": str(HOUR), "segment_ms": str(7 * DAY)}
    settings: dict[str, dict[str, Any]] = {
        "good": week,
        "compacted": hour | {"cleanup_policy": "compact"},
        "segment": hour,
        "filled": hour | {"segment_bytes": str(MIB)},
        "future": week | {"message_timestamp_after_max_ms": ANY_STAMP},
        "sized": week | {"retention_bytes": str(MIB), "segment_bytes": str(MIB)},
        "long": week | {"retention_ms": str(30 * DAY)},
    }
    names = {
        stem: world.topic(f"adv-{stem}", partitions=2 if stem in ("sized", "future") else 1, **config)
        for stem, config in settings.items()
    }
    # a record every six minutes of the last day, 100 bytes each
    world.produce(names["good"], [6 * MINUTE * n + 3 * MINUTE for n in range(239, -1, -1)])
    for stem in ("compacted", "segment", "long"):
        world.produce(names[stem], [40 * MINUTE, 20 * MINUTE])
    world.produce(names["future"], [MINUTE, -3 * DAY, 0], partition=1)
    for partition in (0, 1):
        world.produce(names["sized"], [MINUTE] * 700, partition, value=b"\x00" * 1000)
    world.produce(names["filled"], [MINUTE] * 2500, value=b"\x00" * 1000)
    return world, names


DANGERS: dict[str, set[str]] = {
    "good": set(),
    "compacted": set(),
    "segment": {"segment-above-retention"},
    "filled": set(),
    "future": {"future-timestamps"},
    "sized": {"size-before-time", "bytes-per-partition"},
    "long": {"offsets-expire-first"},
}
"""What is to be said of each topic without a policy, and nothing else."""


def test_each_danger_is_reported_for_its_topic_only(advised: Shop) -> None:
    world, names = advised
    rows = json_of(world, "advise", *names.values())["topics"]
    assert {row["topic"]: (codes(row), row["unknown"]) for row in rows} == {
        names[stem]: (dangers, []) for stem, dangers in DANGERS.items()
    }


def test_advice_shows_times_settings_and_traffic_of_the_cluster(advised: Shop) -> None:
    world, names = advised
    row = advice(world, names["good"])
    expected = {
        "wanted_ms": 7 * DAY,
        "wanted_by": "retention.ms",
        "at_most": {
            "settings_ms": 8 * DAY,
            "readable_ms": 8 * DAY + 1000,
            "on_disk_ms": 8 * DAY + 1100,
            "retention_ms": 7 * DAY,
            "segment_ms": DAY,
            "ahead_ms": 0,
            "check_interval_ms": 1000,
            "delete_delay_ms": 100,
        },
        "normal": {"least_ms": 7 * DAY, "most_ms": 8 * DAY, "by": "time"},
        "brokers": {"check_interval_ms": 1000, "offsets_retention_ms": 7 * DAY},
    }
    assert {key: row[key] for key in expected} == expected
    assert (row["settings"]["message.timestamp.type"], row["advice"]["kafka_configs"]) == ("CreateTime", None)
    traffic = row["traffic"]
    assert traffic["records_last_hour"] in (9, 10), "minutes may have passed since they were written"
    assert traffic["records_last_day"] in (239, 240)
    assert traffic["records_per_hour"] == pytest.approx(10, abs=0.2)
    assert traffic["bytes_per_hour"] == pytest.approx(traffic["bytes"] / 24, rel=0.02)
    assert advice(world, names["compacted"])["at_most"] == {"settings_ms": -1, "readable_ms": -1, "on_disk_ms": -1}


def test_future_timestamp_advice_refuses_new_ones_and_clears_after_trim(
    advised: Shop,
) -> None:
    world, _ = advised
    topic = world.filled(
        [MINUTE, -3 * DAY],
        stem="adv-future",
        retention_ms=str(DAY),
        segment_ms=str(HOUR),
        segment_bytes=str(MIB),
        message_timestamp_after_max_ms=ANY_STAMP,
    )
    before = judged(world, topic)
    (danger,) = before["dangers"]
    assert (danger["code"], before["at_most"]["ahead_ms"]) == ("future-timestamps", pytest.approx(3 * DAY, abs=MINUTE))
    assert "partition 0, offset 1 is stamped" in danger["text"]
    assert "kafka-delete-records.sh, offset 2" in danger["remedy"]
    carry_out(before["advice"]["kafka_configs"])
    wait_until(lambda: _refuses_the_future(world, topic), "the broker to refuse such stamps")
    world.delete_records(topic, world.ends(topic)[1])
    assert "(trimmed, its segment is still there)" in judged(world, topic)["dangers"][0]["text"]
    world.produce(topic, [0] * 1200, value=b"\x00" * 1000)  # segment.bytes closes the segment
    assert codes(judged(world, topic)) == {"future-timestamps"}, "records that can be read are still in it"
    world.delete_records(topic, world.ends(topic)[1])
    wait_until(lambda: not codes(judged(world, topic)), "the stamp's segment to go")


def _refuses_the_future(world: World, topic: str) -> bool:
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": world.bootstrap, "logger": QUIET})
    producer.produce(
        topic, b"x", timestamp=now_ms() + 2 * DAY, on_delivery=lambda error, _: refused.append(error and error.name())
    )
    assert producer.flush(30) == 0
    return refused == ["INVALID_TIMESTAMP"]


def test_traffic_after_a_trim_is_measured_over_the_remaining_log(advised: Shop) -> None:
    """S > 0 within the window: the rate is not the remainder spread over a whole day."""
    world, _ = advised
    topic = world.filled(
        [6 * MINUTE * n + 3 * MINUTE for n in range(239, -1, -1)],
        stem="adv-trimmed",
        retention_ms=str(7 * DAY),
        segment_ms=str(DAY),
    )
    world.delete_records(topic, 200)
    row = advice(world, topic)["by_partition"][0]
    assert (row["log_start"], row["records_last_hour"], row["records_last_day"]) == (200, 10, 40)
    assert row["records_per_hour"] == pytest.approx(10, abs=0.3)


def test_advise_judges_topics_by_the_given_policy(advised: Shop, tmp_path: Path) -> None:
    world, names = advised
    policy = written(tmp_path / "policy.yaml", f"version: 1\ntopics: [{{match: {names['good']}, retention.ms: 10d}}]\n")
    (row,) = world.cli("advise", "-p", str(policy), "-o", "json", check=0).json()["topics"]
    assert (row["topic"], codes(row), row["wanted_by"]) == (names["good"], {"broker-before-policy"}, "policy")
    assert row["advice"]["broker_properties"] == {"offsets.retention.minutes": 14_400}
    both = world.cli("advise", names["good"], names["long"], "-p", str(policy), "-o", "json", check=0)
    assert [row["wanted_by"] for row in both.json()["topics"]] == ["policy", "retention.ms"]
    assert f"does not manage {names['long']}: judged without it" in both.err
    policy.write_text("version: 1\ntopics: [{match: nothing-*, retention.ms: 1d}]\n")
    assert "no entry matches" in world.cli("advise", "-p", str(policy), check=1).err


def test_advise_wanted_retention_changes_the_settings(advised: Shop) -> None:
    """The guide's second row, on a cluster that takes no segment.ms below a day."""
    world, names = advised
    row = advice(world, names["good"], "--want", "12h", "--min-segment", "1d")
    found = row["advice"]
    assert (row["wanted_ms"], row["wanted_by"], found["policy_at_most_ms"]) == (12 * HOUR, "--want", 12 * HOUR)
    assert (found["settings"], found["then_at_most"]["settings_ms"]) == ({"retention.ms": 12 * HOUR}, 36 * HOUR)
    assert found["policy_entry"] == {"match": names["good"], "retention.ms": "12h"}


def test_advise_covers_internal_topics_only_when_named(advised: Shop) -> None:
    world, names = advised
    world.commit("adv-any", names["good"], 1)
    assert "__consumer_offsets" not in world.cli("advise", "-o", "csv", check=0).out
    assert advice(world, "__consumer_offsets")["advice"]["policy_entry"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "more", "unknown"),
    [
        ("2.8.2", set(), ["traffic"]),
        ("3.3.2", {"future-timestamps"}, []),
        ("3.9.1", {"future-timestamps"}, []),
    ],
    ids=["2.8.2", "3.3.2", "3.9.1"],
)
def test_old_brokers_give_the_advice_that_they_can(
    version: str, more: set[str], unknown: list[str], tmp_path: Path
) -> None:
    """Before 3.0 the newest record can't be asked for; before 3.6 one setting bounds stamps on both sides."""
    with EmbeddedKafka(1, version=version, settings=QUICK) as cluster:
        world = World(cluster.bootstrap, tmp_path)
        topic = world.filled(
            [20 * MINUTE, 10 * MINUTE, -3 * DAY],
            retention_ms=str(HOUR),
            segment_ms=str(7 * DAY),
            message_timestamp_difference_max_ms=str(9 * DAY),
        )
        row = judged(world, topic)
        assert row["at_most"]["retention_ms"] == HOUR
        assert row["settings"]["message.timestamp.after.max.ms"] == 9 * DAY
        assert row["by_partition"][0]["records_last_hour"] == 3
        assert codes(row) == {"segment-above-retention", *more}
        assert [reason["code"] for reason in row["unknown"]] == unknown


# -- kretain profile ---------------------------------------------------------------------------


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
    pd.testing.assert_frame_equal(
        found[expected.columns].reset_index(drop=True), expected, check_dtype=False, check_exact=True
    )
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
    refuses(world.cli("plan", "no-such-topic", "--older-than", "1d"), "no topic matches 'no-such-topic'")
    topic = world.topic()
    for command in ("advise", "profile"):
        refuses(world.cli(command, f"{topic}x"), f"no topic matches '{topic}x'; did you mean ")
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
def shown():
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
        assert done.err == f"kretain: {topic}-{led[2]} could not be read: its ends can't be read: it has no leader\n"
        says(done.out, "20 records", "partial: 1 partition")
