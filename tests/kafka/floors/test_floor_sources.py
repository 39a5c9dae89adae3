"""Consumers outside Kafka's groups on real brokers (F7): files as Kafka's tool writes them, commands, ZooKeeper, Spark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (  # type: ignore[attr-defined]
    AcknowledgeType,
    ShareConsumer,
)
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kretain.embedded import jars
from tests.support.clusters import kafka_tool
from tests.support.facts import known
from tests.support.leaders import configure_group, from_the_start
from tests.support.says import held, json_of, pick, rows_of, says
from tests.support.spark.hadoop import zookeeper
from tests.support.trims import only
from tests.support.world import DAY, HOUR, OLD, World, codes, consumed, now_ms, reader_for, wait_until, written


def write(place: Path, **positions: int) -> None:
    rows = [{"topic": topic, "partition": 0, "offset": offset} for topic, offset in positions.items()]
    place.write_text(json.dumps({"at": now_ms(), "positions": rows}))


def with_file(topic: str, place: Path) -> str:
    return f"{consumed(topic)}\nfloors:\n  - {{file: {place}, name: flink}}"


def said(decision: Any) -> list[str]:
    return [f"{one.code}: {one.text}" for one in decision.reasons]


def test_positions_exported_by_kafkas_tool_are_floors(world: World, topic: str, tmp_path: Path) -> None:
    """Of a group in another cluster, say: its file counts here. Its age is the file's."""
    world.commit(f"{topic}-slow", topic, 3)
    of = ("--bootstrap-server", world.bootstrap, "--group", f"{topic}-slow", "--all-topics", "--to-current", "--export")
    exported = subprocess.check_output(
        kafka_tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", *of), text=True, timeout=120
    )
    world.delete_group(f"{topic}-slow")
    decision = world.decide(with_file(topic, written(tmp_path / "slow.csv", exported)), topic, remember=False)
    assert pick(decision, "trim_to", "min_commit_by") == (3, "file:flink")


def test_source_no_longer_in_the_policy_is_mentioned(world: World, topic: str, tmp_path: Path) -> None:
    """Its positions count for nothing then (F7); the ledger knows them still."""
    place = tmp_path / "flink.json"
    write(place, **{topic: 4})
    assert world.plan(with_file(topic, place)).notes == []
    assert world.plan(consumed(world.filled(OLD))).notes == [], "it has no position there"
    says = (
        "kretain remembers file:flink, but no entry of floors names it, so it counts for nothing; "
        "if that is intended: kretain groups forget -b HOST:PORT file:flink"
    )
    for policy in (consumed(topic), with_file(topic, place).replace("name: flink", "name: flink2")):
        assert [(one.code, one.text) for one in world.plan(policy).notes] == [("F7", says)]
    one_off = world.cli("plan", topic, "--consumed-after", "1h", check=0)
    assert "file:flink, file:flink2, but no entry of floors names them, so they count for nothing" in one_off.err
    assert "First run on this cluster:" not in one_off.out
    world.cli("groups", "forget", "file:flink", "file:flink2", check=0)
    assert world.plan(consumed(topic)).notes == []


def test_plans_of_the_first_week_warn_of_groups_expired_before_the_first_look(world: World, topic: str) -> None:
    """Groups whose offsets had expired left no trace (F6): the plans of the first week say so, and groups before them."""
    for looked in (False, True):
        table = world.cli("groups", "--group", f"{topic}*", check=0).out
        assert ("First run on this cluster" in table) != looked
        plan = world.cli("plan", topic, "--consumed-after", "1h", "--all", check=0).out
        assert [ago != "" for ago in re.findall(r"First run on this cluster( [\w ]+ ago)?:", plan)] == [looked]


def test_recheck_reads_the_file_again(world: World, topic: str, tmp_path: Path) -> None:
    place = tmp_path / "flink.json"
    policy = with_file(topic, place)
    write(place, **{topic: 6})
    plan = world.plan(policy)
    assert plan.totals.records == 6
    write(place, **{topic: 4})  # it has gone back
    assert (only(world.trim(plan, policy)).outcome, world.ends(topic)[0]) == ("held", 0)
    place.unlink()
    assert (only(world.trim(plan, policy)).outcome, world.ends(topic)[0]) == ("held", 0)
    write(place, **{topic: 6})
    assert (only(world.trim(plan, policy)).outcome, world.ends(topic)[0]) == ("trimmed", 6)


def test_every_report_names_the_source(world: World, topic: str, tmp_path: Path) -> None:
    place, script = tmp_path / "flink.json", written(tmp_path / "positions", f"#!/bin/sh\necho '{topic},0,5'\n")
    write(place, **{topic: 3})
    script.chmod(0o755)
    more = "\n  - {command: [./positions], name: prod}\n"
    by = ("-p", str(written(tmp_path / "policy.yaml", with_file(topic, place) + more)))
    groups = json_of(world, "groups", *by, "--group", "*:*")["groups"]
    rows = {row["group"]: row for row in groups if row["type"] != "classic"}  # other tests have groups here, too
    assert {name: pick(row, "type", "lag", "topics", "counts") for name, row in rows.items()} == {
        "command:prod": ("command", 5, [topic], "counts"),
        "file:flink": ("file", 7, [topic], "counts"),
    }
    found = json_of(world, "offsets", topic, *by, "--groups")["partitions"]
    assert {row["group"]: row["committed"] for row in found} == {f"{topic}-a": 8, "command:prod": 5, "file:flink": 3}
    assert rows_of(world, "offsets", topic, *by)[topic]["min_commit_by"] == "file:flink"
    assert "file:flink" in world.cli("explain", f"{topic}:0", *by, check=0).out

    def checks() -> list[tuple[str, str]]:
        found = json_of(world, "doctor", *by, check=None)["checks"]
        return [(one["text"], one["verdict"]) for one in found if one["check"] == "floors"]

    assert [text for text, _ in checks()] == [
        "file:flink can be read: it has positions on 1 partition of 1 topic",
        "command:prod can be read: it has positions on 1 partition of 1 topic",
    ]
    place.unlink()
    assert [text for text, verdict in checks() if verdict == "missing"] == [
        f"file:flink can't be read: {place}: no such file or directory; held: every managed topic (F3)"
    ]
    assert "unreadable, so it holds" in world.cli("groups", *by, "--group", "file:*", check=0).out


def test_group_named_like_a_source_does_not_replace_it(world: World, topic: str, tmp_path: Path) -> None:
    """A group whose id is a source's own key: it holds while it is there (F3), and what it commits is never recalled."""
    other, place = world.topic(), tmp_path / "flink.json"
    policy = with_file(topic, place)
    write(place, **{topic: 3})
    assert world.decide(policy, topic).trim_to == 3
    world.commit("\x01file:flink", topic, 9)
    write(place, **{other: 0})
    try:
        assert said(world.decide(policy, topic)) == [
            "F3: group file:flink could not be read: its id begins with a control character"
        ]
    finally:
        world.delete_group("\x01file:flink")
    assert pick(world.decide(policy, topic), "trim_to", "min_commit_by") == (3, "file:flink")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as (address, _process):
        yield address


class Old:
    """What Kafka's old consumers write below a chroot of their own."""

    def __init__(self, address: str, chroot: str) -> None:
        self.place = f"{address}/{chroot}"
        self.client = KazooClient(address)
        self.client.start(20)
        self.client.ensure_path(f"/{chroot}/consumers")
        self.client.chroot = f"/{chroot}"

    def commit(self, group: str, topic: str, offset: object, partition: int = 0) -> None:
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, str(offset).encode())

    def member(self, group: str, topic: str, pattern: str = "static", host: str = "host-1") -> None:
        """Register a live member, as ``ZookeeperConsumerConnector.registerConsumerInZK`` does."""
        about = {"version": 1, "subscription": {topic: 1}, "pattern": pattern, "timestamp": "1500000000000"}
        path = f"/consumers/{group}/ids/{group}_{host}-a"
        self.client.create(path, json.dumps(about).encode(), ephemeral=True, makepath=True)

    def own(self, group: str, topic: str, partition: int = 0) -> None:
        path = f"/consumers/{group}/owners/{topic}/{partition}"
        self.client.create(path, f"{group}_host-1-a-0".encode(), ephemeral=True, makepath=True)

    def policy(self, topic: str, **more: str) -> str:
        keys = "".join(f", {key.replace('__', '.')}: {value}" for key, value in more.items())
        return consumed(topic) + f"\nfloors:\n  - {{zookeeper: '{self.place}'{keys}}}"

    def groups(self, world: World, topic: str) -> dict[str, Any]:
        """Return what ``kretain groups`` says of the chroot's groups."""
        policy = written(world.state_dir.parent / "policy.yaml", self.policy(topic))
        rows = json_of(world, "groups", "-p", str(policy), "--group", "zookeeper:*", check=None)["groups"]
        return {row["group"].removeprefix("zookeeper:"): row for row in rows}


def end(client: KazooClient) -> None:
    client.stop()
    client.close()


@pytest.fixture
def old(server: str, world: World) -> Iterator[Old]:
    found = Old(server, world.topic())
    yield found
    end(found.client)


def test_zookeeper_consumers_count_beside_groups(world: World, old: Old, topic: str) -> None:
    old.commit("billing", topic, 3)
    old.commit("audit", topic, 9)
    old.commit("console-consumer-17", topic, 0)
    old.commit("dead", "a-topic-that-is-long-gone", 7)
    assert pick(world.decide(old.policy(topic), topic), "trim_to", "min_commit_by") == (3, "zookeeper:billing")
    assert world.decide(old.policy(topic, groups="[audit]"), topic, remember=False).trim_to == 8
    rows = old.groups(world, topic)
    assert pick(rows["billing"], "type", "lag", "counts") == ("zookeeper", 7, "counts")
    assert pick(rows["audit"], "type", "lag", "counts") == ("zookeeper", 1, "counts")
    assert "console-consumer-17" not in rows


def test_deleted_zookeeper_group_counts_where_it_stood(world: World, old: Old, topic: str) -> None:
    """F6: and the chroot's other groups are read on."""
    old.commit("billing", topic, 3)
    old.commit("audit", topic, 9)
    assert world.decide(old.policy(topic), topic).trim_to == 3
    old.client.delete("/consumers/billing", recursive=True)
    decision = world.decide(old.policy(topic), topic)
    assert pick(decision, "trim_to", "min_commit_by") == (3, "zookeeper:billing")
    assert any("kretain groups forget -b HOST:PORT zookeeper:billing" in one for one in said(decision))
    rows = old.groups(world, topic)
    assert (*pick(rows["billing"], "type", "lag"), rows["audit"]["type"]) == ("gone", 7, "zookeeper")
    assert rows["billing"]["counts"].endswith("or kretain groups forget")
    world.cli("groups", "forget", "zookeeper:billing", check=0)
    assert world.decide(old.policy(topic), topic).trim_to == 8


def test_zookeeper_member_without_a_position_is_unknown(world: World, old: Old, topic: str) -> None:
    """F2: it owns a partition, or has subscribed to the topic and owns none yet. A pattern may be anything (F3)."""
    policy = old.policy(topic)
    old.member("starting", topic)
    assert said(world.decide(policy, topic, remember=False)) == [
        f"F2: zookeeper:starting has a live member that reads {topic}, and no position there yet: let it commit"
    ]
    old.commit("starting", topic, 4)
    assert world.decide(policy, topic, remember=False).trim_to == 4
    old.own("owning", topic)
    assert [one.code for one in world.decide(policy, topic, remember=False).reasons] == ["F2"]
    old.commit("owning", topic, 5)
    old.client.ensure_path("/consumers/mirror/owners/what-it-owned-before")  # its members have left
    old.member("mirror", ".*", "white_list")
    assert said(world.decide(policy, topic, remember=False)) == [
        "F3: zookeeper:mirror could not be read: it has live members that read unknown topics"
    ]
    old.own("mirror", "another-topic")
    assert world.decide(policy, topic, remember=False).trim_to == 4
    old.member("mirror", "another-topic", host="host-2")  # so that one owns it, and the other owns nothing yet
    assert [one.code for one in world.decide(policy, topic, remember=False).reasons] == ["F3"]


@pytest.mark.parametrize("content", ["", "x", "-1", "4.0", "9999999999999999999"])
def test_invalid_zookeeper_position_holds_only_its_topic(world: World, old: Old, topic: str, content: str) -> None:
    other = world.filled(OLD)
    old.commit("billing", topic, content)
    old.commit("billing", other, 3)
    policy = old.policy(topic).replace(f'match: "{topic}"', f'match: ["{topic}", "{other}"]')
    rows = {one.topic: one for one in world.plan(policy, remember=False).decisions}
    assert (rows[topic].action, [one.code for one in rows[topic].reasons], rows[other].trim_to) == ("hold", ["F3"], 3)


def test_wrong_chroot_is_an_error_and_not_an_empty_cluster(world: World, old: Old, topic: str) -> None:
    policy = old.policy(topic).replace(old.place, f"{old.place}/elsewhere")
    assert said(world.decide(policy, topic, remember=False)) == [
        f"F3: zookeeper:{old.place}/elsewhere could not be read: there is no /consumers: is the chroot right?"
    ]


def test_zookeeper_password_is_read_from_a_file(world: World, old: Old, topic: str, tmp_path: Path) -> None:
    old.commit("billing", topic, 3)
    old.client.set_acls("/consumers", [make_digest_acl("kretain", "hunter2", all=True)])
    [reason] = said(world.decide(old.policy(topic), topic, remember=False))
    assert reason.endswith("this user may not read /consumers: give a file with user:password under auth.file")
    secret = written(tmp_path / "zookeeper.secret", "kretain:hunter2\n")
    assert world.decide(old.policy(topic, auth__file=str(secret)), topic, remember=False).trim_to == 3
    secret.write_text("hunter2\n")
    [reason] = said(world.decide(old.policy(topic, auth__file=str(secret)), topic, remember=False))
    assert reason.endswith(f"auth.file {secret} does not hold one line, user:password")
    assert "hunter2" not in reason


def test_unreachable_zookeeper_is_unknown_and_forgets_nothing(world: World, topic: str, tmp_path: Path) -> None:
    with zookeeper(tmp_path / "server") as (address, process):
        old = Old(address, "kafka")
        old.commit("billing", topic, 3)
        policy, hasty = (old.policy(topic, timeout=timeout, topics="[nothing-here]") for timeout in ("5s", "1s"))
        assert world.decide(policy, topic).trim_to == 3
        end(old.client)
        process.kill()
        process.wait()
        assert said(world.decide(hasty, topic)) == [
            f"F3: zookeeper:{address}/kafka could not be read: it did not answer within 1 s"
        ]


# -- who blocks what, since when (F10) ---------------------------------------------------------


def test_offsets_unread_counts_for_every_kind_of_consumer(world: World, tmp_path: Path) -> None:
    topic = world.filled(
        [5 * HOUR] * 10, {"fast": {0: 10, 1: 9}, "leaves": {0: 2, 1: 10}, "lacks": {0: 7}}, 2, stem="unread"
    )
    rows = [{"topic": topic, "partition": 0, "offset": 5}, {"topic": topic, "partition": 1, "offset": 0}]
    flink = written(tmp_path / "flink.json", json.dumps({"at": now_ms(), "positions": rows}))
    broken = f"{{command: ['false'], name: broken, topics: ['{topic}']}}"
    sources = f"\nfloors: [{{file: {flink}, name: flink}}, {broken}]\n"
    policy = str(written(tmp_path / "policy.yaml", consumed(topic) + sources))
    asked = ("offsets", "-p", policy, "--unread")

    world.cli("plan", "-p", policy, check=0)
    world.delete_group(f"{topic}-leaves")
    world.produce(topic, 2, 1)
    world.commit(f"{topic}-new", topic, {0: 10, 1: 10})
    said = {row["group"].removeprefix(f"{topic}-"): row for row in json_of(world, *asked)["topics"]}
    assert {name: pick(row, "records", "partitions", "unknown", "remembered") for name, row in said.items()} == {
        "fast": (0 + 3, 2, 0, False),
        "leaves": (8 + 2, 2, 0, True),
        "lacks": (None, 2, 1, False),
        "new": (2, 2, 0, False),
        "file:flink": (5 + 12, 2, 0, False),
        "command:broken": (None, 0, 1, False),
    }
    [seen] = {row["oldest_sample"] for row in json_of(world, "ledger", "show", topic)["partitions"]}
    since = {name: row["unread_since"] for name, row in said.items() if row["records"]}
    assert since == {**dict.fromkeys(("fast", "leaves", "file:flink"), seen), "new": None}, "no plan has seen those two"

    each = json_of(world, *asked, "--groups", "--group", "file:*")["partitions"]
    with reader_for(world.bootstrap) as reader:
        sizes, _ = reader.sizes_soon(reader.metadata({topic}).partitions_of([topic])).result()
    by_partition = {tp.partition: size for tp, size in sizes.items()}
    assert [pick(row, "partition", "committed", "records", "bytes") for row in each] == [
        (0, 5, 5, by_partition[0] * 5 // 10),
        (1, 0, 12, by_partition[1]),
    ]
    says(world.cli(*asked, check=0).out, f"{topic}-leaves", "Some consumers no longer exist", "—: unknown;")


REJECTED = 3
ROUNDS = 30


def reject_some(world: World, group: str, topic: str, letters: str) -> None:
    """Reject the first records, and accept others until the group's start is written."""
    share: Any = ShareConsumer(
        {"bootstrap.servers": world.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    share.subscribe([topic])
    seen: list[int] = []

    def written() -> bool:  # what is acknowledged is written with the next ones
        world.produce(topic, OLD[:1])
        for message in share.poll(0.2) or ():
            seen.append(message.offset())
            share.acknowledge(message, AcknowledgeType.REJECT if seen[-1] < REJECTED else AcknowledgeType.ACCEPT)
        share.commit_sync()
        return world.ends(letters)[1] >= REJECTED and len(seen) >= ROUNDS

    wait_until(written, "the dead letters")
    share.close()


def test_dead_letters_that_point_to_records_hold_them(world: World) -> None:
    """F3, F6: once the group is deleted, it counts where it stood, though no pass knew what it still needed."""
    topic = world.filled(OLD, stem="share")
    letters = world.topic(name=f"dlq.{topic}", errors_deadletterqueue_group_enable="true")
    group = f"{topic}-share"
    from_the_start(world, group)
    configure_group(world, group, {"errors.deadletterqueue.topic.name": letters})
    reject_some(world, group, topic, letters)
    assert world.ends(letters)[1] == REJECTED, "the broker wrote them"
    world.commit(f"{topic}-done", topic, world.ends(topic)[1])

    decision = world.decide(consumed(topic), topic)
    assert f"its dead letters in {letters} only point to records here" in held(decision, "F3")
    assert len(decision.reasons) == 1
    assert "internal error" not in world.cli("groups", "-o", "json", "-p", "/dev/null", check=None).err

    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "true"})
    assert pick(world.decide(consumed(topic), topic), "action", "min_commit_by") == ("trim", f"share:{group}")
    ignored = consumed(topic).replace("version: 1", f"version: 1\ngroups: {{ignore: [{group}]}}")
    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "false"})
    assert world.decide(ignored, topic, remember=False).action == "trim"
    fresh = World(world.bootstrap, world.state_dir / "fresh")
    held(fresh.decide(consumed(topic), topic), "F3")
    world.delete_group(group)
    wait_until(lambda: group not in world.groups(), "the group to be gone")
    assert fresh.decide(consumed(topic), topic).min_commit_by == f"share:{group}"


def watching(topic: str, first: str = "3d", **more: str) -> str:
    return f"groups:\n  watch.first: {first}\n{consumed(topic, **more)}"


@pytest.mark.parametrize("days", [(0, 1, 2, 3), (0, 0.5, 3.2, 4, 5, 6.3)], ids=["daily", "a pause"])
def test_r1_holds_until_groups_were_watched_without_a_pause(world: World, days: tuple[float, ...]) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    *before, last = [world.decide(watching(topic), topic, at_ms=began + int(day * DAY)) for day in days]
    assert [(one.action, one.trim_to, codes(one)) for one in before] == [("hold", None, {"F10"})] * (len(days) - 1)
    assert pick(last, "action", "trim_to", "rule") == ("trim", 7, "consumed")


def test_new_state_directory_holds_r1_again_also_in_the_recheck_of_a_saved_plan(world: World) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    policy = watching(topic, "1d")
    world.decide(policy, topic, at_ms=began - DAY)
    plan = world.plan(policy)
    assert [one.action for one in plan.decisions] == ["trim"]
    shutil.rmtree(world.state_dir)
    row = only(world.trim(plan, policy))
    assert (row.outcome, {one.code for one in row.reasons}, world.ends(topic)[0]) == ("held", {"F10"}, 0)


def test_plan_says_until_when_r1_waits_and_nothing_where_there_is_nothing_to_trim(world: World, tmp_path: Path) -> None:
    topic = world.filled(OLD, {"reader": 0})
    asked = ("plan", "-p", str(written(tmp_path / "policy.yaml", watching(topic))))
    assert "F10" not in world.cli(*asked, check=0).out
    world.commit(f"{topic}-reader", topic, 5)
    said = " ".join(world.cli(*asked, check=0).out.split())
    assert re.search(r"R1 holds until 20.*\(groups\.watch\.first: 3 d\)", said)


# -- a streaming query of Spark's, stopped in the middle of a batch --------------------------------

CONNECTOR = "4.2.0"
"""The newest that is published, not always with PySpark's own version; checkpoints are written by PySpark's Spark."""
_NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")

Place = tuple[str, int, int]


class Query:
    """The query of ``streaming_query.py``, run again and again from one checkpoint, in one process of Spark's."""

    def __init__(self, world: World, topics: list[str], folder: Path) -> None:
        lib = jars.resolve("spark-sql-kafka-0-10_2.13", CONNECTOR, print, group="org.apache.spark")
        needed = ",".join(str(jar) for jar in sorted(lib.iterdir()) if jar.name.startswith(_NEEDED))
        given = {"bootstrap": world.bootstrap, "topics": topics, "folder": str(folder), "jars": needed}
        script = Path(__file__).parents[2] / "support" / "spark" / "streaming_query.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._folder = folder
        (folder / "in").mkdir()

    def run(self, *, fails_at: int = -1) -> None:
        """Run it to its end, or to the batch that its sink refuses."""
        print(fails_at, file=self.process.stdin, flush=True)
        assert known(self.process.stdout).readline() == ("done\n" if fails_at < 0 else "failed\n")

    def written(self) -> Counter[Place]:
        lines = (line for file in (self._folder / "out").glob("*.json") for line in file.read_text().splitlines())
        return Counter((row["topic"], row["partition"], row["offset"]) for row in map(json.loads, lines))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_query_that_failed_in_a_batch_replays_it_after_a_trim(world: World, tmp_path: Path) -> None:
    """Before its first batch is done nothing goes; then what the last committed batch holds, and no more."""
    orders, payments = world.topic(partitions=2), world.topic()
    everything: set[Place] = set()
    for topic, partition in ((orders, 0), (orders, 1), (payments, 0)):
        world.produce(topic, [5 * HOUR] * 10, partition)
        everything |= {(topic, partition, offset) for offset in range(10)}
    policy = written(
        tmp_path / "policy.yaml",
        f"version: 1\ntopics: [{{match: ['{orders}', '{payments}'], retention.commitoffset.enable: true, "
        "retention.commitoffset.ms: 0}]\nfloors:\n  - {checkpoint: checkpoint, name: enrich}\n",
    )

    def trim() -> dict[tuple[str, int], int]:
        """Trim, and return each log start."""
        world.cli("trim", "-p", str(policy), "--yes", check=0)
        return {place[:2]: world.ends(*place[:2])[0] for place in everything}

    def planned() -> set[tuple[str, str | None]]:
        return {pick(row, "action", "min_commit_by") for row in json_of(world, "plan", "-p", str(policy))["partitions"]}

    assert planned() == {("hold", None)}  # there is no checkpoint yet
    query = Query(world, [orders, payments], tmp_path)
    with query.process:
        query.run(fails_at=0)
        assert set(trim().values()) == {0}
        assert planned() == {("keep", "checkpoint:enrich")}
        query.run(fails_at=1)
        done = query.written()
        assert 10 <= len(done) < len(everything)
        starts = trim()
        assert starts == {place: sum(one[:2] == place for one in done) for place in starts}
        assert max(starts.values()) > 0
        query.run()
    assert query.written() == Counter(everything)
    assert set(trim().values()) == {10}
