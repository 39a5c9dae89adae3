"""Back from an archive: record for record, resumable, and nothing twice whenever it is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.restore import Job, Restored, RestoreRefusedError, Wanted, prepare, restore
from retention_cli.archive.store import Store
from retention_cli.brokers.republisher import Republisher
from tests.support.archiving import Killer, Whole, archive, archived, odd_flights, policy, produce, transaction, whole
from tests.support.terminal import Terminal
from tests.support.world import HOUR, World, consumed, now_ms, reader_for


def run(world: World, folder: Path, wanted: Wanted) -> tuple[Job, Restored]:
    with reader_for(world.bootstrap) as reader:
        store = Store(str(folder))
        job = prepare(reader, store, wanted, now_ms())
        return job, restore(reader, store, job)


def groups(world: World) -> set[str]:
    with reader_for(world.bootstrap) as reader:
        return {one.name for one in reader.list_groups(reader.brokers())}


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


def test_restore_brings_back_every_record(world: World, place: Path) -> None:
    """Archive, trim, restore: keys, values, headers, timestamps, order, in the same partitions (the issue's proof)."""
    name = world.topic("flights", partitions=3)
    log = list(odd_flights(4_500))
    for partition, codec in enumerate(("gzip", "lz4", "zstd")):
        mine = log[partition::3]
        produce(world, name, mine[:900], partition, codec)
        transaction(world, name, mine[:200], partition, commit=False)
        transaction(world, name, mine[900:1_000], partition, commit=True)
        produce(world, name, mine[1_000:], partition, codec)
    before = {partition: whole(world, name, partition) for partition in range(3)}
    world.commit(f"{name}-g", name, {partition: world.ends(name, partition)[1] for partition in range(3)})
    text = policy(name, place)
    assert {one.outcome for one in world.trim(world.plan(text), text).rows} == {"trimmed"}
    assert [whole(world, name, partition) for partition in range(3)] == [[], [], []]
    target = world.topic("restored", partitions=3)
    arguments = ("restore", name, "--from", str(place), "--to", target, "-o", "json")
    rehearsed = world.cli(*arguments, "--dry-run", check=0).json()
    assert (rehearsed["dry_run"], rehearsed["finished"]) == (True, False)
    assert rehearsed["totals"] == {"partitions": 3, "records": 4_500}
    assert {partition: whole(world, target, partition) for partition in range(3)} == {0: [], 1: [], 2: []}
    done = world.cli(*arguments, "--yes", check=0).json()
    assert done["format"] == "kretain.restore/v1"
    assert (done["dry_run"], done["finished"]) == (False, True)
    assert done["totals"] == {"partitions": 3, "records": 4_500}
    assert {partition: whole(world, target, partition) for partition in range(3)} == before
    assert not [name for name in groups(world) if name.startswith("kretain-restore-")]


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
        killed = Killer(world).run(step, number, *arguments)
        assert killed.code == -9, killed.err
        there = whole(world, target)
        assert there == before[: len(there)]
    assert 0 < len(whole(world, target)) < len(before)
    last = Killer(world).run("never", 1, *arguments, "-o", "json")
    assert last.code == 0, last.err
    assert last.json()["partitions"][0]["resumed_at"] > 0
    assert whole(world, target) == before
    refused = world.cli(*arguments, check=6)
    assert "is not empty" in refused.err
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

    text = world.state_dir.parent / "p.yaml"
    text.write_text(consumed(target, "0ms"))
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
    killed = Killer(world).run(
        "after-transaction-step", 5, "restore", topic, "--from", str(place), "--to", target, "--yes"
    )
    assert killed.code == -9
    world.commit(f"{target}-reader", target, world.ends(target)[1])
    assert world.decide(consumed(target, "0ms"), target).action != "trim"
    world.cli("restore", topic, "--from", str(place), "--to", target, "--yes", check=0)
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


def test_restore_into_a_filled_topic_needs_append(world: World, topic: str, place: Path) -> None:
    target = world.topic("restored")
    there: list[Whole] = [(1_400_000_000_000, b"k", b"v", ())]
    produce(world, target, there)
    with pytest.raises(RestoreRefusedError, match="is not empty"):
        run(world, place, Wanted(topic, target))
    run(world, place, Wanted(topic, target, append=True))
    assert whole(world, target) == there + archived(place, topic)


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [
        (2, {}, "has 2 partitions, and"),
        (1, {"message_timestamp_type": "LogAppendTime"}, "its broker would overwrite timestamps"),
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
    world.delete(topic)
    world.topic(name=topic)
    produce(world, topic, odd_flights(10))
    archive(world, topic, place)
    with pytest.raises(ArchiveError, match=r"has 2 topics of the name .* say which: --from-cluster .* --topic-id"):
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
