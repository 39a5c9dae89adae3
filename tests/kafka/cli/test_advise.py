"""Advice on a real cluster: each danger where a topic has it, and gone once the advised line was carried out."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from retention_cli.advise.facts import AtMost, at_most
from retention_cli.advise.reading import read_topics
from tests.support.advising import ANY_STAMP, MIB, MINUTE, Shop, advice, carry_out, codes, judged
from tests.support.world import DAY, HOUR, QUIET, World, now_ms, reader_for, wait_until

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
    rows = world.cli("advise", *names.values(), "-o", "json", check=0).json()["topics"]
    stems = {name: stem for stem, name in names.items()}
    assert {stems[row["topic"]]: codes(row) for row in rows} == DANGERS
    assert all(row["unknown"] == [] for row in rows)


def test_advice_shows_times_settings_and_traffic_of_the_cluster(advised: Shop) -> None:
    world, names = advised
    row = advice(world, names["good"])
    assert (row["wanted_ms"], row["wanted_by"]) == (7 * DAY, "retention.ms")
    assert row["at_most"] == {
        "settings_ms": 8 * DAY,
        "readable_ms": 8 * DAY + 1000,
        "on_disk_ms": 8 * DAY + 1100,
        "retention_ms": 7 * DAY,
        "segment_ms": DAY,
        "ahead_ms": 0,
        "check_interval_ms": 1000,
        "delete_delay_ms": 100,
    }
    assert row["traffic"]["records_last_hour"] in (9, 10), "minutes may have passed since they were written"
    assert row["traffic"]["records_last_day"] in (239, 240)
    assert row["traffic"]["records_per_hour"] == pytest.approx(10, abs=0.2)
    assert row["traffic"]["bytes_per_hour"] == pytest.approx(row["traffic"]["bytes"] / 24, rel=0.02)
    assert row["normal"] == {"least_ms": 7 * DAY, "most_ms": 8 * DAY, "by": "time"}
    assert row["settings"]["message.timestamp.type"] == "CreateTime"
    assert row["brokers"] == {"check_interval_ms": 1000, "offsets_retention_ms": 7 * DAY}
    assert row["advice"]["kafka_configs"] is None
    assert advice(world, names["compacted"])["at_most"] == "forever"


@pytest.mark.parametrize(
    ("code", "limit", "wanted"),
    [
        ("segment-above-retention", None, {}),
        ("size-before-time", MIB, {}),
        ("bytes-per-partition", 4 * MIB, {"topic_bytes": 6 * MIB}),
        ("broker-before-policy", None, {"policy": "retention.ms: 3d"}),
        (
            "R1-above-retention",
            None,
            {"policy": "retention.commitoffset.enable: true, retention.commitoffset.hours: 72"},
        ),
    ],
)
def test_advised_command_removes_the_danger(
    advised: Shop, code: str, limit: int | None, wanted: dict[str, Any]
) -> None:
    world, _ = advised
    config: dict[str, Any] = {"retention_ms": str(DAY), "segment_ms": str(HOUR)}
    if code == "segment-above-retention":
        config = {"retention_ms": str(HOUR), "segment_ms": str(7 * DAY)}
    if limit is not None:
        config |= {"retention_bytes": str(limit), "segment_bytes": str(MIB)}
    topic = world.topic("adv-line", partitions=2, **config)
    for partition in (0, 1):
        world.produce(topic, [MINUTE] * 700, partition, value=b"\x00" * 1000)
    asked = dict(wanted)
    if "policy" in asked:
        asked["policy"] = f"version: 1\ntopics: [{{match: {topic}, {asked['policy']}}}]\n"
    before = judged(world, topic, **asked)
    assert code in codes(before)
    carry_out(before["advice"]["kafka_configs"])

    def as_advised() -> bool:  # brokers learn of it one after the other
        live = judged(world, topic, **asked)["settings"]
        return all(live[key] == value for key, value in before["advice"]["settings"].items())

    wait_until(as_advised, "the new settings")
    after = judged(world, topic, **asked)
    assert code not in codes(after)
    assert codes(after) == set(before["advice"]["then_dangers"])
    assert after["advice"]["kafka_configs"] is None, "advice that was taken is not given again"
    assert after["at_most"] == before["advice"]["then_at_most"]


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
    assert codes(before) == {"future-timestamps"}
    assert before["at_most"]["ahead_ms"] == pytest.approx(3 * DAY, abs=MINUTE)
    assert "partition 0, offset 1 is stamped" in before["dangers"][0]["text"]
    assert "kafka-delete-records.sh, offset 2" in before["dangers"][0]["remedy"]
    carry_out(before["advice"]["kafka_configs"])
    wait_until(lambda: _refuses_the_future(world, topic), "the broker to refuse such stamps")
    world.delete_records(topic, world.ends(topic)[1])
    trimmed = judged(world, topic)
    assert "(trimmed, its segment is still there)" in trimmed["dangers"][0]["text"]
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


def _has_lost_some(world: World, topic: str) -> bool:
    return world.ends(topic)[0] > 0


@pytest.mark.thorough
def test_active_topic_keeps_between_retention_and_the_advised_maximum(advised: Shop) -> None:
    """The guide's formula, watched: the oldest record that can be read, over some rounds of segments."""
    world, _ = advised
    topics = [
        world.topic("adv-watched", retention_ms="1000", segment_ms="2000", message_timestamp_type=kind)
        for kind in ("CreateTime", "LogAppendTime")
    ]
    written: dict[tuple[str, int], float] = {}
    stop = threading.Event()

    def delivered(_error: object, message: Any) -> None:
        written[message.topic(), message.offset()] = time.time()

    def write() -> None:
        producer = Producer({"bootstrap.servers": world.bootstrap, "logger": QUIET, "linger.ms": 0})
        while not stop.wait(0.05):
            for topic in topics:
                producer.produce(topic, b"x", on_delivery=delivered)
            producer.flush(10)

    writer = threading.Thread(target=write)
    writer.start()
    oldest = dict.fromkeys(topics, 0.0)
    try:
        with reader_for(world.bootstrap) as reader:
            reading = read_topics(reader, topics, None, now_ms)
        said = [at_most(state, reading.now_ms) for state in reading.topics]
        for topic in topics:  # a broker begins to look half a minute after its start
            wait_until(functools.partial(_has_lost_some, world, topic), "the first segment to go")
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for topic in topics:
                start, end = world.ends(topic)
                if start < end and (topic, start) in written:
                    oldest[topic] = max(oldest[topic], (time.time() - written[topic, start]) * 1000)
    finally:
        stop.set()
        writer.join()
    for one, seen in zip(said, oldest.values(), strict=True):
        assert isinstance(one, AtMost)
        assert (one.settings_ms, one.readable_ms) == (3000, 4000)
        assert seen > 2000, "far more than retention.ms: brokers delete whole segments"
        assert seen < 4000 + 1000, "and no more than is said; a busy machine's broker may be late"
