"""What advice can't read is said, and what depends on it is not judged: rights, old brokers, leaders that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kretain.embedded import EmbeddedKafka
from tests.conftest import QUICK
from tests.support.advising import MIB, MINUTE, codes, judged
from tests.support.world import DAY, HOUR, World, run_cli, wait_until

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
    config = folder / "bob.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=bob\nsasl.password={SECRET}\n"
    )
    with EmbeddedKafka(1, settings=settings, secure_protocol="SASL_PLAINTEXT") as cluster:
        world = World(cluster.bootstrap, folder / "state")
        topic = world.filled([MINUTE] * 10, retention_ms=str(HOUR), retention_bytes=str(MIB))
        allow(world, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        config.write_text(f"{config.read_text()}bootstrap.servers={cluster.secure_bootstrap}\n")
        yield world, topic, config


def allow(world: World, kind: ResourceType, name: str, operation: AclOperation) -> None:
    literal, yes = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    for future in world.admin.create_acls([AclBinding(kind, name, literal, "User:bob", "*", operation, yes)]).values():
        future.result(30)


def test_missing_rights_make_advice_unknown_and_are_named(guarded: tuple[World, str, Path]) -> None:
    """From no setting and no size to all, one right after the other."""
    world, topic, config = guarded

    def asked() -> dict[str, Any]:
        done = run_cli("advise", topic, "-c", str(config), "-o", "json", check=0)
        return done.json()["topics"][0]

    def text(row: dict[str, Any]) -> str:
        return " ".join(reason["text"] for reason in row["unknown"])

    row = asked()
    assert (row["at_most"], row["normal"], codes(row)) == (None, None, set())
    assert row["advice"]["kafka_configs"] is None
    assert row["advice"]["policy_entry"] is None
    for said in (
        "the topic's settings can't be read: this user needs DESCRIBE_CONFIGS on the topic",
        "broker 1's settings can't",
        "sizes on disk",
    ):
        assert said in text(row), said
    assert row["by_partition"][0]["records_last_hour"] == 10, "what can be read is there"
    table = run_cli("advise", topic, "-c", str(config), check=0).out
    assert "none seen" in table
    assert "Not known, and so not judged" in table

    allow(world, ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["at_most"] is not None, "the topic's settings to be readable")
    row = asked()
    assert (row["at_most"]["settings_ms"], row["at_most"]["readable_ms"]) == (7 * DAY + HOUR, None)
    assert codes(row) == set(), "whether traffic fills a segment sooner can't be told without sizes"
    assert "7d 1h + ?" in run_cli("advise", topic, "-c", str(config), check=0).out

    allow(world, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    allow(world, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["unknown"] == [], "all to be readable")
    row = asked()
    assert codes(row) == {"segment-above-retention"}
    assert f"--command-config {config}" in row["advice"]["kafka_configs"]


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.3.2", "3.9.1"])
def test_old_brokers_give_the_advice_that_they_can(version: str, tmp_path: Path) -> None:
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
        if version == "2.8.2":
            assert codes(row) == {"segment-above-retention"}
            assert [reason["code"] for reason in row["unknown"]] == ["traffic"]
        else:
            assert codes(row) == {"segment-above-retention", "future-timestamps"}
            assert row["unknown"] == []


@pytest.mark.long
def test_partition_without_a_leader_is_unknown_and_others_are_judged(tmp_path: Path) -> None:
    with EmbeddedKafka(3, settings=QUICK) as cluster:
        world = World(",".join(node.address for node in cluster.nodes[:2]), tmp_path)
        config = {"retention.ms": str(HOUR), "segment.ms": str(7 * DAY)}
        world.admin.create_topics([NewTopic("t", 2, replica_assignment=[[1], [3]], config=config)])["t"].result(60)
        world.await_leaders("t", 2)
        for partition in (0, 1):
            world.produce("t", [MINUTE], partition)
        cluster.node(3).kill()
        wait_until(lambda: world.admin.list_topics("t", timeout=10).topics["t"].partitions[1].leader < 0, "no leader")
        row = judged(world, "t")
        assert [(d["code"], d["partitions"]) for d in row["dangers"]] == [("segment-above-retention", [0])]
        assert row["by_partition"][1]["log_start"] is None
        assert any("has no leader" in reason["text"] for reason in row["unknown"])
        assert row["traffic"]["records_per_hour"] is None
