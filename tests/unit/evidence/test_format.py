"""Evidence as Parquet gives the very facts back, and is small (docs/evidence.md)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, strategies as st

from retention_cli.core.model import Code, Floor, PartitionFacts
from retention_cli.evidence.format import FORMAT, content_of, facts_table, part_of, results_table, rows_of
from retention_cli.evidence.value import Commit, Commits, Result, Row
from retention_cli.evidence.verify import verify_runs
from retention_cli.observe.floors.fold import Kind, Seen
from retention_cli.observe.request import Observation
from tests.support.evidence import RUN, drawn, ended, left_behind, numbers, observation, rows, texts, trimmed, usual
from tests.support.facts import NOW, topic

HEAD = {"format": FORMAT}


def plain(row: Row) -> Row:
    """Return a row with its sequences as tuples: which kind of sequence a fact is, is no fact."""
    facts = row.facts
    if isinstance(facts.samples, list):
        facts = facts._replace(samples=tuple(facts.samples))
    if isinstance(facts.segment_bases, list):
        facts = facts._replace(segment_bases=tuple(facts.segment_bases))
    return row._replace(facts=facts)


@given(st.lists(rows, max_size=4))
def test_any_facts_come_back_as_they_were(some: list[Row]) -> None:
    table = facts_table(HEAD, some, Commits.of(some, observation([])))
    back = part_of("001-facts.parquet", content_of(table))
    assert list(map(plain, rows_of(back.table))) == list(map(plain, some))


results = st.builds(
    Result,
    texts,
    st.integers(0, 2**31 - 1),
    *[st.none() | st.integers(1, 99)] * 2,
    texts,
    st.booleans(),
    *[st.none() | numbers] * 3,
    st.none() | texts,
    st.none() | numbers,
    numbers,
    st.none() | numbers,
    st.none() | texts,
)


@given(st.lists(results, max_size=4))
def test_results_come_back_as_they_were(some: list[Result]) -> None:
    back = part_of("results.parquet", content_of(results_table(HEAD, some)))
    assert [Result(**one) for one in back.table.to_pylist()] == some


def test_commits_of_every_kind_come_back_by_partition() -> None:
    facts = PartitionFacts(topic("t"), 0, 0, 9, 9, Floor(5, "group:a"), leader_epoch=4)
    row = usual(1, topics=1)[0][0]
    two = [row._replace(facts=facts), row._replace(facts=facts._replace(partition=7))]
    seen = [
        Seen("a", "t", "commit", [(0, 5, 4), (1, 2, None), (7, 6, 3), (99, 1, None)]),
        Seen("\x01file:flink", "t", "gone", [(0, 3, None)]),
        Seen("b", "t", "missing", [(7, -1, None)]),
        Seen("a", "other", "commit", [(0, 1, None)]),
    ]
    commits = Commits.of(two, observation(seen, epoch_ends=ended("t", 7, 3, 8)))
    part = part_of("001-facts.parquet", content_of(facts_table(HEAD, two, commits)))
    assert [part.commits.of_row(n) for n in (0, 1)] == [
        (Commit("file:flink", "gone", 3), Commit("group:a", "commit", 5, 4)),
        (Commit("group:b", "missing"), Commit("group:a", "commit", 6, 3, 8)),
    ]


def test_partition_read_again_has_the_commits_of_the_second_reading() -> None:
    some = usual(2, topics=1)[0]
    name = some[0].facts.topic.name
    first = observation([Seen("a", name, "commit", [(0, 5, None), (1, 6, None)])])
    second = observation([Seen("a", name, "commit", [(0, 50, None), (1, 60, None)])])
    commits = Commits.of(some, replace(first, passes=[*first.passes, *second.passes], read_in={some[1].facts.tp: 1}))
    assert [commits.of_row(n)[0].offset for n in (0, 1)] == [5, 60]


def test_evidence_of_a_usual_cluster_takes_at_most_120_bytes_a_partition() -> None:
    some, seen = usual(20_000)
    outcome = [
        Result(
            one.facts.topic.name,
            one.facts.partition,
            1,
            1,
            "trimmed",
            True,
            one.said.trim_to,
            5_000,
            one.said.trim_to,
            None,
            one.said.trim_to,
            (one.said.trim_to or 0) - one.facts.log_start,  # type: ignore[operator]
            one.said.size_bytes,
        )
        for one in some
    ]
    contents = (content_of(facts_table(HEAD, some, Commits.of(some, seen))), content_of(results_table(HEAD, outcome)))
    assert sum(map(len, contents)) <= 120 * len(some)


# -- docs/evidence.sql, which shares no code with ``kretain verify``, agrees with it --


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
