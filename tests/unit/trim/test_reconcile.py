"""A planned row meets a fresh decision, limits, and the broker's answer (docs/plan.md, Saved plans, outcomes)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from kretain.errors import UsageError
from kretain.options.rules import topic_arguments
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire.connections import error_named
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.reconcile import Held, Target, Unchanged, reconcile
from retention_cli.plan.value import Totals
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import Limits
from retention_cli.trim.batches import Trimmer
from retention_cli.trim.narrow import exceeded, limited_to, of_partitions
from retention_cli.trim.report import OutcomeName, TrimRow
from retention_cli.trim.state import Answer, State, Unanswered, judge
from tests.support.facts import known
from tests.support.plans import EVERY, HOLD, KEEP, plan, plan as made, row
from tests.support.says import refusal


@pytest.mark.parametrize(
    ("planned", "fresh", "outcome"),
    [
        (row(), row(), 50),
        (row(), row(trim_to=40), 40),  # the facts narrow
        (row(), row(trim_to=70), 50),  # the plan narrows
        (row(trim_to=20), row(trim_to=50), 20),  # an edit by hand narrows
        (row(trim_to=99), row(trim_to=50), 50),  # … and never widens
        (row(), None, Held),
        (row(), row(topic_id="id-2"), Held),
        (row(), row(topic_id=None), Held),
        (row(), row(min_commit=59), Held),  # a group went back
        (row(), row(min_commit=61, trim_to=50), 50),
        (row(), row(min_commit=None, min_commit_by=None), Held),  # known then, unknown now
        (row(min_commit=None, unconsumed=50), row(min_commit=None, unconsumed=50), 50),  # unknown then too: R4
        (row(min_commit=None, unconsumed=50), row(min_commit=10), 50),
        (row(), HOLD, Held),
        (row(), row(action="skip", trim_to=None, reasons=(Reason("G5", "compact"),)), Held),
        (row(), KEEP, Unchanged),
        (row(), row(log_start=50, trim_to=60), Unchanged),  # another trim was quicker
        (row(), row(log_start=60, trim_to=70), Unchanged),
        (row(min_commit=30, unconsumed=20), row(min_commit=30, unconsumed=20), 50),  # as shown
        (row(min_commit=30, unconsumed=10), row(min_commit=30, unconsumed=20), Held),  # more unread than shown
        (row(min_commit=30, unconsumed=20), row(min_commit=40), 50),
        (row(unconsumed=0, min_commit=None), row(min_commit=None), Held),  # an edit hid what nobody has read
    ],
)
def test_reconcile_only_narrows(planned: Decision, fresh: Decision | None, outcome: object) -> None:
    result = reconcile(planned, fresh)
    assert (result.offset if isinstance(result, Target) else type(result)) == outcome
    assert not isinstance(result, Held) or result.reasons


@pytest.mark.parametrize(
    ("planned", "now", "epoch_end", "said"),
    [
        (3, 3, None, None),
        (3, 4, 100, None),
        (3, 4, 50, None),  # the epoch ended where the trim does
        (3, 4, 49, "cut back to 49"),
        (3, 4, None, "which this log does not have"),
        (4, 3, 100, "which this log does not have"),
        (3, 4, Unknown.because("M4", "no answer"), "is unknown: no answer"),
        (None, 4, 100, "the plan has no leader epoch"),
        (3, None, 100, "the plan has no leader epoch"),
    ],
)
def test_plan_of_another_log_holds(
    planned: int | None, now: int | None, epoch_end: Maybe[int | None], said: str | None
) -> None:
    """M1, M2, M4: offsets are names, and a log that loses its tail gives them to other records."""
    result = reconcile(row(leader_epoch=planned), row(leader_epoch=now), epoch_end)
    assert type(result) is (Target if said is None else Held)
    assert not isinstance(result, Held) or (said or "") in result.reasons[0].text


offsets = st.integers(0, 100)


@given(
    planned_to=offsets,
    planned_commit=st.none() | offsets,
    planned_unread=offsets,
    fresh_to=offsets,
    fresh_commit=st.none() | offsets,
    start=offsets,
    same=st.booleans(),
)
def test_edited_plan_never_enlarges_a_trim(
    planned_to: int,
    planned_commit: int | None,
    planned_unread: int,
    fresh_to: int,
    fresh_commit: int | None,
    start: int,
    *,
    same: bool,
) -> None:
    planned = row(trim_to=planned_to, min_commit=planned_commit, unconsumed=planned_unread)
    fresh = row(trim_to=fresh_to, min_commit=fresh_commit, log_start=start, topic_id="id-1" if same else "id-2")
    result = reconcile(planned, fresh)
    if isinstance(result, Target):
        assert same
        assert start < result.offset <= min(planned_to, fresh_to)
        assert planned_commit is None or (fresh_commit is not None and fresh_commit >= planned_commit)
        unread = result.offset - (start if fresh_commit is None else min(max(start, fresh_commit), result.offset))
        assert unread <= planned_unread


def test_target_has_its_records_and_their_share_of_bytes() -> None:
    target = reconcile(row(trim_to=20), row())
    assert isinstance(target, Target)
    assert (target.records, target.size_bytes) == (20, 200)
    assert replace(target, decision=row(size_bytes=None)).size_bytes is None


GOING = [one for one in EVERY.decisions if one.action == "trim"]


def test_max_partitions_selects_the_first_trims() -> None:
    assert limited_to(EVERY, None) is EVERY
    first = limited_to(EVERY, 1)
    assert (first.decisions, first.totals.records, limited_to(EVERY, 1_000).totals.trim) == (
        tuple(GOING[:1]),
        GOING[0].records,
        len(GOING),
    )


@pytest.mark.parametrize(
    ("limits", "past", "codes"),
    [
        (Limits(), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(), []),
        (Limits(max_records=GOING[0].records), Amount(1, 1), ["G6"]),
        (Limits(max_records=GOING[0].records - 1), Amount(), ["G6"]),
        (Limits(max_percent=100), Amount(), []),
        (Limits(max_percent=0.001), Amount(), ["G6"]),
    ],
)
def test_limits_apply_to_the_selected_partitions(limits: Limits, past: Amount, codes: list[str]) -> None:
    assert [one.code for one in exceeded(EVERY, limited_to(EVERY, 1), past, limits)] == codes


def wanting(*given: str, limits: Limits = Limits()) -> Selection:  # noqa: B008  (a frozen value)
    named = topic_arguments(list(given))
    return Selection(Policy("p.yaml", "sha256:x", limits=limits), tuple(named.topics or ()), named.partitions)


ROWS = st.builds(
    lambda topic, partition, action, records: row(
        topic=topic,
        partition=partition,
        action=action,
        trim_to=records if action == "trim" else None,
        records=records if action == "trim" else 0,
        size_bytes=0,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 4),
    st.sampled_from(["trim", "keep", "hold", "skip"]),
    st.integers(1, 9),
)


@given(
    st.lists(ROWS, unique_by=lambda one: one.tp, min_size=1),
    st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), min_size=1),
    st.sets(st.sampled_from(["b", "c", "[ac]"])),
)
def test_filtered_plan_never_trims_more(
    rows: list[Decision], partitions: set[tuple[str, int]], whole: set[str]
) -> None:
    plan = made(*sorted(rows, key=lambda one: one.tp))
    selection = wanting(*sorted(whole), *(f"{topic}:{number}" for topic, number in sorted(partitions)))

    if not selection.partitions:
        assert of_partitions(plan, selection, Amount) is plan
        return

    asked = [
        one
        for one in plan.decisions
        if one.topic in whole or ("[ac]" in whole and one.topic in "ac") or tuple(one.tp) in partitions
    ]
    try:
        narrow = of_partitions(plan, selection, Amount)
    except NothingMatchesError:
        assert {one for one in partitions if one[0] not in whole} - {tuple(one.tp) for one in rows}
        return
    assert (list(narrow.decisions), narrow.totals) == (asked, Totals.of(narrow.decisions))
    assert [one for one in plan.decisions if selection.asks_for(one.tp)] == asked
    assert selection.settings_for("a") == wanting(*(selection.topics)).settings_for("a"), "topics are decided whole"


@pytest.mark.parametrize(
    ("given_", "topics", "told"),
    [
        (("a:0",), ("a:0",), {"group:g": 9, "group:h": 4}),  # made for these: whoever made it counted all groups
        (("a:0",), (), {"group:g": 7}),  # narrowed later: of a row only its slowest group is known
        (("a",), (), {"group:g": 9, "group:h": 4}),
    ],
)
def test_unread_counts_include_only_the_filtered_partitions(
    given_: tuple[str, ...], topics: tuple[str, ...], told: dict[str, int]
) -> None:
    rows = [row(topic="a", partition=n, unconsumed=7, min_commit_by="group:g") for n in (0, 1)]
    plan = replace(made(*rows), topics=topics, unconsumed_by={"group:g": 9, "group:h": 4})
    assert of_partitions(plan, wanting(*given_), Amount).unconsumed_by == told


def test_missing_partition_of_the_filter_is_named() -> None:
    assert of_partitions(EVERY, wanting("*"), Amount) is EVERY
    topic = EVERY.decisions[0].topic
    with pytest.raises(NothingMatchesError, match=f"{topic} has no partition 9 here: it has 0 to 4"):
        of_partitions(EVERY, wanting(f"{topic}:9"), Amount)
    assert "the plan has none of its partitions" in refusal(
        NothingMatchesError, of_partitions, EVERY, wanting("other:0"), Amount
    )


def test_limits_apply_to_named_partitions() -> None:
    topic, most = EVERY.decisions[0].topic, Limits(max_records=GOING[0].records)
    assert exceeded(EVERY, EVERY, Amount(), most)
    first = wanting(f"{topic}:0", limits=most)
    assert not of_partitions(EVERY, first, Amount).refusals
    assert of_partitions(EVERY, first, lambda: Amount(1, 1)).refusals


@pytest.mark.parametrize(
    ("given_", "topics", "again"),
    [
        (["a:1", "b", "a:0"], ("a", "b"), ("a:0", "a:1", "b")),
        (["a:1", "a"], ("a",), ("a",)),
        (["re:^a:1$", "*"], ("re:^a:1$", "*"), ("re:^a:1$", "*")),
    ],
)
def test_partition_arguments_are_kept_as_given(
    given_: list[str], topics: tuple[str, ...], again: tuple[str, ...]
) -> None:
    selection = wanting(*given_)
    assert (selection.topics, selection.given, wanting(*again)) == (topics, again, selection)


@pytest.mark.parametrize("text", ["a:", "a:x", "a:-1", "a:1:2", "a:²", "*:1", ":1", "a:" + "1" * 5000])
def test_invalid_partition_argument_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a partition number|full name of its topic"):
        topic_arguments([text])


def test_partition_filter_needs_one_cluster() -> None:
    topic_arguments(["a"]).check_one_cluster()
    assert "for one cluster" in refusal(UsageError, topic_arguments(["a:1"]).check_one_cluster)


TP = TopicPartition("orders", 0)
LOST = RequestFailedError("timed out", retriable=True)
DENIED = error_named(29, needs="DELETE")
LATE = RequestFailedError("REQUEST_TIMED_OUT", retriable=True, answered=True)


def target_at(offset: int, log_start: int = 2) -> Target:
    return Target(offset, row(log_start=log_start, trim_to=offset, records=offset - log_start, size_bytes=100))


@pytest.mark.parametrize(
    ("said", "start", "outcome", "code", "words"),
    [
        # The broker answered success.
        (8, 8, "trimmed", None, ""),
        (8, 9, "trimmed", None, ""),  # retention went on behind ours
        (9, 9, "unchanged", "gone", "starts at 9: broker retention or another trimmer"),
        (9, 12, "unchanged", "gone", "starts at 12"),
        (8, None, "unverified", "verify", "could not be read back"),
        (9, None, "unverified", "verify", "could not be read back"),
        (8, 3, "failed", "verify", "answered 8, but the log still starts at 3"),
        # It refused before it touched its log.
        (DENIED, 8, "unchanged", "gone", "refused (this user needs DELETE on the topic (TOPIC_AUTHORIZATION_FAILED))"),
        (DENIED, 9, "unchanged", "gone", "not this trim"),
        (DENIED, 3, "failed", "delete", "TOPIC_AUTHORIZATION_FAILED"),
        (DENIED, None, "failed", "delete", "TOPIC_AUTHORIZATION_FAILED"),
        # It answered an error that may come after its own log has moved.
        (LATE, 8, "trimmed", None, ""),
        (LATE, 9, "unverified", "verify", "may have moved it"),
        (LATE, 3, "failed", "delete", "REQUEST_TIMED_OUT"),
        (LATE, None, "unverified", "verify", "REQUEST_TIMED_OUT"),
        # No answer came, or none was waited for.
        (LOST, 8, "trimmed", None, ""),
        (LOST, 9, "unverified", "verify", "beyond the offset asked for"),
        (LOST, 3, "unverified", "verify", "was still 3: it may still move"),
        (LOST, None, "unverified", "verify", "timed out"),
        (None, 8, "trimmed", None, ""),
        (None, 9, "unverified", "verify", "kretain did not wait for an answer"),
        (None, None, "unverified", "verify", "kretain did not wait for an answer"),
    ],
)
def test_verdict_names_who_moved_the_log_start(
    said: Answer, start: int | None, outcome: str, code: str | None, words: str
) -> None:
    found = judge(TP, target_at(8), said, start)
    codes = [reason.code for reason in found.reasons]
    assert (found.outcome, found.target, found.log_start, codes) == (outcome, 8, start, [code] if code else [])
    assert all(words in reason.text for reason in found.reasons)
    counted = (6, 100) if outcome in ("trimmed", "unverified") else (0, 0)
    assert (found.records, found.size_bytes) == counted, "what is gone, or may be, from the recheck's log start on"


@given(
    said=st.one_of(st.none(), st.sampled_from([LOST, DENIED, LATE]), st.integers(0, 20)),
    start=st.one_of(st.none(), st.integers(0, 20)),
    target=st.integers(3, 20),
)
def test_only_a_read_back_log_start_counts_as_trimmed(said: Answer, start: int | None, target: int) -> None:
    """Never trimmed below the target, nor on a refusal; never failed where the log start may be ours."""
    found = judge(TP, target_at(target), said, start)
    if found.outcome == "trimmed":
        assert known(start) >= target
        assert said is not DENIED
        assert target in (start, said)
    assert found.outcome != "failed" or start is None or start < target
    assert found.records <= target - 2


def test_unanswered_request_matching_the_log_start_counts() -> None:
    """The group went back between the two: the second asked for less."""
    sent = Unanswered()
    for offset in (8, 5):
        sent.note(TP, target_at(offset), LOST)
    assert {target.offset for target in sent.may_go({})} == {8}, "the farther one may yet be carried out"
    assert {target.offset for target in sent.may_go({TP: target_at(9)})} == {9}
    assert known(sent.settle(TP, 3)).outcome == "unverified"
    found = known(sent.settle(TP, 8))
    assert (found.outcome, found.target, found.records) == ("trimmed", 8, 6)
    assert sent.settle(TP, 8) is None, "told once"


def test_request_that_was_not_executed_is_not_reported() -> None:
    sent = Unanswered()
    sent.note(TP, target_at(8), LATE)
    assert (sent.settle(TP, 3), list(sent.may_go({}))) == (None, [])


def told(partition: int, outcome: str, start: int | None = None) -> TrimRow:
    return TrimRow(TopicPartition("orders", partition), cast(OutcomeName, outcome), 8, start)


@pytest.mark.parametrize(
    ("batches", "final", "corrected"),
    [
        # It was found done by a later recheck.
        ([["unverified"]], ["trimmed"], {1: ["trimmed"]}),
        ([["unverified", "trimmed"]], ["trimmed", "trimmed"], {1: ["trimmed", "trimmed"]}),
        # The last request has the result: an earlier one is settled by it.
        ([["unverified"], ["unverified"]], ["trimmed"], {2: ["trimmed"]}),
        ([["unverified"], ["trimmed"]], ["trimmed"], {}),
        ([["unverified"], ["failed"]], ["trimmed"], {}),
        # Nothing more is known, or nothing that counts.
        ([["unverified"]], ["unverified"], {}),
        ([["unverified"]], ["held"], {}),
        ([["unverified"]], ["failed"], {}),
        ([["failed"]], ["failed"], {}),
    ],
)
def test_correction_reports_only_later_confirmed_deletes(
    batches: list[list[str]], final: list[str], corrected: dict[int, list[str]]
) -> None:
    state = State({}, {})
    for number, outcomes in enumerate(batches, 1):
        state.recorded(number, [told(n, one) for n, one in enumerate(outcomes)])
    for n, outcome in enumerate(final):
        state.rows[TopicPartition("orders", n)] = told(n, outcome, 8 if outcome == "trimmed" else None)
    assert {number: [row.outcome for row in rows] for number, rows in state.corrected().items()} == corrected


# -- a trim whose evidence can't be completed still reports what it deleted --


@pytest.mark.parametrize(
    ("problem", "interrupted", "said", "stopped_by"),
    [
        (StateError("the evidence can't be written"), False, "the evidence can't be written", False),
        (KeyboardInterrupt(), True, "interrupted before the results were written as evidence", False),
        (ValueError("odd"), False, "odd", True),
    ],
)
def test_trim_whose_results_cannot_be_written_as_evidence_is_reported(
    problem: BaseException, interrupted: bool, said: str | None, stopped_by: bool
) -> None:
    """The deletes are done by then: an exception in place of the report would hide them."""

    def unwritable(_results: Any) -> None:
        raise problem

    recorder: Any = SimpleNamespace(rechecks=1, results=unwritable)
    report = Trimmer(plan(KEEP), None, "run", recorder=recorder).trim()  # type: ignore[arg-type]
    assert [row.outcome for row in report.rows] == ["unchanged"]
    stopped = report.stopped_by is problem
    assert (report.interrupted, report.audit_problem, stopped) == (interrupted, said, stopped_by)
