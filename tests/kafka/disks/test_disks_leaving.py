"""R6 and what is already leaving a disk, on real brokers whose files stay long after they are deleted (R6)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kretain.embedded import EmbeddedKafka
from tests.support.volumes import MIB, RECORD, disk_in, filled, percent_of, scan_all, trimmed
from tests.support.world import HOUR, World, now_ms, reader_for, wait_until


def test_bytes_awaiting_deletion_are_not_trimmed_again(tmp_path: Path) -> None:
    """R6: ``.deleted`` files and ``-delete`` folders leave; whoever remembers nothing waits for them, and says so."""
    with filled(tmp_path) as one:
        old = one.topic("old", 16, 30)
        doomed, young = one.topic("doomed", 10, 20), one.topic("young", 16, 10)
        before = one.scan("before")
        policy = one.policy(percent_of(one, 8 * MIB))
        _, _, held = one.described()
        one.world.cli("trim", "-p", str(policy), "--inventory", before, "--yes", "-o", "json", check=0)
        wait_until(lambda: one.described()[2] < held - 6 * MIB, "swept segments")
        assert one.world.ends(old)[0] > 0
        swept = one.scan("swept")
        for more in ((), ("--inventory", swept), ("--inventory", before)):
            fresh = one.plan(policy, *more, fresh=f"fresh-{len(more)}-{''.join(more)[-12:-8]}")
            assert trimmed(fresh) == {}, (more, disk_in(fresh))
            assert disk_in(fresh)["doubtful_bytes"] + disk_in(fresh)["dead_bytes"] >= 6 * MIB
            assert disk_in(fresh)["short_bytes"] == 0
            rows = {row["topic"]: row for row in fresh.json()["partitions"]}
            assert rows[young]["action"] == "hold"
            assert any("may be leaving" in reason["text"] for reason in rows[young]["reasons"]), rows[young]
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
        lowest = one.policy(percent_of(one, 22 * MIB))
        made = one.plan(lowest, "--inventory", deleted, fresh="last")
        assert trimmed(made)
        assert 0 < disk_in(made)["freed_bytes"] <= 22 * MIB - (8 + 10 - 4) * MIB


def test_bytes_that_others_delete_are_not_taken_from_another_topic(tmp_path: Path) -> None:
    """R6: by other rules behind a scan's end or in segments rolled by time; by another policy, and not swept yet."""
    with filled(tmp_path, check_ms=300_000) as one:
        slow = one.topic("slow", 16, 30)
        rolled: Any = {"segment_bytes": str(1 << 30), "segment_ms": "100000", "file_delete_delay_ms": str(HOUR)}
        fast, first = one.world.topic("fast", **rolled), now_ms() - 3 * HOUR
        stamps = [first + 1000 * n for n in range(20 * MIB // RECORD)]
        one.world.produce_at(fast, stamps[:200], value=lambda: os.urandom(RECORD), batch=50)
        stale = one.scan("stale")
        one.world.produce_at(fast, stamps[200:], value=lambda: os.urandom(RECORD), batch=50)
        percent = percent_of(one, 10 * MIB)
        keeps = 'match: "slow-*"'
        both = one.policy(percent, keeps, 'match: "fast-*", retention.ms: 150m')
        for n, more in enumerate(((), ("--inventory", stale), ("--inventory", one.scan("fresh")))):
            made = one.plan(both, *more, fresh=f"fresh-{n}")
            assert trimmed(made).keys() == {fast}, more
            waits = next(row for row in made.json()["partitions"] if row["topic"] == slow)["reasons"]
            assert bool(waits) == (n < 2), more
            assert all("A fresh scan tells" in row["text"] or "A scan tells" in row["text"] for row in waits)
        named = one.plan(both, slow, "--inventory", stale)
        assert trimmed(named) == {}, "all topics' excess from one that is named"
        assert "it needs all topics that the policy manages" in named.err
        # another team's policy: the brokers have not swept what the first one's trim left
        alone = one.policy(percent, keeps)
        assert trimmed(one.plan(alone)).keys() == {slow}
        one.world.cli("trim", "-p", str(both), fast, "--yes", "-o", "json", check=0)
        assert one.world.ends(fast)[0] > 1_500
        for more in ((), ("--inventory", one.scan("trimmed"))):
            made = one.plan(alone, *more)
            assert trimmed(made) == {}, more
            assert disk_in(made)["dead_bytes"] + disk_in(made)["doubtful_bytes"] > 10 * MIB


@pytest.mark.long
def test_inventory_of_a_truncated_and_regrown_log_is_rejected(tmp_path: Path) -> None:
    """M1: a disk is restored from a backup, and the log gets as many records again: others, by the same offsets."""
    with filled(tmp_path) as one:
        torn, [node] = one.topic("torn", 2, 30), one.kafka.nodes
        folder, backup = Path(node.log_dirs[0]) / f"{torn}-0", tmp_path / "backup"

        def restarted() -> None:
            one.kafka.start_node(node)
            one.kafka.wait_until_ready()
            one.world.await_leaders(torn, 1)

        def grow(age_h: int, size_mib: int) -> None:
            first = now_ms() - age_h * HOUR
            stamps = [first + n for n in range(size_mib * MIB // RECORD)]
            one.world.produce_at(torn, stamps, value=lambda: os.urandom(RECORD), batch=50)

        node.kill()
        shutil.copytree(folder, backup)
        restarted()
        grow(29, 10)
        policy, before = one.policy(percent_of(one, 8 * MIB)), one.scan("before")
        assert trimmed(one.plan(policy, "--inventory", before))[torn] > 500
        node.kill()
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        restarted()
        grow(0, 11)  # more bytes than before: only its leader epoch tells
        for state in ("knew it", "fresh"):
            made = one.plan(policy, "--inventory", before, fresh=state)
            assert trimmed(made) == {}, "records of now, by the segments that were there before"
            [row] = [row for row in made.json()["partitions"] if row["topic"] == torn]
            assert "leader epoch" in row["reasons"][0]["text"]
            assert "scan again" in row["reasons"][0]["text"]
        assert trimmed(one.plan(policy, "--inventory", one.scan("after"))).keys() == {torn}, "as a fresh scan says"


@pytest.mark.long
def test_broker_that_is_down_is_named_and_its_partitions_hold(tmp_path: Path) -> None:
    """R6: its disks may be the ones that are full; ``disk`` exits with 5."""
    with EmbeddedKafka(3, settings={"log.index.size.max.bytes": "65536"}) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        everywhere = world.topic("everywhere", replicas=3, segment_bytes=str(MIB), min_insync_replicas="1")
        world.produce_at(everywhere, [now_ms() - HOUR] * 600, value=lambda: os.urandom(RECORD), batch=50)
        inventory = scan_all(kafka, tmp_path / "inventory")
        policy = tmp_path / "policy.yaml"
        ceiling = "disks: {log.retention.disk.usage.percent: 50, capacity: 6MiB}"
        policy.write_text(f"version: 1\n{ceiling}\ntopics:\n  - {{match: everywhere-*, unconsumed: trim}}\n")
        options = ("-p", str(policy), "-o", "json")
        before = world.cli("plan", *options, "--inventory", str(inventory), check=0)
        assert [row["action"] for row in before.json()["partitions"]] == ["trim"]
        kafka.node(3).kill()

        def away() -> bool:
            with reader_for(world.bootstrap) as reader:
                return 3 not in reader.metadata().brokers

        wait_until(away, "a cluster without broker 3")
        for more in ((), ("--inventory", str(inventory))):
            made = world.cli("plan", *options, *more, check=0)
            [row] = made.json()["partitions"]
            assert (row["action"], row["trim_to"]) == ("hold", None), row
            assert any("broker 3" in reason["text"] for reason in row["reasons"]), row
            assert "broker 3" in made.err
            [down] = [one for one in made.json()["disks"] if one["broker"] == 3]
            assert everywhere in down["reasons"][0]["text"]
            assert world.cli("disk", *options, *more, check=5).json()["disks"][2]["broker"] == 3
        alone = world.cli("disk", check=5)
        assert "broker 3" in alone.out
        assert "is down" in alone.err
