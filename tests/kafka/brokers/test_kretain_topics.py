"""kretain's own two topics: made, found right or wrong, written to by who may; live settings (docs/live-settings.md; G5, R3)."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.writer import Appended, ClusterWriter
from retention_cli.core.grouping import by_key
from retention_cli.policy.live import POLICY_TOPIC, LiveEditError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import merged
from retention_cli.state import own_topics
from retention_cli.state.own_topics import OWN_TOPICS, STATE_TOPIC
from tests.support.clusters import EmbeddedKafka, kafka_tool
from tests.support.facts import why
from tests.support.ledger_stores import make_kretain_topics, memories_of, run
from tests.support.says import refusal, says
from tests.support.world import (
    DAY,
    HOUR,
    Cli,
    World,
    consumed,
    end_transaction,
    now_ms,
    reader_for,
    wait_until,
    written,
)


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
    says(
        run(fresh, "cluster", "init", "--yes", "--replication-factor", "9", check=1).err,
        "topic _kretain_policy could not be created: ",
        "fewer brokers than the requested replicas",
    )


def test_misconfigured_topic_is_an_error_with_its_remedy(fresh: World) -> None:
    """A topic that is not compacted forgets by age; one that brokers don't stamp can't check a clock."""
    fresh.topic(name=STATE_TOPIC, cleanup_policy="delete")
    done = run(fresh, "cluster", "init", "--yes", check=1)
    says(done.out, "_kretain_policy  created", "exists, not usable")
    line = next(one for one in done.err.splitlines() if "kafka-configs.sh" in one)
    assert line.startswith(
        "kretain: topic _kretain_state has cleanup.policy=delete and message.timestamp.type=CreateTime: "
    )
    with reader_for(fresh.bootstrap) as reader:
        lost = memories_of(fresh.state_dir, "cluster", reader)("any").lost
    assert "kafka-configs.sh" in why(lost)
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


def test_live_settings_of_which_messages_were_deleted_hold_the_topics_that_mark_any(fresh: World) -> None:
    """The one about this topic may have been among them: without it, the file's shorter time of R1 counts again."""
    make_kretain_topics(fresh.bootstrap)
    topic = fresh.filled(OLD, {"a": 3})
    times = "retention.commitoffset.hours: 1, retention.commitoffset.ms: cluster"
    policy = f"version: 1\ntopics: [{{match: {topic}, retention.commitoffset.enable: true, {times}}}]"
    with reader_for(fresh.bootstrap) as reader, ClusterWriter(reader.settings, OWN_TOPICS, 30) as writer:
        writer.append(POLICY_TOPIC, topic.encode(), b'{"retention.commitoffset.ms": "90d"}')
        writer.append(POLICY_TOPIC, b"another", b'{"unconsumed": "hold"}')
    assert fresh.decide(policy, topic).action == "keep"
    fresh.configure(POLICY_TOPIC, {"cleanup.policy": "delete"})
    World(fresh.bootstrap, Path()).delete_records(POLICY_TOPIC, 1)
    fresh.configure(POLICY_TOPIC, {"cleanup.policy": "compact"})
    found = fresh.decide(policy, topic)
    assert (found.action, [reason.code for reason in found.reasons]) == ("hold", ["policy-topic"])
    deleted = "the messages of topic _kretain_policy before offset 1 were deleted, not compacted: delete it ("
    says(found.reasons[0].text, deleted)
    done = run(fresh, "cluster", "init", "--yes", check=1)
    says(done.out, "_kretain_policy  exists, not usable")
    says(done.err, deleted)


def left_open(world: World, own: str, *keys: str) -> Producer:
    """Write a message of each key in a transaction, and leave it open."""
    producer = world.begin_transaction()
    for key in keys:
        producer.produce(own, b"{}", key)
    assert producer.flush(30) == 0
    return producer


def test_open_transaction_on_the_policy_topic_holds_what_it_hides(fresh: World, tmp_path: Path) -> None:
    """Later messages are acknowledged, and only the last one about a topic counts: it may take a setting back."""
    make_kretain_topics(fresh.bootstrap)
    topic = fresh.filled(OLD)
    text = f"version: 1\ntopics: [{{match: {topic}, retention.ms: cluster, unconsumed: trim}}]"
    policy = str(written(tmp_path / "policy.yaml", text))
    run(fresh, "policy", "set", topic, "retention.ms=1h", "-p", policy, check=0)
    assert fresh.decide(text, topic).action == "trim"
    producer = left_open(fresh, POLICY_TOPIC, "another")
    found = fresh.decide(text, topic)
    assert (found.action, [reason.code for reason in found.reasons]) == ("hold", ["policy-topic"])
    says(found.reasons[0].text, "an open transaction hides _kretain_policy-0 from offset 1 on", "find-hanging")
    says(run(fresh, "policy", "set", topic, "retention.ms=9h", "-p", policy, check=1).err, "an open transaction hides")
    end_transaction(producer, commit=False)
    wait_until(lambda: fresh.decide(text, topic).action == "trim", "the transaction's marker")


def test_open_transaction_on_the_state_topic_loses_the_shared_memory(fresh: World) -> None:
    """F6: what others have written after it can't be read, such as a group that is gone by now."""
    make_kretain_topics(fresh.bootstrap)
    producer = left_open(fresh, STATE_TOPIC, "another")
    with reader_for(fresh.bootstrap) as reader:
        lost = memories_of(fresh.state_dir, "cluster", reader)("any").lost
        producer.abort_transaction(30)
    assert "an open transaction hides _kretain_state-0 from offset 0 on" in why(lost)


def test_doctor_names_the_topics_that_a_policy_needs(fresh: World, tmp_path: Path) -> None:
    topic = fresh.topic()
    policy = written(tmp_path / "policy.yaml", f"state: cluster\n{consumed(topic)}\n    retention.ms: cluster\n")

    def found(code: int) -> dict[str, list[str]]:
        checks = run(fresh, "doctor", "-p", str(policy), "-o", "json", check=code).json()["checks"]
        return by_key((one["check"], f"{one['verdict']}: {one['text']}") for one in checks)

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
            says(refusal(ValueError, writer.append, name, b"k", b"v"), "this writer is for _kretain_state")
            says(refusal(ValueError, writer.create, name, 1, {}), "this writer is for _kretain_state")
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


# -- live settings (R3, docs/live-settings.md) -------------------------------------------------


DOC = (Path(__file__).parents[3] / "docs" / "live-settings.md").read_text(encoding="utf-8")
OLD = [72 * HOUR, 48 * HOUR, 2 * HOUR]


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    make_kretain_topics(kafka.bootstrap)


@pytest.fixture
def writer(kafka: EmbeddedKafka) -> Iterator[ClusterWriter]:
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, {POLICY_TOPIC}, 30) as made:
        yield made


def marked(topic: str, *more: str) -> str:
    lines = ["log.retention.min.timestamp: cluster", "unconsumed: trim", *more]
    return "\n".join(["version: 1", "topics:", f"  - match: {topic}", *(f"    {line}" for line in lines)])


@pytest.fixture
def journal(world: World, tmp_path: Path) -> tuple[World, str, Path]:
    """A topic whose minimum timestamp lives in the cluster, and its policy file."""
    topic = world.filled(OLD, stem="journal")
    return world, topic, written(tmp_path / "policy.yaml", marked(topic))


def trim_to(world: World, policy: Path, topic: str) -> int | None:
    return world.decide(policy.read_text(), topic).trim_to


Journal = tuple[World, str, Path]


def test_set_and_unset_move_the_minimum_timestamp(journal: Journal) -> None:
    world, topic, policy = journal

    def move(to_ms: int, *more: str) -> Cli:
        pair = f"log.retention.min.timestamp={to_ms}"
        return run(world, "policy", "set", topic, pair, "-p", str(policy), *more, check=0)

    at = now_ms()
    shown = f"{topic}: log.retention.min.timestamp = {at - DAY} (dry run: nothing was written).\n"
    assert (move(at - DAY, "--dry-run").out, trim_to(world, policy, topic)) == (shown, None)
    said = move(at - DAY)
    assert re.fullmatch(
        rf"{topic}: log\.retention\.min\.timestamp = {at - DAY} \({POLICY_TOPIC}-0 offset [\d,]+\)\.\n", said.out
    )
    assert (said.err, trim_to(world, policy, topic)) == ("", 2)
    move(at - 60 * HOUR)
    assert trim_to(world, policy, topic) == 1
    ahead = move(at + 10 * DAY)
    assert "is in the future: until then it holds, unless the policy file says allow.empty: true" in ahead.err
    assert world.decide(policy.read_text(), topic).action == "hold"
    policy.write_text(marked(topic, "allow.empty: true"))
    assert (move(at + 10 * DAY).err, trim_to(world, policy, topic)) == ("", 3)
    run(world, "policy", "unset", topic, "-p", str(policy), check=0)
    assert world.decide(policy.read_text(), topic).action == "keep"


def test_set_without_a_policy_file_is_a_usage_error(journal: Journal) -> None:
    world, topic, _ = journal
    assert "no policy file" in run(world, "policy", "set", topic, "retention.ms=7d", check=2).err
    assert "is not KEY=VALUE" in run(world, "policy", "set", topic, "retention.ms", check=2).err


def test_garbage_as_the_last_message_holds_until_it_is_replaced(journal: Journal, writer: ClusterWriter) -> None:
    """What stood before must not be in force until a log cleaner runs, and hold then (docs/live-settings.md)."""
    world, topic, policy = journal
    run(world, "policy", "set", topic, f"log.retention.min.timestamp={now_ms() - DAY}", "-p", str(policy), check=0)
    assert trim_to(world, policy, topic) == 2
    bad = writer.append(POLICY_TOPIC, topic.encode(), b"nonsense")
    found = world.decide(policy.read_text(), topic)
    assert (found.action, [reason.code for reason in found.reasons]) == ("hold", ["policy-topic"])
    assert f"{POLICY_TOPIC}-0 offset {bad.offset:,}, for topic {topic}: is not JSON" in found.reasons[0].text
    assert "so the topic is held" in run(world, "policy", "check", "-p", str(policy), check=1).err
    shown = run(world, "policy", "show", topic, "-p", str(policy), check=0).out
    assert re.search(r"log\.retention\.min\.timestamp\s+cluster \(held\)", shown)
    set_right = run(world, "policy", "set", topic, "log.retention.min.timestamp=0", "-p", str(policy), check=0)
    assert f"kretain: replaced: {POLICY_TOPIC}-0 offset {bad.offset:,}, for topic {topic}: is not" in set_right.err
    assert run(world, "policy", "check", "-p", str(policy), check=0).err.count(topic) == 0
    assert world.decide(policy.read_text(), topic).action == "keep"


def test_concurrent_sets_of_different_keys_are_merged(journal: Journal, writer: ClusterWriter) -> None:
    """Two people set different keys of one topic at the same time: both hold."""
    world, topic, _ = journal
    policy = parse_policy(marked(topic, "retention.ms: cluster"), "policy.yaml", "sha256:test")
    turns: list[dict[str, Any]] = []

    def edit(before: dict[str, Any]) -> dict[str, Any]:
        if not turns:
            writer.append(POLICY_TOPIC, topic.encode(), b'{"retention.ms": "7d"}')
        turns.append(before)
        return merged(before, {"log.retention.min.timestamp": 5})

    with reader_for(world.bootstrap) as reader:
        done = own_topics.change(reader, writer, policy, topic, edit)
        assert (done.values, len(turns)) == ({"retention.ms": "7d", "log.retention.min.timestamp": 5}, 2)

        def always(before: dict[str, Any]) -> dict[str, Any]:
            writer.append(POLICY_TOPIC, topic.encode(), b'{"retention.ms": "7d"}')
            return before

        assert "another client keeps writing settings of topic" in refusal(
            LiveEditError, own_topics.change, reader, writer, policy, topic, always
        )


# -- applications: what the page shows --------------------------------------------------------


def example(language: str, word: str) -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", DOC, re.DOTALL) if word in text)


def test_documented_python_example_moves_the_minimum(journal: Journal) -> None:
    world, topic, policy = journal
    names: dict[str, Any] = {}
    exec(compile(example("python", "def move_minimum"), "live-settings.md", "exec"), names)  # noqa: S102
    names["move_minimum"](world.bootstrap, topic, now_ms() - DAY)
    assert trim_to(world, policy, topic) == 2


@pytest.mark.long
def test_documented_console_producer_moves_the_minimum(journal: Journal) -> None:
    """Kafka's own class, with the page's own line for it."""
    world, topic, policy = journal
    line = example("console", "kafka-console-producer.sh").removeprefix("$ ").replace("\\\n", " ")
    printed, _, command = line.partition("|")
    script, *words = shlex.split(command)
    assert script == "kafka-console-producer.sh"
    text = shlex.split(printed)[1].replace("\\t", "\t").replace("\\n", "\n")
    text = text.replace("journal", topic).replace("1793491200000", str(now_ms() - DAY))
    done = subprocess.run(
        kafka_tool("ConsoleProducer", *(world.bootstrap if word == "broker-1:9092" else word for word in words)),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert trim_to(world, policy, topic) == 2
