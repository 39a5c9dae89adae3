"""R6 on real brokers whose disks are full, and in trouble; topics with real remote storage, by LocalTieredStorage."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]
from kafka.admin import KafkaAdminClient

from kretain.embedded import jars
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import locked
from tests.support.says import says
from tests.support.volumes import RECORD, Filled, disk_in, filled, log_dirs_of, percent_of, trimmed, volume
from tests.support.world import HOUR, MIB, Cli, World, now_ms, wait_until, written

SETTINGS: Final = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.index.size.max.bytes": "65536",
}


def set_broker(world: World, key: str, value: str) -> None:
    world.configure("1", {key: value}, ResourceType.BROKER)


@pytest.fixture
def two_volumes(tmp_path: Path) -> Iterator[Filled]:
    with ExitStack() as stack:
        dirs = [stack.enter_context(volume(tmp_path / name, room)) / "logs" for name, room in (("a", 64), ("b", 70))]
        kafka = stack.enter_context(EmbeddedKafka(1, log_dirs=[dirs], settings=SETTINGS))
        yield Filled(kafka, World(kafka.bootstrap, tmp_path / "state"), tmp_path)


def test_replica_moving_between_dirs_is_left_until_it_arrives(two_volumes: Filled) -> None:
    """Its copy (``-future``) counts where it grows; what it leaves behind goes by itself."""
    one = two_volumes
    moving, *_ = [one.topic(stem, 10, age) for stem, age in (("moving", 30), ("second", 20), ("third", 10))]

    def placed() -> list[str]:
        [dirs] = log_dirs_of(one.world).values()
        return [folder.path for folder in dirs for replica in folder.replicas if replica.tp.topic == moving]

    set_broker(one.world, "replica.alter.log.dirs.io.max.bytes.per.second", "100000")
    [home] = placed()
    away = next(str(one_dir) for one_dir in one.kafka.nodes[0].log_dirs if str(one_dir) != home)
    with closing(KafkaAdminClient(bootstrap_servers=one.world.bootstrap)) as admin:
        admin.alter_replica_log_dirs({(moving, 0, 1): away})
    wait_until(lambda: len(placed()) == 2, "a copy on its way")
    path = one.policy(10, 'match: "moving-*"')
    for n, more in enumerate(((), ("--inventory", one.scan("moving")))):
        made = one.plan(path, *more, fresh=f"fresh-{n}")
        assert len(placed()) == 2, "it is still on its way"
        [row] = made.json()["partitions"]
        assert (row["action"], row["trim_to"]) == ("hold", None), (more, row)
    assert one.world.ends(moving)[0] == 0


def test_hanging_broker_is_not_compensated_by_others(tmp_path: Path) -> None:
    """R6 holds what has a replica on it, and says which broker it is; nothing is trimmed in its stead."""
    with EmbeddedKafka(3, settings={"log.index.size.max.bytes": "65536"}) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        topic = world.topic("everywhere", replicas=3, segment_bytes=str(MIB), min_insync_replicas="1")
        world.produce_at(topic, [now_ms() - HOUR] * 600, value=lambda: os.urandom(RECORD), batch=50)
        ceiling = "disks: {log.retention.disk.usage.percent: 50, capacity: 6MiB}"
        entry = "{match: everywhere-*, unconsumed: trim}"
        policy = written(tmp_path / "policy.yaml", f"version: 1\n{ceiling}\ntopics:\n  - {entry}\n")
        options = ("-p", str(policy), "-o", "json", "--timeout", "5s")
        assert trimmed(world.cli("plan", *options, check=0)).keys() == {topic}
        leader = world.admin.list_topics(topic).topics[topic].partitions[0].leader
        hung = kafka.node(next(n for n in (3, 2) if n != leader))
        hung.freeze()
        try:
            made = world.cli("trim", *options, "--yes")
            assert made.code in (1, 5), made.err
            # Whoever is asked first for metadata is chosen at random: the one that hangs takes the whole time-out.
            said = (f"broker {hung.node_id}", "no broker answered", "answered, but no broker did")
            assert any(text in made.err for text in said), made.err
            assert "Traceback" not in made.err
            assert world.ends(topic)[0] == 0
        finally:
            hung.thaw()
        wait_until(lambda: trimmed(world.cli("plan", *options)).keys() == {topic}, "it answers again", 90)


def test_two_trims_at_once_free_as_much_as_one(tmp_path: Path) -> None:
    """Each with a state dir of its own, at the same moment: twice the same offsets, not twice the bytes."""
    with filled(tmp_path) as one:
        old, young = one.topic("old", 12, 30), one.topic("young", 12, 10)
        policy, scanned = one.policy(percent_of(one, 6 * MIB)), one.scan("both")
        _, _, before = one.described()

        def trim(machine: str, *more: str) -> None:
            World(one.world.bootstrap, tmp_path / machine).cli(
                "trim", "-p", str(policy), *more, "--yes", "-o", "json", check=0
            )

        with ThreadPoolExecutor(3) as pool:
            machines = (("first", "--inventory", scanned), ("second", "--inventory", scanned), ("third",))
            trims = [pool.submit(trim, *machine) for machine in machines]
        for done in trims:
            done.result()
        wait_until(lambda: one.described()[2] <= before - 6 * MIB, "what was trimmed is swept")
        wait_until(lambda: one.described()[2] >= before - 8 * MIB, "and no more than that", 1)
        assert one.world.ends(young)[0] == 0
        assert 600 <= one.world.ends(old)[0] <= 900


def test_bytes_awaiting_deletion_are_not_trimmed_again(tmp_path: Path) -> None:
    """R6: ``.deleted`` files and ``-delete`` folders leave; whoever remembers nothing waits for them, and says so."""
    with filled(tmp_path) as one:
        old, doomed, young = one.topic("old", 16, 30), one.topic("doomed", 10, 20), one.topic("young", 16, 10)
        before, policy = one.scan("before"), one.policy(percent_of(one, 8 * MIB))
        _, _, held = one.described()
        one.world.cli("trim", "-p", str(policy), "--inventory", before, "--yes", "-o", "json", check=0)
        wait_until(lambda: one.described()[2] < held - 6 * MIB, "swept segments")
        assert one.world.ends(old)[0] > 0
        swept = one.scan("swept")
        for more in ((), ("--inventory", swept), ("--inventory", before)):
            fresh = one.plan(policy, *more, fresh=f"fresh-{len(more)}-{''.join(more)[-12:-8]}")
            disk = disk_in(fresh)
            assert (trimmed(fresh), disk["short_bytes"]) == ({}, 0), (more, disk)
            assert disk["doubtful_bytes"] + disk["dead_bytes"] >= 6 * MIB
            [row] = [row for row in fresh.json()["partitions"] if row["topic"] == young]
            assert row["action"] == "hold"
            assert any("may be leaving" in reason["text"] for reason in row["reasons"]), row
        assert trimmed(one.plan(policy, "--inventory", swept)) == {}
        # a topic is deleted: what of the ceiling was still to go is leaving by itself
        lower = one.policy(percent_of(one, 14 * MIB))
        assert trimmed(one.plan(lower, "--inventory", swept))
        _, _, held = one.described()
        one.world.delete(doomed)
        wait_until(lambda: one.described()[2] < held - 8 * MIB, "the deleted topic")
        deleted = one.scan("deleted")
        for more in ((), ("--inventory", deleted), ("--inventory", swept)):
            assert trimmed(one.plan(lower, *more)) == {}, more
            assert trimmed(one.plan(lower, *more, fresh=f"later-{''.join(more)[-12:-8]}")) == {}, more
        # an inventory says what stays: below what is leaving there is something to take, and no more than it
        made = one.plan(one.policy(percent_of(one, 22 * MIB)), "--inventory", deleted, fresh="last")
        assert trimmed(made)
        assert 0 < disk_in(made)["freed_bytes"] <= 22 * MIB - (8 + 10 - 4) * MIB


def test_disk_is_cordoned_where_all_its_log_dirs_are(tmp_path: Path) -> None:
    with EmbeddedKafka(1, log_dirs=2) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        one, other = map(str, kafka.nodes[0].log_dirs)
        apart, together = f"[[{one}], [{other}]]", f"[[{one}, {other}]]"

        def cordoned(devices: str) -> list[bool]:
            text = f'version: 1\ndisks: {{devices: {devices}}}\ntopics: [{{match: "*"}}]\n'
            policy = str(written(tmp_path / "policy.yaml", text))
            return [disk["cordoned"] for disk in world.cli("disk", "-p", policy, "-o", "json", check=0).json()["disks"]]

        assert cordoned(apart) == [False, False]
        assert "×" not in world.cli("disk", check=0).out
        set_broker(world, "cordoned.log.dirs", one)
        wait_until(lambda: cordoned(apart) == [True, False], "one dir that is cordoned")
        assert cordoned(together) == [False], "the other dir of that device takes new replicas"
        set_broker(world, "cordoned.log.dirs", f"{one},{other}")
        wait_until(lambda: cordoned(together) == [True], "both dirs that are cordoned")
        assert "× cordoned" in world.cli("disk", check=0).out


def test_capacity_holds_unless_each_log_dir_of_a_volume_has_its_own(tmp_path: Path) -> None:
    """R6: two dirs on one volume, as under project quotas. One size for both, or one without its unit, trims nothing."""
    with EmbeddedKafka(1, log_dirs=2) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        topics = [world.topic("quota", segment_bytes=str(MIB)) for _ in range(2)]
        for topic in topics:
            world.produce_at(topic, [now_ms() - HOUR] * 600, value=lambda: os.urandom(RECORD), batch=50)
        one, other = map(str, kafka.nodes[0].log_dirs)

        def planned(disks: str) -> Cli:
            entry = "{match: quota-*, unconsumed: trim}"
            ceiling = f"disks: {{log.retention.disk.usage.percent: 80, {disks}}}"
            policy = written(tmp_path / "policy.yaml", f"version: 1\n{ceiling}\ntopics: [{entry}]\n")
            return world.cli("plan", "-p", str(policy), "-o", "json", check=0)

        each = f"capacity: {{{one}: 10MiB, {other}: 10MiB}}"
        apart = planned(each)
        assert trimmed(apart) == {}
        assert [disk["dirs"] for disk in apart.json()["disks"]] == [[one], [other]]
        assert all(5 * MIB < disk["used_bytes"] < disk["ceiling_bytes"] for disk in apart.json()["disks"])
        assert trimmed(planned(each.replace("10MiB", "7MiB"))).keys() == {*topics}
        for disks, said in (
            ("capacity: 7MiB", "whether disks.capacity is for each"),
            (f"capacity: 7, devices: [[{one}], [{other}]]", "is a unit missing?"),
            (f"{each}, devices: [[{one}, {other}]]", "names several of its dirs"),
        ):
            held = planned(disks)
            assert (trimmed(held), {disk["used_bytes"] for disk in held.json()["disks"]}) == ({}, {None}), disks
            assert said in json.dumps(held.json()["disks"]), disks


VERSION: Final = "4.3.0"
"""The newest whose test jar of Kafka's storage is published: brokers with tiered storage are of this version."""


def storage_jar() -> Path:
    folder = jars.cache_dir() / "jars" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        return (
            jars.maven(folder)
            .create_dependency(f"org.apache.kafka:kafka-storage:jar:test:{VERSION}")
            .artifact.resolve()
        )


def remote_settings(jar: Path, remote: Path) -> dict[str, str]:
    remote.mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(remote),
        "remote.log.metadata.manager.listener.name": "PLAIN",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
    }


LOCAL_BYTES: Final = 4 * MIB


@dataclass
class Tiered(Filled):
    """A broker with one topic whose oldest segments are remote alone."""

    remote: Path = Path()
    topic_name: str = ""

    def far(self) -> list[Path]:
        return sorted(self.remote.rglob("*.log"))

    def near(self, suffix: str = ".log") -> list[Path]:
        return sorted(self.kafka.nodes[0].log_dirs[0].glob(f"{self.topic_name}-0/*{suffix}"))

    def settled(self) -> bool:
        """Whether the broker deletes no further local segment, and has removed those that it deleted."""
        if self.near(".deleted"):
            return False
        first, *others = self.near()
        return int(first.stem) > 0 and sum(one.stat().st_size for one in others) < LOCAL_BYTES


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    root = tmp_path_factory.mktemp("tiered")
    settings = {**SETTINGS, **remote_settings(storage_jar(), root / "remote")}
    with ExitStack() as stack:
        folder = stack.enter_context(volume(root / "volume", 96))
        kafka = stack.enter_context(EmbeddedKafka(1, version=VERSION, log_dirs=[[folder / "logs"]], settings=settings))
        one = Tiered(kafka, World(kafka.bootstrap, root / "state"), root, remote=root / "remote")
        remote = {"remote_storage_enable": "true", "local_retention_bytes": str(LOCAL_BYTES)}
        one.topic_name = one.topic("tiered", 12, 30, 1, **remote, file_delete_delay_ms="1000")
        wait_until(lambda: one.settled() and len(one.far()) >= 6, "segments that are remote alone", 120)
        yield one


def test_trim_by_time_counts_no_local_bytes_for_remote_segments(far: Tiered) -> None:
    """R4 of half of the log: records are counted, bytes are not known (``size``)."""
    path = written(
        far.root / "forced.yaml", f'version: 1\ntopics:\n  - {{match: "{far.topic_name}", retention.ms: 1799m}}\n'
    )
    made = far.plan(path)
    [row] = made.json()["partitions"]
    assert (row["action"], row["records"] > 0, row["bytes"]) == ("trim", True, None), row
    assert [note["code"] for note in made.json()["notes"]].count("tiered") == 1, made.json()["notes"]
    says(
        far.world.cli("policy", "check", "-p", str(path), check=1).err,
        f"forced.yaml:3: tiered: is not set to trim for {far.topic_name}",
    )
    path.write_text(f'version: 1\ntopics:\n  - {{match: "{far.topic_name}", retention.ms: 1799m, tiered: trim}}\n')
    says(
        far.world.cli("policy", "check", "-p", str(path), check=0).err, "a trim also deletes what is in remote storage"
    )


def test_remote_segments_are_trimmed_only_if_the_policy_allows_it(far: Tiered) -> None:
    """R6 leaves the topic alone; ``tiered: trim`` and an inventory let it go, and what is remote; bytes are unknown.

    The last of this module: records go.
    """
    assert far.world.ends(far.topic_name)[0] == 0, "what is remote is still there to be read"
    begins, scanned = int(far.near()[0].stem), far.scan("near")
    percent = percent_of(far, MIB)
    alone = far.policy(percent, f'match: "{far.topic_name}"')
    for n, more in enumerate(((), ("--inventory", scanned))):
        left = far.plan(alone, *more, fresh=f"alone-{n}")
        assert trimmed(left) == {}, more
        [row] = left.json()["partitions"]
        assert row["action"] == "keep", row
        assert any("remote storage" in one["reason"]["text"] for one in disk_in(left)["in_the_way"]), disk_in(left)
    may = far.policy(percent, f'match: "{far.topic_name}", tiered: trim')
    [row] = far.plan(may, fresh="may-0").json()["partitions"]
    assert row["action"] == "hold", "brokers do not say what is local"
    says(row["reasons"][0]["text"], "give an inventory")
    [row] = far.plan(may, "--inventory", scanned, fresh="may-1").json()["partitions"]
    assert row["bytes"] is None or row["bytes_exact"] is False, "what brokers say is what is local"
    assert all("which no scan finds" not in reason["text"] for reason in row["reasons"]), row
    assert trimmed(far.plan(may, "--inventory", scanned))[far.topic_name] > begins, "only what is local frees the disk"
    before = len(far.far())
    far.world.cli("trim", "-p", str(may), "--inventory", scanned, "--yes", "-o", "json", check=0)
    assert far.world.ends(far.topic_name)[0] > begins
    wait_until(lambda: len(far.far()) < before - 4, "what was remote before it is deleted, too", 120)


@pytest.mark.parametrize("ends", ["old", "young"])
def test_a_trim_by_time_stops_before_young_records_that_are_remote_alone(far: Tiered, ends: str) -> None:
    """R4, R3: if the young records of S's remote segment are below S, a broker passes over all other remote segments.

    It answers by local records alone, of which the last is young, or none. MAX_TIMESTAMP names only local ones, too.
    """
    topic, first = far.topic_name, far.world.ends(far.topic_name)[1]
    ages = [1] * 20 + [30] * 300 + [1] * 20 + [30] * (3 * LOCAL_BYTES // RECORD) + [1] * (ends == "young")
    stamps = [now_ms() - age * HOUR + n for n, age in enumerate(ages)]
    far.world.produce_at(topic, stamps, value=lambda: os.urandom(RECORD), batch=50)
    young = first + 320
    wait_until(lambda: far.settled() and int(far.near()[0].stem) > young + 20, "young records are remote", 120)
    far.world.delete_records(topic, first + 20)  # in a batch that begins with young records
    for rule in ("retention.ms: 10h", f"log.retention.min.timestamp: {now_ms() - 10 * HOUR}, unconsumed: trim"):
        text = f'version: 1\ntopics:\n  - {{match: "{topic}", {rule}, tiered: trim}}\n'
        [row] = far.plan(written(far.root / "old.yaml", text)).json()["partitions"]
        assert (row["action"], row["trim_to"]) == ("trim", young), (rule, row)
