"""R6 and what is already leaving a disk, on real brokers whose files stay long after they are deleted (R6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.volumes import MIB, RECORD, disk_in, filled, percent_of, trimmed
from tests.support.world import HOUR, now_ms, wait_until


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
