"""kretain's first promise on random topics, groups and policies: what went, against an oracle of its own.

The oracle (``oracle.py``) is docs/rules.md worked out from the records that plain consumers read before the trim;
the trims are the real command. Every seed can be tried: ``FLEET_SEEDS=7,8,9 pytest tests/kafka/plan/test_randomized.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.oracle import HOUR, Rules, Seen, Verdict, floor_of, judge
from tests.support.plain import Place
from tests.support.world import World, now_ms

SEEDS = [int(seed) for seed in os.environ.get("FLEET_SEEDS", "3,8").split(",")]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.long if number else pytest.mark.thorough)
        for number, seed in enumerate(SEEDS)
    ],
)
def test_random_topics_lose_only_what_the_oracle_allows(world: World, tmp_path: Path, seed: int) -> None:
    """Three trims in a row: by a policy, by another after more records and commits, and by one-off flags."""
    fleet = Fleet(world, seed)
    try:
        fleet.build()
        fleet.commit_somewhere()
        fleet.trim_somewhere()
        with fleet.members():
            moved = [by_policy(world, fleet, tmp_path)]
            fleet.fill(1, young=True)
            fleet.commit_somewhere()
            moved.append(by_policy(world, fleet, tmp_path))
            moved.append(by_flags(world, fleet))
    finally:
        fleet.close()
    assert all(moved), f"seed {seed}: one of the trims moved nothing, and so tested nothing: {moved}"


def by_policy(world: World, fleet: Fleet, tmp_path: Path) -> int:
    text, rules = fleet.policy()
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    before = fleet.seen(ignored=fleet.stray, latest=fleet.late)
    return trim_and_compare(world, fleet, before, rules, ["-p", str(path)])


def by_flags(world: World, fleet: Fleet) -> int:
    arguments, rules = fleet.flags()
    return trim_and_compare(world, fleet, fleet.seen(), rules, arguments)


def trim_and_compare(
    world: World, fleet: Fleet, before: Mapping[Place, Seen], rules: Mapping[str, Rules], arguments: list[str]
) -> int:
    """Trim with the real command; return how many partitions moved, all of them as they had to."""
    now = now_ms()
    report = world.cli("trim", *arguments, "--yes", "-o", "json", check=0).json()
    after = fleet.seen()
    rows = {(row["topic"], row["partition"]): row for row in report["partitions"]}
    assert rows.keys() == {place for place in before if place[0] in rules}
    for place, seen in before.items():
        left = after[place]
        told = f"{place} of seed {fleet.seed}, {rules.get(place[0])}, {seen}, now S = {left.start}"
        kept = {offset: stamp for offset, stamp in seen.stamps.items() if offset >= left.start}
        assert kept == {o: t for o, t in left.stamps.items() if o < seen.end}, f"records went without a trim: {told}"
        if place[0] not in rules:
            assert left.start == seen.start, f"it was not managed: {told}"
            continue
        known = as_remembered(fleet, place, seen)
        allowed_to_go(known, rules[place[0]], left.start, now, told)
        verdict = judge(known, rules[place[0]], now)
        assert verdict.least <= left.start <= verdict.most, f"not {verdict}: {told}, {rows[place]}"
        truthful(rows[place], seen, left, verdict, told)
    moved = [place for place in rows if after[place].start > before[place].start]
    totals = report["totals"]
    assert totals["trimmed"] == len(moved)
    assert totals["records"] == sum(after[place].start - before[place].start for place in moved)
    assert totals["partitions"] == len(rows)
    assert announced(world, report["run"]) == {place: after[place].start for place in moved}
    return len(moved)


def as_remembered(fleet: Fleet, place: Place, seen: Seen) -> Seen:
    """Return what kretain knows of the commits by now: one that it saw beyond H is a leftover until it changes (F5)."""
    commits = dict(seen.commits)
    for group, offset in seen.commits.items():
        if offset > seen.end:
            fleet.leftovers[group, place] = offset
        elif fleet.leftovers.get((group, place)) == offset:
            commits[group] = seen.end + 1
    return replace(seen, commits=commits)


def allowed_to_go(seen: Seen, rules: Rules, start: int, now: int, told: str) -> None:
    """The promise itself, record by record: each that went was old enough, and read unless R4 forced it."""
    if start == seen.start:
        return
    assert not rules.frozen, told
    assert not rules.skipped, told
    assert start <= min(seen.end, seen.stable), f"past H or L: {told}"
    gone = [seen.stamps[offset] for offset in seen.committed if offset < start]
    youngest = max(gone, default=0)
    floor = floor_of(seen, rules.require)
    read = floor is not None and start <= floor
    forced = rules.forced_age_h is not None and youngest < now - rules.forced_age_h * HOUR
    consumed = rules.consumed_after_h is not None and youngest < now - rules.consumed_after_h * HOUR
    assert (consumed and read) or (forced and (read or not rules.guarded)), f"{told}: youngest gone {youngest}"


def truthful(row: Mapping[str, Any], seen: Seen, left: Seen, verdict: Verdict, told: str) -> None:
    """The report says what really became of the partition, and why it is as it is."""
    moved = left.start - seen.start
    assert row["records"] == moved, f"{row}: {told}"
    if moved:
        assert (row["outcome"], row["target"], row["log_start"]) == ("trimmed", left.start, left.start), (
            f"{row}: {told}"
        )
        return
    assert row["log_start"] in (None, left.start), f"{row}: {told}"
    wanted = {"keep": "unchanged", "skip": "unchanged", "hold": "held"}
    if verdict.action is not None:
        assert row["outcome"] == wanted[verdict.action], f"{row}: {told}"
    assert row["reasons"] or row["outcome"] != "held", f"held without a word: {row}"


def announced(world: World, run: str) -> dict[Place, int]:
    """What the audit log says was about to be trimmed in a run, and to where."""
    log = next(world.state_dir.glob("*/audit.jsonl"))
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return {
        (row["topic"], row["partition"]): row["target"]
        for event in events
        if event["run"] == run and event["event"] == "batch"
        for row in event["partitions"]
    }
