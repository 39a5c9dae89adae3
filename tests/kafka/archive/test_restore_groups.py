"""Groups continue in a restored topic with the record that each would have read next, in this cluster and another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kretain.embedded import EmbeddedKafka
from retention_cli.brokers.resetter import GroupResetter
from tests.support.archiving import Whole, numbered, odd_flights, produce, small, transaction, whole
from tests.support.world import World, consumed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def policy(place: Path, tmp_path: Path):
    """Returns a policy's file that trims a topic by age, read or not, once it is archived."""

    def of(topic: str) -> str:
        file = tmp_path / "policy.yaml"
        rules = "log.retention.min.timestamp: 1577836800000\n    unconsumed: trim"
        file.write_text(f'version: 1\ntopics:\n  - match: "{topic}"\n    {rules}\n    archive: {place}\n')
        return str(file)

    return of


def filled(world: World, name: str, partition: int) -> list[tuple[int, Whole]]:
    """Write records, some in transactions, of which some are aborted; return what is to be read, with offsets."""
    log = list(odd_flights(1_600))[partition::2]
    produce(world, name, log[:300], partition, "zstd")
    transaction(world, name, log[:50], partition, commit=False)
    transaction(world, name, log[300:500], partition, commit=True)
    produce(world, name, log[500:], partition)
    return numbered(world, name, partition)


def following(log: list[tuple[int, Whole]], position: int) -> Whole | None:
    return next((record for offset, record in log if offset >= position), None)


def read_next(world: World, group: str, topic: str, protocol: str, partitions: int) -> dict[int, Whole]:
    """Have a member of the group read; return its first record of each partition. It never begins by itself."""
    config = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "error", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": world.bootstrap, **config})
    member.subscribe([topic])
    found: dict[int, Whole] = {}
    deadline = time.monotonic() + 30
    try:
        while len(found) < partitions and time.monotonic() < deadline:
            for one in member.consume(200, timeout=0.5):
                assert one.error() is None, one.error()
                record = (one.timestamp()[1], one.key(), one.value(), tuple(one.headers() or ()))
                found.setdefault(one.partition() or 0, record)  # type: ignore[arg-type]
    finally:
        member.close()
    return found


def read_some(world: World, group: str, topic: str, protocol: str, count: int) -> None:
    """Have a member of the group read that many records and commit."""
    member = world.member(group, [topic], group_protocol=protocol)
    try:
        while count > 0:
            count -= len(member.consume(count, timeout=1))
        member.commit(asynchronous=False)
    finally:
        member.close()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An empty cluster."""
    with EmbeddedKafka(1) as kafka:
        yield World(kafka.bootstrap, tmp_path_factory.mktemp("elsewhere") / "state")


@pytest.mark.thorough
def test_groups_continue_in_an_empty_cluster_with_the_record_they_would_have_read_next(
    world: World, elsewhere: World, place: Path, policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classic and consumer groups, with positions within, between, before and behind what was archived."""
    name = world.topic("flights", partitions=2)
    logs = [filled(world, name, partition) for partition in range(2)]
    starts = {0: 7, 1: 320}
    world.commit(f"{name}-at", name, starts)
    world.commit(f"{name}-marker", name, {0: 310, 1: 351})  # within the aborted records, and at its marker
    world.commit(f"{name}-behind", name, {partition: world.ends(name, partition)[1] for partition in range(2)})
    for protocol in ("classic", "consumer"):
        read_some(world, f"{name}-{protocol}", name, protocol, 600)
    groups = {f"{name}-{stem}" for stem in ("at", "marker", "behind", "classic", "consumer")}
    positions = {group: positions_in(world, group, name, 2) for group in groups}
    small(monkeypatch, 250)
    world.cli("trim", "-p", policy(name), "--yes", check=0)
    assert [whole(world, name, partition) for partition in range(2)] == [[], []]
    assert len([*place.rglob("_groups/*.json")]) == 1

    target = elsewhere.topic("back", partitions=2, retention_ms="-1")
    arguments = ("restore", name, "--from", str(place), "--to", target, "--groups", "-o", "json")
    rehearsed = elsewhere.cli(*arguments, "--dry-run", check=0).json()["groups"]
    assert {row["offset"] for row in rehearsed["rows"]} == {None}
    assert {row["group"]: row["archived"] for row in rehearsed["rows"] if row["partition"] == 0} == {
        group: there.get(0) for group, there in positions.items()
    }
    done = elsewhere.cli(*arguments, "--yes", check=0).json()
    assert (done["groups"]["reset"], done["groups"]["left"]) == (True, {})
    assert {row["group"] for row in done["groups"]["rows"]} == groups
    for partition in range(2):
        produce(elsewhere, target, [(1, b"new", b"new", ())], partition)
    for group in sorted(groups):
        protocol = "consumer" if group.endswith("-consumer") else "classic"
        expected = {
            partition: following(logs[partition], positions[group].get(partition, 0)) or (1, b"new", b"new", ())
            for partition in range(2)
        }
        assert read_next(elsewhere, group, target, protocol, 2) == expected, group
    assert elsewhere.cli(*arguments, "--dry-run", check=0).json()["groups"]["rows"] == done["groups"]["rows"]
    elsewhere.commit(f"{name}-at", target, {0: 8})
    assert f"group {name}-at has commits on topic {target}" in elsewhere.cli(*arguments, "--dry-run", check=6).err


def positions_in(world: World, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": group})
    try:
        answers = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=30)
        return {one.partition: one.offset for one in answers if one.offset >= 0}
    finally:
        consumer.close()


@pytest.fixture
def trimmed(world: World, policy) -> tuple[str, list[tuple[int, Whole]]]:
    """A topic of one partition, archived and trimmed while group g was at 100 and h at 700."""
    name = world.topic("trimmed")
    produce(world, name, odd_flights(1_000))
    log = numbered(world, name)
    world.commit(f"{name}-g", name, 100)
    world.commit(f"{name}-h", name, 700)
    world.cli("trim", "-p", policy(name), "--yes", check=0)
    return name, log


def test_group_in_use_is_refused_and_one_with_commits_needs_overwrite(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """Nothing is written while a group has members; only told groups are moved, others stay."""
    name, log = trimmed
    target = world.topic("used", retention_ms="-1")
    group = f"{name}-g"
    arguments = ("restore", name, "--from", str(place), "--to", target, "--group", group, "--yes")
    member = world.member(group, [target])
    try:
        refused = world.cli(*arguments, check=6)
        assert f"group {group} has live members: stop its consumers" in refused.err
        assert whole(world, target) == []
    finally:
        member.close()
    world.commit(group, target, 0)
    assert "pass --overwrite to replace them" in world.cli(*arguments, check=6).err
    world.cli(*arguments, "--overwrite", check=0)
    assert positions_in(world, group, target, 1)[0] > 0
    assert positions_in(world, f"{name}-h", target, 1) == {}
    assert read_next(world, group, target, "classic", 1) == {0: following(log, 100)}
    nobody = world.cli(*arguments[:-2], "nobody", "--yes", check=6)
    assert f"group nobody has no position on {name} in the archive" in nobody.err


def test_groups_alone_are_reset_where_the_records_are_there_and_only_there(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """Also after a restore that was not for groups. A topic with other records is refused."""
    name, log = trimmed
    target, other = world.topic("there", retention_ms="-1"), world.topic("other", retention_ms="-1")
    world.cli("restore", name, "--from", str(place), "--to", target, "--yes", check=0)
    before = whole(world, target)
    arguments = ("restore", name, "--from", str(place), "--groups", "-o", "json", "--to")
    planned = world.cli(*arguments, target, "--dry-run", check=0).json()
    assert planned["totals"]["records"] == 0
    assert positions_in(world, f"{name}-g", target, 1) == {}
    done = world.cli(*arguments, target, "--yes", check=0).json()
    assert done["groups"]["rows"] == planned["groups"]["rows"]
    assert whole(world, target) == before
    for stem, position in (("g", 100), ("h", 700)):
        assert read_next(world, f"{name}-{stem}", target, "classic", 1) == {0: following(log, position)}
    produce(world, other, odd_flights(20))
    refused = world.cli(*arguments, other, "--yes", check=6)
    assert f"{other}-0 does not have the record of archived offset" in refused.err
    assert positions_in(world, f"{name}-g", other, 1) == {}


def test_group_does_not_skip_records_that_the_target_had_before(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """With --append they lie before what is restored, and it has read none of them."""
    name, _log = trimmed
    target = world.topic("more", retention_ms="-1")
    produce(world, target, [(1, b"live", b"live", ())] * 5)
    arguments = ("restore", name, "--from", str(place), "--to", target, "--append", "--groups", "-o", "json", "--yes")
    rows = world.cli(*arguments, check=0).json()["groups"]["rows"]
    assert {row["offset"] for row in rows} == {0}
    assert read_next(world, f"{name}-h", target, "classic", 1) == {0: (1, b"live", b"live", ())}


def test_until_restores_to_a_point_in_time_with_the_positions_of_then(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """Positions of a later time are used only if that is named; no group continues behind what was restored."""
    name, log = trimmed
    target = world.topic("until", retention_ms="-1")
    until = sorted(record[0] for _offset, record in log)[400]
    arguments = ("restore", name, "--from", str(place), "--to", target, "--until", str(until), "--groups", "--yes")
    refused = world.cli(*arguments, check=1)
    assert "name the time to use with --positions-at" in refused.err
    assert whole(world, target) == []
    world.cli(*arguments, "--positions-at", "2100-01-01T00:00:00Z", check=0)
    kept = [(offset, record) for offset, record in log if record[0] < until]
    assert whole(world, target) == [record for _offset, record in kept]
    produce(world, target, [(1, b"new", b"new", ())])
    for stem, position in (("g", 100), ("h", 700)):
        expected = following(kept, position) or (1, b"new", b"new", ())
        assert read_next(world, f"{name}-{stem}", target, "classic", 1) == {0: expected}


def test_group_that_gets_a_member_before_the_commit_is_not_moved(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]]
) -> None:
    """The coordinator itself refuses, however late the member comes."""
    from retention_cli.brokers.errors import BrokerError
    from tests.support.world import reader_for

    name, _log = trimmed
    target = world.topic("late")
    member = world.member(f"{name}-g", [target])
    try:
        with reader_for(world.bootstrap) as reader:
            resetter = GroupResetter(reader.settings, target, 30)
            with pytest.raises(BrokerError, match=r"could not be reset: it has live members by now"):
                resetter.reset(f"{name}-g", {0: 5})
    finally:
        member.close()
    assert positions_in(world, f"{name}-g", target, 1) == {}


def test_positions_that_cannot_be_kept_hold_the_topic(world: World, place: Path, tmp_path: Path) -> None:
    name = world.topic("unkept")
    produce(world, name, odd_flights(10))
    world.commit(f"{name}-g", name, 10)
    file = tmp_path / "p.yaml"
    file.write_text(consumed(name, "0", archive=str(place)))
    cluster = place / f"cluster={world.plan(file.read_text()).cluster_id}"
    cluster.mkdir(parents=True)
    (cluster / f"topic={name}").write_text("in the way")
    report = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0).json()
    assert report["partitions"][0]["outcome"] == "held"
    assert world.ends(name) == (0, 10)
