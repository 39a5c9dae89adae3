"""Evidence as Parquet gives the very facts back, and is small (docs/evidence.md)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Floor, PartitionFacts
from retention_cli.evidence.files import FORMAT, content_of, evidence_in
from retention_cli.evidence.format import facts_table, results_table
from retention_cli.evidence.value import Commit, Commits, Result, Row
from retention_cli.observe.floors.fold import Seen
from tests.support.evidence import ended, numbers, observation, rows, texts, usual
from tests.support.facts import topic

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
    back = evidence_in("run", {"001-facts.parquet": content_of(table)})
    assert list(map(plain, back.rows())) == list(map(plain, some))


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
    back = evidence_in("run", {"results.parquet": content_of(results_table(HEAD, some))})
    assert back.results == some


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
    part = evidence_in("run", {"001-facts.parquet": content_of(facts_table(HEAD, two, commits))}).rechecks[0]
    assert [part.commits.of_row(n) for n in (0, 1)] == [
        (Commit("file:flink", "gone", 3), Commit("group:a", "commit", 5, 4)),
        (Commit("group:b", "missing"), Commit("group:a", "commit", 6, 3, 8)),
    ]


def test_partition_read_again_has_the_commits_of_the_second_reading() -> None:
    some = usual(2, topics=1)[0]
    name = some[0].facts.topic.name
    first = observation([Seen("a", name, "commit", [(0, 5, None), (1, 6, None)])])
    second = observation([Seen("a", name, "commit", [(0, 50, None), (1, 60, None)])])
    both = replace(first, passes=[*first.passes, *second.passes], read_in={some[1].facts.tp: 1})
    commits = Commits.of(some, both)
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
