"""Advice on a real cluster: each danger where a topic has it, gone once the advised line was carried out; what it can't read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    ResourceType,
)

from tests.conftest import QUICK
from tests.support.advising import ANY_STAMP, Shop, advice, carry_out, codes, judged
from tests.support.clusters import EmbeddedKafka
from tests.support.says import says
from tests.support.secured import allow
from tests.support.world import DAY, HOUR, MIB, MINUTE, QUIET, World, now_ms, run_cli, wait_until, written

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
    found = {row["topic"]: (codes(row), row["unknown"]) for row in rows}
    assert found == {names[stem]: (dangers, []) for stem, dangers in DANGERS.items()}


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


SECRET = "hunter2"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str, Path]]:
    """A cluster in which bob may at first describe the one topic, and nothing else."""
    settings = QUICK | {
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="{SECRET}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("guarded")
    config = written(
        folder / "bob.properties",
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=bob\nsasl.password={SECRET}\n",
    )
    with EmbeddedKafka(1, settings=settings, secure_protocol="SASL_PLAINTEXT") as cluster:
        world = World(cluster.bootstrap, folder / "state")
        topic = world.filled([MINUTE] * 10, retention_ms=str(HOUR), retention_bytes=str(MIB))
        allow(world, "bob", ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        config.write_text(f"{config.read_text()}bootstrap.servers={cluster.secure_bootstrap}\n")
        yield world, topic, config


def test_missing_rights_make_advice_unknown_and_are_named(guarded: tuple[World, str, Path]) -> None:
    """From no setting and no size to all, one right after the other."""
    world, topic, config = guarded

    def asked() -> dict[str, Any]:
        return run_cli("advise", topic, "-c", str(config), "-o", "json", check=0).json()["topics"][0]

    row = asked()
    found = row["advice"]
    assert [row["at_most"], row["normal"], found["kafka_configs"], found["policy_entry"]] == [None] * 4
    says(
        " ".join(reason["text"] for reason in row["unknown"]),
        "the topic's settings can't be read: this user needs DESCRIBE_CONFIGS on the topic",
        "broker 1's settings can't",
        "sizes on disk",
    )
    assert (codes(row), row["by_partition"][0]["records_last_hour"]) == (set(), 10), "what can be read is there"
    says(run_cli("advise", topic, "-c", str(config), check=0).out, "none seen", "Unknown, so not checked")

    allow(world, "bob", ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["at_most"] is not None, "the topic's settings to be readable")
    row = asked()
    assert (row["at_most"]["settings_ms"], row["at_most"]["readable_ms"]) == (7 * DAY + HOUR, None)
    assert codes(row) == set(), "whether traffic fills a segment sooner can't be told without sizes"
    assert "7d 1h + ?" in run_cli("advise", topic, "-c", str(config), check=0).out

    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["unknown"] == [], "all to be readable")
    row = asked()
    assert codes(row) == {"segment-above-retention"}
    assert f"--command-config {config}" in row["advice"]["kafka_configs"]


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
