"""Back from an archive: record for record and nothing twice; groups continue with what each would have read next."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.restore import Job, Restored, RestoreRefusedError, Wanted, prepare, restore
from retention_cli.archive.store import Store
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.republisher import GroupResetter, Republisher
from tests.support.archiving import (
    CODECS,
    Whole,
    archive,
    archived,
    killed_at,
    numbered,
    odd_flights,
    policy,
    produce,
    small,
    transaction,
    whole,
)
from tests.support.clusters import EmbeddedKafka
from tests.support.terminal import Terminal
from tests.support.world import HOUR, World, consumed, now_ms, reader_for


def run(world: World, folder: Path, wanted: Wanted) -> tuple[Job, Restored]:
    with reader_for(world.bootstrap) as reader:
        store = Store(str(folder))
        job = prepare(reader, store, wanted, now_ms())
        return job, restore(reader, store, job)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def topic(world: World, place: Path) -> str:
    """1,200 odd records in one partition, archived in three segments."""
    name = world.topic("archived")
    produce(world, name, odd_flights(1_200))
    archive(world, name, place)
    return name


def test_every_kind_of_record_is_archived_before_it_is_trimmed_and_restored(world: World, place: Path) -> None:
    """Every codec, transactions committed and aborted, nulls, headers; a partition is trimmed in its middle."""
    count = len(CODECS)
    name = world.topic("flights", partitions=count, segment_bytes="1048576")
    log = list(odd_flights(1_500 * count))
    for partition, codec in enumerate(CODECS):
        mine = log[partition::count]
        produce(world, name, mine[:900], partition, codec)
        transaction(world, name, mine[:200], partition, commit=False)
        transaction(world, name, mine[900:1_000], partition, commit=True)
        produce(world, name, mine[1_000:], partition, codec)
        transaction(world, name, log[:50], partition, commit=False)
    before = {partition: whole(world, name, partition) for partition in range(count)}
    ends = {partition: world.ends(name, partition)[1] for partition in range(count)} | {count - 1: 850}
    world.commit(f"{name}-g", name, ends)
    text = policy(name, place)
    assert {one.outcome for one in world.trim(world.plan(text), text).rows} == {"trimmed"}
    assert {partition: world.ends(name, partition)[0] for partition in range(count)} == ends
    left = {partition: whole(world, name, partition) for partition in range(count)}
    assert [bool(one) for one in left.values()] == [False] * (count - 1) + [True]
    target = world.topic("restored", partitions=count)
    arguments = ("restore", name, "--from", str(place), "--to", target, "-o", "json")
    rehearsed = world.cli(*arguments, "--dry-run", check=0).json()
    assert (rehearsed["dry_run"], rehearsed["finished"]) == (True, False)
    totals = {"partitions": count, "records": sum(map(len, before.values())) - len(left[count - 1])}
    assert rehearsed["totals"] == totals
    assert [whole(world, target, partition) for partition in range(count)] == [[]] * count
    done = world.cli(*arguments, "--yes", check=0).json()
    assert (done["format"], done["dry_run"], done["finished"]) == ("kretain.restore/v1", False, True)
    assert done["totals"] == totals
    assert {partition: whole(world, target, partition) + left[partition] for partition in range(count)} == before
    assert not [name for name in world.groups() if name.startswith("kretain-restore-")]


def test_restore_killed_at_any_step_loses_and_duplicates_nothing(world: World, topic: str, place: Path) -> None:
    """SIGKILL within and between transactions, one restore after the other, until one comes through."""
    target = world.topic("restored")
    before = archived(place, topic)
    arguments = ("restore", topic, "--from", str(place), "--to", target, "--yes")
    for step, number in (
        ("before-transaction-step", 2),  # connected; not even that it has begun is said
        ("before-transaction-step", 4),  # that is said; records produced, nothing said of them
        ("before-transaction-step", 3),  # the same again: progress sent, nothing committed
        ("after-transaction-step", 3),  # committed
    ):
        killed_at(world, step, number, *arguments)
        there = whole(world, target)
        assert there == before[: len(there)]
    assert 0 < len(whole(world, target)) < len(before)
    assert killed_at(world, "never", 1, *arguments, "-o", "json", check=0).json()["partitions"][0]["resumed_at"] > 0
    assert whole(world, target) == before
    assert "is not empty" in world.cli(*arguments, check=6).err
    assert whole(world, target) == before


def test_restore_holds_the_floor_with_its_group_until_it_ends(
    world: World, topic: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was restored is trimmed before all is; what a plan saw of the group is forgotten (F6)."""
    target = world.topic("restored")
    world.commit(f"{target}-reader", target, 0)
    honest, seen = Republisher.append, []

    def watched(self, records, hold_at, progress):
        honest(self, records, hold_at, progress)
        world.commit(f"{target}-reader", target, world.ends(target)[1])
        decision = world.decide(consumed(target, "0ms"), target)
        seen.append((decision.action, decision.min_commit))

    with monkeypatch.context() as patch:
        patch.setattr(Republisher, "append", watched)
        run(world, place, Wanted(topic, target))
    assert len(seen) == 5  # that it has begun, three segments, that it has ended
    assert {one[0] for one in seen} <= {"keep", "hold"}
    assert {one[1] for one in seen} == {0}
    after = world.decide(consumed(target, "0ms"), target)
    assert after.action != "trim", "remembered, until it is forgotten (the command does that)"
    world.delete(target)


def test_restore_command_deletes_its_group(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored")
    arguments = ("restore", topic, "--from", str(place), "--to", target, "--yes")
    killed_at(world, "after-transaction-step", 5, *arguments)
    world.commit(f"{target}-reader", target, world.ends(target)[1])
    assert world.decide(consumed(target, "0ms"), target).action != "trim"
    world.cli(*arguments, check=0)
    end = world.ends(target)[1]
    world.commit(f"{target}-reader", target, end)
    decision = world.decide(consumed(target, "0ms"), target)
    assert (decision.action, decision.trim_to) == ("trim", end)


def test_restore_selects_by_time_and_partition(world: World, place: Path) -> None:
    name = world.topic("chosen", partitions=2)
    log = list(odd_flights(300))
    for partition in range(2):
        produce(world, name, log, partition)
        archive(world, name, place, partition, segment=100)
    since, until = log[100][0], log[200][0]
    target = world.topic("restored", partitions=2)
    run(world, place, Wanted(name, target, partitions=(1,), since_ms=since, until_ms=until))
    assert whole(world, target, 0) == []
    assert whole(world, target, 1) == [one for one in log if since <= one[0] < until]


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [
        (2, {}, "has 2 partitions, and"),
        (1, {"message_timestamp_type": "LogAppendTime"}, "its brokers would overwrite timestamps"),
    ],
)
def test_restore_refuses_an_unsuitable_target(
    world: World, topic: str, place: Path, partitions: int, config: dict[str, Any], said: str
) -> None:
    target = world.topic("restored", partitions=partitions, **config)
    with pytest.raises(RestoreRefusedError, match=said):
        run(world, place, Wanted(topic, target))
    with pytest.raises(RestoreRefusedError, match="does not exist: create it first, with 1 partitions"):
        run(world, place, Wanted(topic, f"{target}-none"))


def test_restore_warns_of_a_target_whose_retention_deletes_at_once(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored", retention_ms=str(HOUR), cleanup_policy="compact,delete")
    with reader_for(world.bootstrap) as reader:
        job = prepare(reader, Store(str(place)), Wanted(topic, target), now_ms())
    assert "will delete them again soon" in job.warnings[0]
    assert "is compacted" in job.warnings[1]


def test_restore_of_a_missing_topic_or_range_is_an_error(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored")
    with pytest.raises(ArchiveError, match=f"has no topic nothing; it has {topic}"):
        run(world, place, Wanted("nothing", target))
    with pytest.raises(ArchiveError, match=f"no records of {topic}-7"):
        run(world, place, Wanted(topic, target, partitions=(7,)))
    world.renew(topic)
    produce(world, topic, odd_flights(10))
    archive(world, topic, place)
    with pytest.raises(ArchiveError, match=r"has 2 topics named .* choose one: --from-cluster .* --topic-id"):
        run(world, place, Wanted(topic, target))


def test_restore_of_a_damaged_segment_writes_nothing(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored")
    before = archived(place, topic)
    damaged = max(place.rglob("*.parquet"), key=lambda path: path.name)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-40] + b"x" * 40)
    arguments = ("restore", topic, "--from", str(place), "--to", target, "--yes")
    said = world.cli(*arguments, check=5)
    assert str(damaged) in said.err
    assert "run the same command again" in said.err
    there = whole(world, target)
    assert there == before[: len(there)]
    assert len(there) == 1_000
    damaged.write_bytes(content)
    world.cli(*arguments, check=0)
    assert whole(world, target) == before


def test_restore_asks_in_a_terminal_and_refuses_in_a_pipe(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored")
    arguments = ("restore", topic, "--from", str(place), "--to", target)
    assert "pass --yes" in world.cli(*arguments, check=6).err
    command = [sys.executable, "-m", "kretain", *arguments, "-b", world.bootstrap, "--state-dir", str(world.state_dir)]
    with Terminal(command, columns=200) as terminal:
        terminal.read_until("Restore 1,200 records of")
        terminal.type("n\n")
        assert terminal.wait() == 6
    assert whole(world, target) == []


def test_restore_names_a_record_too_large_for_the_target(world: World, place: Path) -> None:
    name = world.topic("large", max_message_bytes="3000000")
    produce(world, name, [(1_400_000_000_000, b"k", os.urandom(500_000), ())])
    archive(world, name, place)
    target = world.topic("restored", max_message_bytes="1000")
    said = world.cli("restore", name, "--from", str(place), "--to", target, "--yes", check=5)
    assert "could not be written to" in said.err
    assert "larger" in said.err.lower() or "too large" in said.err.lower()
    assert whole(world, target) == []


@pytest.fixture
def aged_policy(place: Path, tmp_path: Path):
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
    with closing(world.member(group, [topic], group_protocol=protocol)) as member:
        while count > 0:
            count -= len(member.consume(count, timeout=1))
        member.commit(asynchronous=False)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with EmbeddedKafka(1) as kafka:
        yield World(kafka.bootstrap, tmp_path_factory.mktemp("elsewhere") / "state")


@pytest.mark.thorough
def test_groups_continue_in_an_empty_cluster_with_the_record_they_would_have_read_next(
    world: World, elsewhere: World, place: Path, aged_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classic and consumer groups, with positions within, between, before and behind what was archived."""
    name = world.topic("flights", partitions=2)
    logs = [filled(world, name, partition) for partition in range(2)]
    world.commit(f"{name}-at", name, {0: 7, 1: 320})
    world.commit(f"{name}-marker", name, {0: 310, 1: 351})  # within the aborted records, and at its marker
    world.commit(f"{name}-behind", name, {partition: world.ends(name, partition)[1] for partition in range(2)})
    for protocol in ("classic", "consumer"):
        read_some(world, f"{name}-{protocol}", name, protocol, 600)
    groups = {f"{name}-{stem}" for stem in ("at", "marker", "behind", "classic", "consumer")}
    positions = {group: positions_in(world, group, name, 2) for group in groups}
    small(monkeypatch, 250)
    world.cli("trim", "-p", aged_policy(name), "--yes", check=0)
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
    with closing(Consumer({"bootstrap.servers": world.bootstrap, "group.id": group})) as consumer:
        answers = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=30)
        return {one.partition: one.offset for one in answers if one.offset >= 0}


@pytest.fixture
def trimmed(world: World, aged_policy) -> tuple[str, list[tuple[int, Whole]]]:
    """A topic of one partition, archived and trimmed while group g was at 100 and h at 700."""
    name = world.topic("trimmed")
    produce(world, name, odd_flights(1_000))
    log = numbered(world, name)
    world.commit(f"{name}-g", name, 100)
    world.commit(f"{name}-h", name, 700)
    world.cli("trim", "-p", aged_policy(name), "--yes", check=0)
    return name, log


def test_group_in_use_is_refused_and_one_with_commits_needs_overwrite(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """Nothing is written while a group has members; only told groups are moved, others stay."""
    name, log = trimmed
    target = world.topic("used", retention_ms="-1")
    group = f"{name}-g"
    arguments = ("restore", name, "--from", str(place), "--to", target, "--group", group, "--yes")
    with closing(world.member(group, [target])):
        assert f"group {group} has live members: stop its consumers" in world.cli(*arguments, check=6).err
        assert whole(world, target) == []
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
    assert world.cli(*arguments, target, "--yes", check=0).json()["groups"]["rows"] == planned["groups"]["rows"]
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
    assert {row["offset"] for row in world.cli(*arguments, check=0).json()["groups"]["rows"]} == {0}
    assert read_next(world, f"{name}-h", target, "classic", 1) == {0: (1, b"live", b"live", ())}


def test_group_does_not_skip_records_of_others_though_since_leaves_older_ones_out(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """What --since leaves out is what the archive has from before then, and nothing else that stands there."""
    name, log = trimmed
    since = sorted(record[0] for _offset, record in log)[400]
    arguments = ("restore", name, "--from", str(place), "--since", str(since), "-o", "json", "--yes", "--to")
    target, all_of_it = world.topic("since", retention_ms="-1"), world.topic("all", retention_ms="-1")
    produce(world, target, [(1, b"live", b"live", ())] * 5)
    world.cli(*arguments, target, "--append", check=0)
    rows = world.cli(*arguments, target, "--groups", check=0).json()["groups"]["rows"]
    assert {row["offset"] for row in rows} == {0}
    world.cli("restore", name, "--from", str(place), "--yes", "--to", all_of_it, check=0)
    world.cli(*arguments, all_of_it, "--groups", "--overwrite", check=0)
    kept = [(offset, record) for offset, record in log if record[0] >= since]
    assert read_next(world, f"{name}-h", all_of_it, "classic", 1) == {0: following(kept, 700)}


def test_until_restores_to_a_point_in_time_with_the_positions_of_then(
    world: World, trimmed: tuple[str, list[tuple[int, Whole]]], place: Path
) -> None:
    """Positions of a later time are used only if that is named; no group continues behind what was restored."""
    name, log = trimmed
    target = world.topic("until", retention_ms="-1")
    until = sorted(record[0] for _offset, record in log)[400]
    arguments = ("restore", name, "--from", str(place), "--to", target, "--until", str(until), "--groups", "--yes")
    assert "name the time to use with --positions-at" in world.cli(*arguments, check=1).err
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
    name, _log = trimmed
    target = world.topic("late")
    with closing(world.member(f"{name}-g", [target])), reader_for(world.bootstrap) as reader:
        resetter = GroupResetter(reader.settings, target, 30)
        with pytest.raises(BrokerError, match=r"could not be reset: it has live members by now"):
            resetter.reset(f"{name}-g", {0: 5})
    assert positions_in(world, f"{name}-g", target, 1) == {}
