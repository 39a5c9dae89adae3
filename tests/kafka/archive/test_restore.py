"""Back from an archive: record for record and nothing twice; groups continue with what each would have read next."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.restore import (
    Job,
    Restored,
    RestoreRefusedError,
    Wanted,
    WantedGroups,
    prepare,
    restore,
)
from retention_cli.archive.restore_groups import choose, mapped, reset
from retention_cli.archive.store import Store
from retention_cli.archive.writer import PartitionArchiver
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.republisher import GroupResetter, Republisher
from tests.support.archives import (
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
from tests.support.plain import after
from tests.support.says import refusal, says
from tests.support.terminal import Terminal
from tests.support.world import HOUR, Cli, World, consumed, now_ms, reader_for, written

LIVE, NEW = (1, b"live", b"live", ()), (1, b"new", b"new", ())
"""Records that stand in a target before what is restored, and behind it."""
STANDS = {"g": 100, "h": 700}
"""Where groups stood when their topic was trimmed."""


def run(world: World, folder: Path, wanted: Wanted) -> tuple[Job, Restored]:
    with reader_for(world.bootstrap) as reader:
        store = Store(str(folder))
        job = prepare(reader, store, wanted, now_ms())
        return job, restore(reader, store, job)


def restored(world: World, topic: str, place: Path, target: str, *more: str, check: int = 0) -> Cli:
    return world.cli("restore", topic, "--from", str(place), "--to", target, *more, check=check)


@pytest.fixture
def topic(world: World, place: Path) -> str:
    """1,200 odd records in one partition, archived in three segments."""
    name = world.topic("archived")
    produce(world, name, odd_flights(1_200))
    archive(world, name, place)
    return name


@pytest.fixture
def target(world: World) -> str:
    return world.topic("restored")


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
    totals = {"partitions": count, "records": sum(map(len, before.values())) - len(left[count - 1])}
    expected = {"format": "kretain.restore/v1", "totals": totals, "dry_run": True, "finished": False}
    rehearsed = restored(world, name, place, target, "-o", "json", "--dry-run").json()
    assert {key: rehearsed[key] for key in expected} == expected
    assert [whole(world, target, partition) for partition in range(count)] == [[]] * count
    done = restored(world, name, place, target, "-o", "json", "--yes").json()
    assert {key: done[key] for key in expected} == expected | {"dry_run": False, "finished": True}
    assert {partition: whole(world, target, partition) + left[partition] for partition in range(count)} == before
    assert not [name for name in world.groups() if name.startswith("kretain-restore-")]


def test_restore_killed_at_any_step_loses_and_duplicates_nothing(
    world: World, topic: str, place: Path, target: str
) -> None:
    """SIGKILL within and between transactions, one restore after the other, until one comes through."""
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
    assert 0 < len(there) < len(before)
    assert killed_at(world, "never", 1, *arguments, "-o", "json", check=0).json()["partitions"][0]["resumed_at"] > 0
    assert whole(world, target) == before
    assert "is not empty" in world.cli(*arguments, check=6).err
    assert whole(world, target) == before


def test_restore_holds_the_floor_with_its_group_until_it_ends(
    world: World, topic: str, place: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was restored is trimmed before all is; what a plan saw of the group is forgotten (F6)."""
    world.commit(f"{target}-reader", target, 0)
    seen = []

    def look() -> None:
        world.commit(f"{target}-reader", target, world.ends(target)[1])
        decision = world.decide(consumed(target, "0ms"), target)
        seen.append((decision.action, decision.min_commit))

    after(monkeypatch, Republisher, "append", look)
    run(world, place, Wanted(topic, target))
    assert [floor for _action, floor in seen] == [0] * 5  # it has begun, three segments, it has ended
    assert {action for action, _floor in seen} <= {"keep", "hold"}
    assert world.decide(consumed(target, "0ms"), target).action != "trim", (
        "remembered, until it is forgotten (the command does that)"
    )
    world.delete(target)


def test_restore_command_deletes_its_group(world: World, topic: str, place: Path, target: str) -> None:
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
    assert [whole(world, target, n) for n in (0, 1)] == [[], [one for one in log if since <= one[0] < until]]


def test_restore_refuses_an_unsuitable_target_and_warns_of_one_that_deletes_at_once(
    world: World, topic: str, place: Path
) -> None:
    for config, said in (
        ({"partitions": 2}, "has 2 partitions, and"),
        ({"message_timestamp_type": "LogAppendTime"}, "its brokers would overwrite timestamps"),
    ):
        target = world.topic("restored", **dict[str, Any](config))
        assert said in refusal(RestoreRefusedError, run, world, place, Wanted(topic, target))
    says(
        refusal(RestoreRefusedError, run, world, place, Wanted(topic, f"{target}-none")),
        "does not exist: create it first, with 1 partition (kafka-topics.sh",
        "--partitions 1 --config retention.ms=-1)",
    )
    target = world.topic("restored", retention_ms=str(HOUR), cleanup_policy="compact,delete")
    with reader_for(world.bootstrap) as reader:
        job = prepare(reader, Store(str(place)), Wanted(topic, target), now_ms())
    assert ["will delete them again soon" in job.warnings[0], "is compacted" in job.warnings[1]] == [True] * 2


def test_restore_of_a_missing_topic_or_range_is_an_error(world: World, topic: str, place: Path, target: str) -> None:
    says(refusal(ArchiveError, run, world, place, Wanted("nothing", target)), f"has no topic nothing; it has {topic}")
    assert f"no records of {topic}-7" in refusal(
        ArchiveError, run, world, place, Wanted(topic, target, partitions=(7,))
    )
    world.renew(topic)
    produce(world, topic, odd_flights(10))
    archive(world, topic, place)
    said = refusal(ArchiveError, run, world, place, Wanted(topic, target))
    says(said, "has 2 topics named ", " choose one: --from-cluster ", " --topic-id")


def test_restore_of_a_damaged_segment_writes_nothing(world: World, topic: str, place: Path, target: str) -> None:
    before = archived(place, topic)
    damaged = max(place.rglob("*.parquet"), key=lambda path: path.name)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-40] + b"x" * 40)
    says(restored(world, topic, place, target, "--yes", check=5).err, str(damaged), "run the same command again")
    assert whole(world, target) == before[:1_000]
    damaged.write_bytes(content)
    restored(world, topic, place, target, "--yes")
    assert whole(world, target) == before


def test_restore_asks_in_a_terminal_and_refuses_in_a_pipe(world: World, topic: str, place: Path, target: str) -> None:
    assert "pass --yes" in restored(world, topic, place, target, check=6).err
    restore = ["restore", topic, "--from", str(place), "--to", target]
    command = [sys.executable, "-m", "kretain", *restore, "-b", world.bootstrap, "--state-dir", str(world.state_dir)]
    Terminal(command, columns=200).end(("Restore 1,200 records of", "n\n"), code=6)
    assert whole(world, target) == []


def test_restore_names_a_record_too_large_for_the_target(world: World, place: Path) -> None:
    name = world.topic("large", max_message_bytes="3000000")
    produce(world, name, [(1_400_000_000_000, b"k", os.urandom(500_000), ())])
    archive(world, name, place)
    target = world.topic("restored", max_message_bytes="1000")
    says(restored(world, name, place, target, "--yes", check=5).err.lower(), "could not be written to", "large")
    assert whole(world, target) == []


def aged(topic: str, place: Path) -> str:
    """Return the policy that archives and trims all that is older than 2020, read or not."""
    rules = "log.retention.min.timestamp: 1577836800000\n    unconsumed: trim"
    return f'version: 1\ntopics:\n  - match: "{topic}"\n    {rules}\n    archive: {place}\n'


def trim_aged(world: World, topic: str, place: Path) -> None:
    policy_file = written(place.with_name("policy.yaml"), aged(topic, place))
    world.cli("trim", "-p", str(policy_file), "--yes", check=0)


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
    found: dict[int, Whole] = {}
    deadline = time.monotonic() + 30
    with closing(Consumer({"bootstrap.servers": world.bootstrap, **config})) as member:
        member.subscribe([topic])
        while len(found) < partitions and time.monotonic() < deadline:
            for one in member.consume(200, timeout=0.5):
                assert one.error() is None, one.error()
                record = (one.timestamp()[1], one.key(), one.value(), tuple(one.headers() or ()))
                found.setdefault(one.partition() or 0, record)  # type: ignore[arg-type]
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
    world: World, elsewhere: World, place: Path, monkeypatch: pytest.MonkeyPatch
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
    trim_aged(world, name, place)
    assert [whole(world, name, partition) for partition in range(2)] == [[], []]
    assert len([*place.rglob("_groups/*.json")]) == 2, "before the copy, and before the trim"

    target = elsewhere.topic("back", partitions=2)
    again = (elsewhere, name, place, target, "--groups", "-o", "json")
    rehearsed = restored(*again, "--dry-run").json()["groups"]["rows"]
    assert {row["offset"] for row in rehearsed} == {None}
    first = {row["group"]: row["archived"] for row in rehearsed if row["partition"] == 0}
    assert first == {group: there.get(0) for group, there in positions.items()}
    done = restored(*again, "--yes").json()["groups"]
    assert (done["reset"], done["left"], {row["group"] for row in done["rows"]}) == (True, {}, groups)
    for partition in range(2):
        produce(elsewhere, target, [NEW], partition)
    for group in sorted(groups):
        protocol = "consumer" if group.endswith("-consumer") else "classic"
        expected = {n: following(log, positions[group].get(n, 0)) or NEW for n, log in enumerate(logs)}
        assert read_next(elsewhere, group, target, protocol, 2) == expected, group
    assert restored(*again, "--dry-run").json()["groups"]["rows"] == done["rows"]
    elsewhere.commit(f"{name}-at", target, {0: 8})
    says(restored(*again, "--dry-run", check=6).err, f"group {name}-at has commits on topic {target}")


def positions_in(world: World, group: str, topic: str, partitions: int) -> dict[int, int]:
    with closing(Consumer({"bootstrap.servers": world.bootstrap, "group.id": group})) as consumer:
        answers = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=30)
        return {one.partition: one.offset for one in answers if one.offset >= 0}


@dataclass
class Trimmed:
    """A topic of one partition, archived and trimmed while group g was at 100 and h at 700; its records by offset.

    ``next_in`` has a group read on in a target and returns its first record, ``position_in`` is where it stands there.
    """

    world: World
    place: Path
    name: str
    log: list[tuple[int, Whole]]

    def back(self, target: str, *more: str, check: int = 0) -> Cli:
        return restored(self.world, self.name, self.place, target, *more, "--yes", check=check)

    def next_in(self, target: str, stem: str) -> Whole:
        return read_next(self.world, f"{self.name}-{stem}", target, "classic", 1)[0]

    def position_in(self, target: str, stem: str) -> int | None:
        return positions_in(self.world, f"{self.name}-{stem}", target, 1).get(0)


@pytest.fixture
def trimmed(world: World, place: Path) -> Trimmed:
    name = world.topic("trimmed")
    produce(world, name, odd_flights(1_000))
    log = numbered(world, name)
    for stem, position in STANDS.items():
        world.commit(f"{name}-{stem}", name, position)
    trim_aged(world, name, place)
    return Trimmed(world, place, name, log)


def test_group_in_use_is_refused_and_one_with_commits_needs_overwrite(world: World, trimmed: Trimmed) -> None:
    """Nothing is written while a group has members; only named groups are moved, others stay."""
    target, group = world.topic("used"), f"{trimmed.name}-g"
    with closing(world.member(group, [target])):
        says(trimmed.back(target, "--group", group, check=6).err, f"group {group} has live members: stop its consumers")
        assert whole(world, target) == []
    world.commit(group, target, 0)
    assert "pass --overwrite to replace them" in trimmed.back(target, "--group", group, check=6).err
    trimmed.back(target, "--group", group, "--overwrite")
    assert [stem for stem in STANDS if trimmed.position_in(target, stem)] == ["g"]
    assert trimmed.next_in(target, "g") == following(trimmed.log, 100)
    says(
        trimmed.back(target, "--group", "nobody", check=6).err,
        f"group nobody has no position on {trimmed.name} in the archive",
    )


def test_groups_alone_are_reset_where_the_records_are_there_and_only_there(world: World, trimmed: Trimmed) -> None:
    """Also after a restore that was not for groups. A topic with other records is refused."""
    target, other = world.topic("there"), world.topic("other")
    trimmed.back(target)
    before = whole(world, target)
    planned = restored(world, trimmed.name, trimmed.place, target, "--groups", "-o", "json", "--dry-run").json()
    assert (planned["totals"]["records"], trimmed.position_in(target, "g")) == (0, None)
    assert trimmed.back(target, "--groups", "-o", "json").json()["groups"]["rows"] == planned["groups"]["rows"]
    assert whole(world, target) == before
    expected = {stem: following(trimmed.log, position) for stem, position in STANDS.items()}
    assert {stem: trimmed.next_in(target, stem) for stem in STANDS} == expected
    produce(world, other, odd_flights(20))
    says(
        trimmed.back(other, "--groups", "-o", "json", check=6).err,
        f"{other}-0 does not have the record of archived offset",
    )
    assert trimmed.position_in(other, "g") is None


def test_group_does_not_skip_records_of_others_though_since_leaves_older_ones_out(
    world: World, trimmed: Trimmed
) -> None:
    """What --since leaves out is what the archive has from before then. Records that the target had before are unread."""
    since = sorted(record[0] for _offset, record in trimmed.log)[400]
    target, all_of_it = world.topic("since"), world.topic("all")
    produce(world, target, [LIVE] * 5)
    trimmed.back(target, "--since", str(since), "--append")
    rows = trimmed.back(target, "--since", str(since), "--groups", "-o", "json").json()["groups"]["rows"]
    assert {row["offset"] for row in rows} == {0}
    assert trimmed.next_in(target, "h") == LIVE
    trimmed.back(all_of_it)
    trimmed.back(all_of_it, "--since", str(since), "--groups", "--overwrite")
    kept = [(offset, record) for offset, record in trimmed.log if record[0] >= since]
    assert trimmed.next_in(all_of_it, "h") == following(kept, 700)


def test_group_that_started_over_behind_trimmed_records_continues_with_the_first_that_it_never_read(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two trims it went on at the new log start: its newest position hides what only the archive has.

    Group ``late`` first committed while the records were copied: the trim passed it, too.
    """
    name = world.topic("skipped")
    produce(world, name, odd_flights(1_000))
    log = numbered(world, name)
    for stem, position in STANDS.items():
        world.commit(f"{name}-{stem}", name, position)
    world.commit(f"{name}-all", name, world.ends(name)[1])
    with monkeypatch.context() as once:
        after(once, PartitionArchiver, "copy", lambda: world.commit(f"{name}-late", name, 300))
        world.trim(world.plan(aged(name, place)), aged(name, place))
    produce(world, name, odd_flights(500))
    log += numbered(world, name)
    end = world.ends(name)[1]
    for stem in ("g", "all", "late"):
        world.commit(f"{name}-{stem}", name, end)
    trim_aged(world, name, place)
    assert world.ends(name) == (end, end)

    both, target = Trimmed(world, place, name, log), world.topic("skipped-back")
    rows = {row["group"]: row for row in both.back(target, "--groups", "-o", "json").json()["groups"]["rows"]}
    stems = ("g", "late", "h", "all")
    noted = [rows[f"{name}-{stem}"]["note"] for stem in stems]
    assert ["a trim deleted what it had not read" in note for note in noted] == [True, True, False, False]
    produce(world, target, [NEW])
    assert both.next_in(target, "g") == following(log, 100)
    assert both.next_in(target, "late") == following(log, 300)
    assert both.next_in(target, "h") == following(log, 700)
    assert both.next_in(target, "all") == NEW
    plan = world.decide(consumed(target, "0ms"), target)
    assert plan.trim_to is None or plan.trim_to <= 100


def test_until_restores_to_a_point_in_time_with_the_positions_of_then(world: World, trimmed: Trimmed) -> None:
    """Positions of a later time are used only if that is named; no group continues behind what was restored."""
    target = world.topic("until")
    until = sorted(record[0] for _offset, record in trimmed.log)[400]
    says(
        trimmed.back(target, "--until", str(until), "--groups", check=1).err, "name the time to use with --positions-at"
    )
    assert whole(world, target) == []
    trimmed.back(target, "--until", str(until), "--groups", "--positions-at", "2100-01-01T00:00:00Z")
    kept = [(offset, record) for offset, record in trimmed.log if record[0] < until]
    assert whole(world, target) == [record for _offset, record in kept]
    produce(world, target, [NEW])
    expected = {stem: following(kept, position) or NEW for stem, position in STANDS.items()}
    assert {stem: trimmed.next_in(target, stem) for stem in STANDS} == expected


def test_group_that_gets_a_member_before_the_commit_is_not_moved(world: World, trimmed: Trimmed) -> None:
    """The coordinator itself refuses, however late the member comes."""
    target, group = world.topic("late"), f"{trimmed.name}-g"
    with closing(world.member(group, [target])), reader_for(world.bootstrap) as reader:
        said = refusal(BrokerError, GroupResetter(reader.settings, target, 30).reset, group, {0: 5})
    assert "could not be reset: it has live members by now" in said
    assert trimmed.position_in(target, "g") is None


def test_no_group_is_moved_in_a_target_that_was_recreated_while_kretain_asked(world: World, trimmed: Trimmed) -> None:
    """The offsets are those of the former topic: groups would skip what the new one has."""
    target, groups = world.topic("renewed"), WantedGroups()
    with reader_for(world.bootstrap) as reader:
        store = Store(str(trimmed.place))
        job = prepare(reader, store, Wanted(trimmed.name, target, groups=groups), now_ms())
        chosen = choose(reader, store, job, groups)
        restore(reader, store, job)
        plan = mapped(reader, store, job, chosen)
        world.renew(target)
        said = refusal(BrokerError, reset, reader, GroupResetter(reader.settings, target, 30), job, plan)
    assert "was deleted or recreated during the restore" in said
    assert [trimmed.position_in(target, stem) for stem in STANDS] == [None, None]
