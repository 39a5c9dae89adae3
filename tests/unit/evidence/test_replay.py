"""Evidence as Parquet gives the facts back; a policy over it, and what it can't say (docs/evidence.md, docs/replay.md)."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, strategies as st

from retention_cli.archive.store import Store
from retention_cli.core.model import ANCIENT_MS, Code, Floor, LookUp, PartitionFacts, Reason, TopicFacts, Unknown
from retention_cli.core.state_dir import StateError
from retention_cli.core.units import timestamp
from retention_cli.decide.decision import decide
from retention_cli.evidence.format import (
    FORMAT,
    commits_of,
    content_of,
    facts_table,
    part_of,
    results_table,
    rows_of,
)
from retention_cli.evidence.redecide import redecide
from retention_cli.evidence.replay import Difference, Held, Replayed, merged, recorded, replay, rows_about
from retention_cli.evidence.value import Commit, Commits, Planned, ReadTimes, RecordedDecision, Result, Row
from retention_cli.evidence.verify import verify_runs
from retention_cli.evidence.writer import FOLDER, Recorder
from retention_cli.observe.floors.fold import Kind, Seen
from retention_cli.observe.request import Observation
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.reports.past import explain_past
from tests.support.evidence import (
    RUN,
    drawn,
    ended,
    findings,
    left_behind,
    numbers,
    observation,
    rows,
    several_runs,
    texts,
    trimmed,
    usual,
)
from tests.support.facts import HOUR, NOW, UNKNOWN, Log, logs, policy as parsed, settings, topic
from tests.support.says import refusal

DAY = 24 * HOUR
R1 = Settings(consumed_after_ms=DAY, named_in_full=True)
_POLICY = "version: 1\ntopics:\n- match: orders\n{}"
R1_TEXT = "  retention.commitoffset.enable: true\n  retention.commitoffset.hours: %d\n"


def policy(text: str) -> Policy:
    return parsed(_POLICY.format(text))


def row(
    start: int,
    end: int,
    floor: int | Unknown,
    lookups: Mapping[int, int],
    now_ms: int = NOW,
    about: TopicFacts | None = None,
    **more: Any,
) -> Row:
    """A row of R1 after a day, whose look-ups are given by their age."""
    answers = {now_ms - age: LookUp(offset) for age, offset in lookups.items()} | {ANCIENT_MS: LookUp(start)}
    facts = PartitionFacts(
        about or topic(),
        *(0, start, end, end),
        Floor(floor, "group:a") if isinstance(floor, int) else floor,
        answers,
        size_bytes=10 * (end - start),
        leader_epoch=0,
        **more,
    )
    said = decide(facts, R1, now_ms)
    planned = Planned(said.trim_to or 0, said.topic_id, 0, said.min_commit, said.unconsumed)
    return Row(1, facts, R1, now_ms, ReadTimes(*[now_ms] * 6), planned, RecordedDecision.of(said))


# -- one decision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_hours", "floor", "lookups", "wanted"),
    [
        (24, 70, {DAY: 50}, ("trim", 50)),
        (48, 70, {DAY: 50}, ("hold", None)),
        (48, 70, {DAY: 10}, ("keep", None)),
        (12, 40, {DAY: 50}, ("trim", 40)),
        (12, 70, {DAY: 50}, ("hold", None)),
        (12, 70, {DAY: 100}, ("trim", 70)),
        (24, 10, {}, ("keep", None)),
        (24, UNKNOWN, {DAY: 50}, ("hold", None)),
    ],
    ids=[
        "as it was",
        "longer",
        "longer, none older",
        "shorter, floor decides",
        "shorter",
        "shorter, all old",
        "",
        "F4",
    ],
)
def test_decision_anew_is_exact_or_holds(
    after_hours: int, floor: int | Unknown, lookups: Mapping[int, int], wanted: tuple[str, int | None]
) -> None:
    found = redecide(row(10, 100, floor, lookups), replace(R1, consumed_after_ms=after_hours * HOUR), DiskRules())
    assert (found.action, found.trim_to) == wanted


@pytest.mark.parametrize(
    ("new", "lost"),
    [
        pytest.param(replace(R1, require_groups=("b",)), {"floor": UNKNOWN}, id="groups.require"),
        pytest.param(replace(R1, min_wallclock_ms=HOUR), {"samples": UNKNOWN}, id="wall clock"),
    ],
)
def test_fact_that_old_settings_shaped_is_unknown_under_others(new: Settings, lost: dict[str, Any]) -> None:
    one = row(10, 100, 70, {DAY: 50})
    found, wanted = redecide(one, new, DiskRules()), decide(one.facts._replace(**lost), new, NOW)
    assert (found.action, found.trim_to) == (wanted.action, wanted.trim_to) == ("hold", None)
    assert {reason.code for reason in found.reasons} == {"evidence"}


@given(logs(), settings, settings)
def test_decision_anew_is_that_of_a_reading_for_the_new_policy_or_holds_more(
    log: Log, old: Settings, new: Settings
) -> None:
    one = row(0, 1, 0, {})._replace(facts=log.facts(old), settings=old)
    found, truth = redecide(one, new, DiskRules()), decide(log.facts(new), new, NOW)
    if any(reason.code == "evidence" for reason in found.reasons):
        assert (found.trim_to or -1) <= (truth.trim_to or -1)
    else:
        assert (found.action, found.trim_to) == (truth.action, truth.trim_to)


# -- runs ------------------------------------------------------------------------------------------------------------


class Past:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.runs = 0

    def run(
        self, *some: Row, trimmed: Mapping[int, int] | None = None, by: Sequence[Seen] = (), **head_more: Any
    ) -> str:
        moment = re.sub("[-:]", "", timestamp(NOW + self.runs * DAY)[:19])
        self.runs += 1
        name = f"{moment}Z-{self.runs:04x}"
        head = {"run": name, "cluster": "cluster", **head_more}
        recorder = Recorder(Store(str(self.state / "cluster" / FOLDER)), head, lambda *_: None)
        recorder.facts(some, observation([*by]))
        if trimmed:
            done = [Result("orders", n, 1, 1, "trimmed", True, to, None, to, None, to) for n, to in trimmed.items()]
            recorder.results(done)
        return name

    def under(self, text: str) -> Replayed:
        return replay(recorded(self.state), policy(text))


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def at(day: int, start: int, end: int, floor: int, old: int, **more: Any) -> Row:
    return row(start, end, floor, {DAY: old}, NOW + day * DAY, **more)


def only(found: Replayed) -> Difference:
    (one,) = found.differences()
    return one


def test_the_same_policy_deletes_the_same(past: Past) -> None:
    past.run(at(0, 0, 100, 80, 50), trimmed={0: 50})
    past.run(at(1, 50, 150, 140, 90), trimmed={0: 90})
    found = past.under(R1_TEXT % 24)
    assert (list(found.differences()), found.totals["same"], found.decisions) == ([], 90, 2)
    assert [(one.retained, one.under_policy) for one in found.days] == [(500, 500), (600, 600)]


def test_what_the_policy_deletes_sooner_later_and_not_at_all_is_counted(past: Past) -> None:
    past.run(at(0, 0, 100, 80, 50))  # a plan: nothing was trimmed
    past.run(at(1, 0, 150, 140, 90), trimmed={0: 90})
    past.run(at(2, 90, 200, 180, 120), trimmed={0: 120})
    one = only(past.under(R1_TEXT % 24))
    assert (one.earlier, one.later, one.never, one.same) == (50, 0, 0, 70)
    held = past.under("  hold: legal\n")
    frozen = only(held)
    assert (frozen.earlier, frozen.later, frozen.never, frozen.held, frozen.lacking) == (0, 0, 120, 3, 0)
    assert [day.under_policy for day in held.days] == [1000, 1500, 2000]
    assert held.reasons == [Held("G7", 3, "on hold: legal", 1)]
    managed_no_longer = only(replay(recorded(past.state), parsed("version: 1\ntopics:\n- match: other\n")))
    assert (managed_no_longer.never, managed_no_longer.held) == (120, 0)


def test_record_that_was_deleted_counts_from_when_the_policy_trims_beyond_it(past: Past) -> None:
    past.run(at(0, 0, 100, 80, 50), trimmed={0: 50})
    past.run(row(50, 200, 180, {2 * DAY: 70, DAY: 90}, NOW + DAY), trimmed={0: 90})
    one = only(past.under(R1_TEXT % 48))
    assert (one.later, one.same, one.never, one.lacking) == (50, 20, 20, 1)


def test_what_brokers_deleted_is_gone_under_any_policy(past: Past) -> None:
    past.run(at(0, 0, 100, 80, 50))
    past.run(at(1, 95, 150, 90, 90))
    assert past.under("  hold: legal\n").totals["never"] == 0


def test_records_that_no_group_had_read_are_named(past: Past) -> None:
    first = past.run(row(0, 100, 30, {DAY: 50}))
    past.run(at(1, 0, 100, 30, 60))
    one = only(past.under("  retention.ms: 24h\n"))
    assert (one.unread, one.unread_by, one.unread_run) == (30, "group:a", first)


def test_topic_that_was_created_anew_is_another_log(past: Past) -> None:
    past.run(at(0, 0, 100, 80, 50), trimmed={0: 50})
    past.run(at(1, 0, 10, 8, 5, about=topic(topic_id="id-2")), trimmed={0: 5})
    found = past.under("  hold: legal\n")
    assert [one.never for one in found.differences()] == [50, 5]
    assert [(day.retained, day.under_policy) for day in found.days] == [(500, 1000), (50, 100)]


@pytest.mark.parametrize("text", ["  retention.ms: 1h\n", R1_TEXT % 2, "  hold: legal\n"])
@pytest.mark.parametrize("of", [1, 3, 50])
def test_shares_of_the_topics_come_to_the_whole(tmp_path: Path, text: str, of: int) -> None:
    several_runs(tmp_path)
    runs, every = recorded(tmp_path), parsed(f"version: 1\ntopics:\n- match: '*'\n{text}")
    whole, parts = replay(runs, every), [replay(runs, every, share=(n, of)) for n in range(of)]
    both = merged(runs, parts)
    assert replace(both, differences=whole.differences) == whole
    assert list(both.differences()) == list(whole.differences()) != []
    assert whole.reasons
    assert max(one.decisions for one in parts) < whole.decisions or of == 1


def test_time_range_chooses_runs_and_none_is_an_error(past: Past) -> None:
    names = [past.run(at(day, 0, 100, 80, 50)) for day in range(3)]
    assert [one.run for one in recorded(past.state, None, NOW // 1000 * 1000 + DAY, NOW + 2 * DAY)] == names[1:2]
    assert "no evidence found" in refusal(StateError, recorded, past.state, None, NOW + 9 * DAY)


def test_partition_is_drawn_as_a_run_saw_it(past: Past) -> None:
    first = past.run(at(0, 0, 100, 80, 50))
    past.run(at(1, 50, 150, 140, 90))
    runs = recorded(past.state)
    assert [one.decision.trim_to for one in explain_past(runs, "orders", 0, first)[1]] == [50]
    assert [one.decision.trim_to for one in explain_past(runs, "orders", None, None)[1]] == [90]
    assert rows_about(runs[0], "orders", 1) == []
    assert "no run by then has evidence of orders:7" in refusal(StateError, explain_past, runs, "orders", 7, None)


@pytest.mark.parametrize(
    ("is_plan", "wrong", "found"),
    [
        (True, False, []),
        (True, True, ["trim_to was 51; by the facts it is 50"]),
        (False, False, ["the audit log has no such run, and it is not a plan's"]),
    ],
    ids=["plan", "plan with a wrong decision", "trim that the log does not name"],
)
def test_verify_accepts_evidence_without_a_log_from_plans_alone(
    past: Past, *, is_plan: bool, wrong: bool, found: list[str]
) -> None:
    one = row(0, 100, 80, {DAY: 50})
    if wrong:
        one = one._replace(decision=one.decision._replace(trim_to=51))
    name = past.run(one, by=[Seen("a", "orders", "commit", [(0, 80, 0)])], plan=is_plan)
    (verdict,) = verify_runs(past.state, [name])
    assert [text.partition(" (")[0] for _, text in verdict.findings] == found
    assert verdict.plan == is_plan


def test_disk_ceiling_holds_what_other_rules_keep() -> None:
    disks = parsed(f"disks: {{log.retention.disk.usage.percent: 80}}\n{_POLICY.format(R1_TEXT % 24)}").disks
    some = [at(0, 0, 100, 10, 0), at(0, 0, 100, 80, 50), at(0, 100, 100, 80, 50)]
    some.append(some[1]._replace(facts=some[1].facts._replace(last_stable_offset=0)))  # it keeps all, with a note
    found = [redecide(one, R1, disks) for one in some]
    assert [(one.action, one.trim_to) for one in found] == [
        ("hold", None),
        ("trim", 50),
        ("keep", None),
        ("hold", None),
    ]
    assert [[reason.code for reason in one.reasons] for one in (found[0], found[3])] == [["evidence"]] * 2


HEAD = {"format": FORMAT}


def plain(row: Row) -> Row:
    """Return a row with its sequences as tuples: which kind of sequence a fact is, is no fact."""
    facts = (tuple(value) if isinstance(value, list) else value for value in row.facts)
    return row._replace(facts=PartitionFacts._make(facts))


@given(st.lists(rows, max_size=4))
def test_any_facts_come_back_as_they_were(some: list[Row]) -> None:
    back = part_of("001-facts.parquet", content_of(facts_table(HEAD, some, Commits.of(some, observation([])))))
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
    [row] = usual(1, topics=1)[0]
    two = [row._replace(facts=facts), row._replace(facts=facts._replace(partition=7))]
    seen = [
        Seen("a", "t", "commit", [(0, 5, 4), (1, 2, None), (7, 6, 3), (99, 1, None)]),
        Seen("\x01file:flink", "t", "gone", [(0, 3, None)]),
        Seen("b", "t", "missing", [(7, -1, None)]),
        Seen("a", "other", "commit", [(0, 1, None)]),
    ]
    commits = Commits.of(two, observation(seen, epoch_ends=ended("t", 7, 3, 8)))
    assert [*commits_of(facts_table(HEAD, two, commits))] == [
        (Commit("file:flink", "gone", 3), Commit("group:a", "commit", 5, 4)),
        (Commit("group:b", "missing"), Commit("group:a", "commit", 6, 3, 8)),
    ]


def test_partition_read_again_has_the_commits_of_the_second_reading() -> None:
    some = usual(2, topics=1)[0]
    name = some[0].facts.topic.name
    first, second = (
        observation([Seen("a", name, "commit", [(0, offset, None), (1, offset + 1, None)])]) for offset in (5, 60)
    )
    commits = Commits.of(some, replace(first, passes=[*first.passes, *second.passes], read_in={some[1].facts.tp: 1}))
    assert [one.offset for one, *_ in commits_of(facts_table(HEAD, some, commits))] == [5, 61]


def test_evidence_of_a_usual_cluster_takes_at_most_120_bytes_a_partition() -> None:
    some, seen = usual(20_000)
    tables = (facts_table(HEAD, some, Commits.of(some, seen)), results_table(HEAD, trimmed(some)))
    assert sum(len(content_of(one)) for one in tables) <= 120 * len(some)


# -- docs/evidence.sql, which shares no code with ``kretain verify``, agrees with it --


SQL = (Path(__file__).parents[3] / "docs" / "evidence.sql").read_text()


def by_sql(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("SET VARIABLE run = ?", [str(folder / "evidence" / RUN)])
        return database.execute(SQL).fetchall()


def damaged(row: Row, draw: random.Random) -> Row:
    """Return a row of which something does not follow from the rest, or might not."""
    said, facts, step = row.decision, row.facts, draw.choice([-1, 1, 1000])
    return draw.choice(
        [
            row._replace(decision=said._replace(trim_to=(said.trim_to or 5) + step)),
            row._replace(decision=said._replace(action=draw.choice(["trim", "hold", "keep", "skip"]))),
            row._replace(decision=said._replace(rule=draw.choice(["consumed", "forced-age", "min-timestamp"]))),
            row._replace(decision=said._replace(limited_by=draw.choice([None, Code.G1, Code.G2]))),
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
        of_kind = Seen(one.group, one.topic, draw.choice(kinds), one.commits)
        of_epoch = Seen(one.group, one.topic, "commit", [(n, offset, 2) for n, offset, _ in one.commits])
        return draw.choice([*[of_kind] * 8, of_epoch, None])

    return observation([one for one in map(changed, seen.passes[0].seen) if one is not None])


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
    assert (findings(tmp_path / "c"), by_sql(tmp_path / "c")) == ([], [])
    assert {one.decision.action for one in rows} == {"trim", "hold", "keep", "skip"}
    assert {one.decision.rule for one in rows} > {"consumed", "min-timestamp", "forced-age"}


def test_both_checkers_know_the_floor_of_a_group_that_starts_without_a_commit(tmp_path: Path) -> None:
    plain, _ = usual(20)
    started = (Reason(Code.F2, "it has no commit, and begins here (groups.start)"),)
    rows = [
        one._replace(facts=one.facts._replace(floor=one.facts.floor._replace(notes=started)))
        for one in plain
        if isinstance(one.facts.floor, Floor)
    ]
    assert rows
    left_behind(tmp_path / "c", rows, observation([]), trimmed(rows))
    assert (findings(tmp_path / "c"), by_sql(tmp_path / "c")) == ([], [])


@pytest.mark.parametrize("seed", range(6))
def test_both_checkers_find_the_same_rows_of_damaged_evidence(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    plain, seen = usual(60, topics=60, seed=seed)
    rows = [one for one in (drawn(one, draw) for one in plain) if one.settings.event_time_ms is None]
    rows = [damaged(one, draw) if draw.random() < 0.5 else one for one in rows]
    seen = other_commits(seen, draw)
    results = [wrong(one, draw) if draw.random() < 0.2 else one for one in trimmed(rows)]
    left_behind(tmp_path / "c", rows, seen, results)
    told = findings(tmp_path / "c")
    second = {f"{topic}-{partition}" for topic, partition, _ in by_sql(tmp_path / "c") if topic}
    first = {str(row.facts.tp) for row in rows if any(f"{row.facts.tp}:" in one for one in told)}
    assert second == first, (sorted(first ^ second), told)
