"""docs/evidence.sql, which shares no code with ``kretain verify``, agrees with it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from retention_cli.core.codes import Code
from retention_cli.core.model import Floor
from retention_cli.evidence.value import Result, Row
from retention_cli.evidence.verify import verify_runs
from retention_cli.observe.floors.fold import Kind, Seen
from retention_cli.observe.request import Observation
from tests.support.evidence import RUN, drawn, left_behind, observation, trimmed, usual
from tests.support.facts import NOW

SQL = (Path(__file__).parents[3] / "docs" / "evidence.sql").read_text()


def by_sql(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("SET VARIABLE run = ?", [str(folder / "evidence" / RUN)])
        return database.execute(SQL).fetchall()


def by_verify(folder: Path) -> list[str]:
    return [f"{one.where}: {one.text}" for one in verify_runs(folder.parent, [RUN])[0].findings]


def damaged(row: Row, draw: random.Random) -> Row:
    """Return a row of which something does not follow from the rest, or might not."""
    said, facts, step = row.said, row.facts, draw.choice([-1, 1, 1000])
    return draw.choice(
        [
            row._replace(said=said._replace(trim_to=(said.trim_to or 5) + step)),
            row._replace(said=said._replace(action=draw.choice(["trim", "hold", "keep", "skip"]))),
            row._replace(said=said._replace(rule=draw.choice(["consumed", "forced-age", "min-timestamp"]))),
            row._replace(said=said._replace(limited_by=draw.choice([None, Code.G1, Code.G2]))),
            row._replace(reads=row.reads._replace(ends=row.reads.ends + draw.choice([-600, 9_000]))),
            row._replace(now_ms=row.now_ms + draw.choice([-2, 4_000])),
            row._replace(planned=row.planned._replace(trim_to=row.planned.trim_to + step)),
            row._replace(planned=row.planned._replace(unconsumed=0, min_commit=draw.choice([None, 2**60]))),
            row._replace(planned=row.planned._replace(leader_epoch=draw.choice([1, 99]))),
            row._replace(facts=facts._replace(floor=Floor(draw.randrange(2**34), "group:other"))),
            row._replace(facts=facts._replace(leader_epoch=9)),
            row._replace(facts=facts._replace(high_watermark=5)),
            row._replace(settings=replace(row.settings, hold="audit")),
        ]
    )


def other_commits(seen: Observation, draw: random.Random) -> Observation:
    """Return what was seen, with some groups' commits of another kind, of another epoch, or gone altogether."""

    def changed(one: Seen) -> Seen | None:
        kinds: tuple[Kind, ...] = (*["commit"] * 12, "gone", "missing", "refused")  # type: ignore[arg-type]
        kind, other = draw.choice(kinds), draw.choice([None] * 8 + ["epoch", "none"])
        if other == "epoch":
            return Seen(one.group, one.topic, "commit", [(n, offset, 2) for n, offset, _ in one.commits])
        return None if other == "none" else Seen(one.group, one.topic, kind, one.commits)

    return observation([new for one in seen.passes[0].seen if (new := changed(one)) is not None])


def wrong(result: Result, draw: random.Random) -> Result:
    asked = result.request_offset or 0
    return draw.choice(
        [
            result._replace(request_offset=asked + draw.choice([-1, 1])),
            result._replace(sent_ms=draw.choice([NOW + 10, NOW + 31_000, None])),
            result._replace(log_start_after=draw.choice([None, asked - 1])),
            result._replace(records=result.records + 1),
            result._replace(outcome="failed"),
        ]
    )


@pytest.mark.parametrize("seed", range(6))
def test_both_checkers_accept_what_a_trim_leaves_behind(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    plain, seen = usual(200, topics=40, seed=seed)
    rows = [drawn(one, draw) for one in plain]
    left_behind(tmp_path / "c", rows, seen, trimmed(rows))
    assert by_verify(tmp_path / "c") == []
    assert by_sql(tmp_path / "c") == []
    assert {one.said.action for one in rows} == {"trim", "hold", "keep", "skip"}
    assert {one.said.rule for one in rows} > {"consumed", "min-timestamp", "forced-age"}


@pytest.mark.parametrize("seed", range(6))
def test_both_checkers_find_the_same_rows_of_damaged_evidence(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    plain, seen = usual(60, topics=60, seed=seed)
    rows = [one for one in (drawn(one, draw) for one in plain) if one.settings.event_time_ms is None]
    rows = [damaged(one, draw) if draw.random() < 0.5 else one for one in rows]
    seen = other_commits(seen, draw)
    results = [wrong(one, draw) if draw.random() < 0.2 else one for one in trimmed(rows)]
    left_behind(tmp_path / "c", rows, seen, results)
    told = by_verify(tmp_path / "c")
    second = {f"{topic}-{partition}" for topic, partition, _ in by_sql(tmp_path / "c") if topic}
    first = {str(row.facts.tp) for row in rows if any(f"{row.facts.tp}:" in one for one in told)}
    assert second == first, (sorted(first ^ second), told)
