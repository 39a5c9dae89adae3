"""kretain's own two topics: made, found right or wrong, written to by who may (docs/live-settings.md; G5)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.writer import Appended, ClusterWriter
from retention_cli.policy.live import POLICY_TOPIC
from retention_cli.state.own_topics import OWN_TOPICS, STATE_TOPIC
from tests.support.clusters import EmbeddedKafka
from tests.support.ledger_stores import make_kretain_topics, memories_of, run
from tests.support.says import refusal, says
from tests.support.world import World, consumed, now_ms, reader_for, written


@pytest.fixture
def fresh(world: World) -> Iterator[World]:
    """A cluster without either topic; afterwards both are there again."""
    delete_both(world)
    yield world
    delete_both(world)
    make_kretain_topics(world.bootstrap)


def delete_both(world: World) -> None:
    for topic in OWN_TOPICS:
        if topic in world.admin.list_topics(timeout=60).topics:
            world.delete(topic)


def config(world: World, topic: str) -> dict[str, str]:
    world.await_leaders(topic, 1)  # any broker may be asked
    return {name: entry.value for name, entry in world.settings(topic).items()}


def test_init_creates_both_topics_and_reports_them_as_existing_the_second_time(fresh: World) -> None:
    dry = run(fresh, "cluster", "init", "--dry-run", check=0)
    assert re.search(r"_kretain_policy\s+would be created\s+1\s+3\n_kretain_state\s+would be created\s+1\s+3", dry.out)
    made = run(fresh, "cluster", "init", "--yes", check=0)
    assert re.search(r"_kretain_policy\s+created\s+1\s+3\n_kretain_state\s+created\s+1\s+3", made.out)
    settings = {topic: config(fresh, topic) for topic in OWN_TOPICS}
    keys = ("cleanup.policy", "min.insync.replicas", "message.timestamp.type")
    assert {topic: [values[key] for key in keys] for topic, values in settings.items()} == {
        POLICY_TOPIC: ["compact", "2", "CreateTime"],
        STATE_TOPIC: ["compact", "2", "LogAppendTime"],
    }
    again = run(fresh, "cluster", "init", "--yes", "-o", "json", check=0)
    assert [row["outcome"] for row in again.json()["topics"]] == ["there", "there"]
    assert settings == {topic: config(fresh, topic) for topic in OWN_TOPICS}


def test_init_honours_the_replication_factor(fresh: World) -> None:
    run(fresh, "cluster", "init", "--yes", "--replication-factor", "1", check=0)
    assert len(fresh.admin.list_topics(STATE_TOPIC, timeout=60).topics[STATE_TOPIC].partitions[0].replicas) == 1
    assert config(fresh, STATE_TOPIC)["min.insync.replicas"] == "1"
    delete_both(fresh)
    refused = run(fresh, "cluster", "init", "--yes", "--replication-factor", "9", check=1)
    says(
        refused.err,
        "topic _kretain_policy could not be created: ",
        "fewer brokers than the requested replicas",
    )


def test_misconfigured_topic_is_an_error_with_its_remedy(fresh: World) -> None:
    """A topic that is not compacted forgets by age; one that brokers don't stamp can't check a clock."""
    fresh.topic(name=STATE_TOPIC, cleanup_policy="delete")
    done = run(fresh, "cluster", "init", "--yes", check=1)
    says(done.out, "_kretain_policy  created", "exists, wrong settings")
    line = next(one for one in done.err.splitlines() if "kafka-configs.sh" in one)
    assert line.startswith(
        "kretain: topic _kretain_state has cleanup.policy=delete and message.timestamp.type=CreateTime: "
    )
    with reader_for(fresh.bootstrap) as reader:
        lost = memories_of(fresh.state_dir, "cluster", reader)("any").lost
    assert lost is not None
    assert "kafka-configs.sh" in lost.reasons[0].text
    # What the line says, without Kafka's tool.
    added = line.rpartition("--add-config ")[2].split(",")
    fresh.configure(STATE_TOPIC, dict(one.split("=", 1) for one in added))
    assert "exists" in run(fresh, "cluster", "init", "--yes", check=0).out


def test_topic_of_several_partitions_is_an_error_and_holds(fresh: World) -> None:
    """The order of messages in two partitions can't be told, so which is the last word can't either."""
    fresh.topic(name=POLICY_TOPIC, partitions=2, cleanup_policy="compact")
    wrong = "topic _kretain_policy has 2 partitions, not 1"
    assert wrong in run(fresh, "cluster", "init", "--yes", check=1).err
    topic = fresh.filled(3)
    found = fresh.decide(f"version: 1\ntopics: [{{match: {topic}, retention.ms: cluster}}]", topic)
    assert (found.action, [reason.code for reason in found.reasons]) == ("hold", ["policy-topic"])
    assert wrong in found.reasons[0].text


def test_doctor_names_the_topics_that_a_policy_needs(fresh: World, tmp_path: Path) -> None:
    topic = fresh.topic()
    policy = written(tmp_path / "policy.yaml", f"state: cluster\n{consumed(topic)}\n    retention.ms: cluster\n")

    def found(code: int) -> dict[str, list[str]]:
        texts: dict[str, list[str]] = {}
        for one in run(fresh, "doctor", "-p", str(policy), "-o", "json", check=code).json()["checks"]:
            texts.setdefault(one["check"], []).append(f"{one['verdict']}: {one['text']}")
        return texts

    before = found(1)
    assert before["live settings"][0].startswith("missing: topic _kretain_policy does not exist")
    assert before["memory"][0].startswith("missing: topic _kretain_state does not exist")
    make_kretain_topics(fresh.bootstrap)
    after = found(0)
    for check, own in (("live settings", "_kretain_policy"), ("memory", "_kretain_state")):
        assert f"good: READ on {own}" in after[check]
        assert any(f"no authorizer: every user may write to {own}" in one for one in after[check])
    assert after["clock"] == ["good: WRITE on _kretain_state"]


def test_policy_pattern_never_matches_kretains_topics(world: World) -> None:
    """G5."""
    make_kretain_topics(world.bootstrap)
    plan = world.plan('version: 1\ntopics:\n  - match: "*"\n    retention.ms: 1')
    assert {one.action for one in plan.decisions if one.topic in OWN_TOPICS} == {"skip"}


# -- the writer ------------------------------------------------------------------------------


def test_append_returns_offset_and_broker_timestamp(kafka: EmbeddedKafka, world: World) -> None:
    make_kretain_topics(kafka.bootstrap)
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, OWN_TOPICS, 30) as writer:
        before, end = now_ms(), world.ends(STATE_TOPIC)[1]
        many = writer.append_all(STATE_TOPIC, [(b"clock", b"%d" % number) for number in range(50)])
        appended = [one for one in many if isinstance(one, Appended)]
        assert [(one.partition, one.offset) for one in appended] == [(0, end + number) for number in range(50)]
        assert before - 1_000 <= (appended[0].broker_ms or 0) <= now_ms() + 1_000
        assert writer.append(POLICY_TOPIC, b"nobody", None).broker_ms is None, "CreateTime is our own word"
        assert writer.create(STATE_TOPIC, 1, {}) is False


def test_writer_refuses_any_other_topic(kafka: EmbeddedKafka, world: World) -> None:
    topic = world.topic()
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, {STATE_TOPIC}, 30) as writer:
        for name in (topic, POLICY_TOPIC):
            said = [
                refusal(ValueError, writer.append, name, b"k", b"v"),
                refusal(ValueError, writer.create, name, 1, {}),
            ]
            assert ["this writer is for _kretain_state" in one for one in said] == [True, True], said
    assert world.ends(topic) == (0, 0)


def test_unreachable_cluster_is_reported_in_time_without_client_logs(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with ClusterWriter(ConnectionSettings("127.0.0.1:1", password="hunter2"), OWN_TOPICS, 1.0) as writer:
        says(
            refusal(BrokerError, writer.append, STATE_TOPIC, b"k", b"v"),
            "topic _kretain_state could not be written to: no answer within 1 s (",
        )
        says(refusal(BrokerError, writer.create, STATE_TOPIC, 1, {}), "topic _kretain_state could not be created: ")
    assert time.monotonic() - began < 25
    assert capfd.readouterr() == ("", "")


def test_undeliverable_message_fails_without_affecting_others(fresh: World) -> None:
    with reader_for(fresh.bootstrap) as reader, ClusterWriter(reader.settings, OWN_TOPICS, 30) as writer:
        says(
            refusal(BrokerError, writer.append, STATE_TOPIC, b"k", b"v"),
            "it does not exist: kretain cluster init creates it",
        )
        make_kretain_topics(fresh.bootstrap)
        assert "too large" in refusal(BrokerError, writer.append, STATE_TOPIC, b"k", b"v" * 2_000_000)
        assert writer.append(STATE_TOPIC, b"k", None).offset == 0
