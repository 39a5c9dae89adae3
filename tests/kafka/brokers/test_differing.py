"""Brokers that differ, as while settings change: in super users, defaults of topics, and the ACLs that they know."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from retention_cli.brokers.metadata import OFFSETS_TOPIC
from tests.conftest import QUICK
from tests.support.client_files import PLAIN, SASL, properties
from tests.support.clusters import EmbeddedKafka
from tests.support.leaders import lead_by
from tests.support.says import held
from tests.support.secured import allow, ask
from tests.support.world import OLD, World, consumed, group_coordinated_by, written

SUPER, LIMITED = 1, 2
TOPICS, GROUPS = (ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*")
CLUSTER = (ResourceType.BROKER, "kafka-cluster")


class MixedKafka(EmbeddedKafka):
    def _properties(self, node_id: int, *more: Any) -> dict[str, str]:
        users, defaults = ["User:ANONYMOUS"], {}
        if node_id == SUPER:
            users += [f"User:{one}" for one in ("clustered", "scoped", "listing")]
            defaults = {"log.message.timestamp.type": "LogAppendTime", "log.cleanup.policy": "delete"}
        own = super()._properties(node_id, *more) | {"log.cleanup.policy": "compact,delete"}
        return own | defaults | {"super.users": ";".join(users)}


@pytest.fixture(scope="module")
def mixed() -> Iterator[EmbeddedKafka]:
    users = 'user_clustered="s" user_scoped="s" user_listing="s"'
    settings = QUICK | {
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "offsets.topic.num.partitions": "6",
    }
    with MixedKafka(2, settings=settings, secure_protocol="SASL_PLAINTEXT") as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("user", "rights", "rule"),
    [
        ("clustered", [TOPICS], "{}"),
        ("scoped", [TOPICS], "{scope: 'scoped-*', require: [FAST]}"),
        ("listing", [CLUSTER, GROUPS, (ResourceType.TOPIC, OFFSETS_TOPIC)], "{}"),
    ],
    ids=["the cluster", "a scope", "the topic"],
)
def test_rights_on_one_broker_show_nothing_that_another_broker_hides(
    mixed: EmbeddedKafka, tmp_path: Path, user: str, rights: Sequence[tuple[ResourceType, str]], rule: str
) -> None:
    """F8: each broker lists and reads the groups that it coordinates, by the rights that it knows."""
    world = World(mixed.bootstrap, tmp_path / "state")
    topic = world.filled(OLD, cleanup_policy="delete", message_timestamp_type="CreateTime")
    lead_by(world, topic, SUPER)
    fast, slow = (group_coordinated_by(world.bootstrap, broker, user) for broker in (SUPER, LIMITED))
    world.commit(fast, topic, 10)
    world.commit(slow, topic, 2)
    for kind, name in rights:
        allow(world, user, kind, name, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    config = properties(tmp_path, **SASL, sasl_username=user, sasl_password="s")
    policy = written(tmp_path / "policy.yaml", f"{consumed(topic)}\ngroups: {rule.replace('FAST', fast)}\n")
    said = [ask(mixed, config, "plan", "-p", str(policy), "-o", "json") for _ in range(10)]
    decided = [row for one in said if one.code == 0 for row in one.json()["partitions"]]
    assert {row["trim_to"] for row in decided} == {None}, slow
    assert "F8" in {reason["code"] for row in decided for reason in row["reasons"]}


def test_default_of_one_broker_is_not_that_of_another_which_leads(mixed: EmbeddedKafka, tmp_path: Path) -> None:
    """G5: the leader compacts it. G3: the leader lets producers stamp records, so stamps don't say when it wrote them."""
    world = World(mixed.bootstrap, tmp_path / "state")
    compacted = world.filled(OLD, message_timestamp_type="CreateTime")
    stamped = world.topic(cleanup_policy="delete")
    lead_by(world, stamped, SUPER)
    world.produce(stamped, OLD)  # it stamps them now
    time.sleep(3)
    for topic in (compacted, stamped):
        lead_by(world, topic, LIMITED)
        world.produce(topic, OLD)
        world.commit(f"{topic}-a", topic, 20)
    assert "different defaults of cleanup.policy" in held(world.decide(consumed(compacted), compacted), "G5")
    held(world.decide(consumed(stamped, "1s", retention__min__wallclock__ms="2s"), stamped), "G3")
