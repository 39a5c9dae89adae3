"""A planned row meets a fresh decision, limits, its archive, and the broker's answer (docs/plan.md, Saved plans, outcomes)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from kretain.errors import UsageError
from kretain.options.plans import topic_arguments
from retention_cli.archive.catalog import stitched
from retention_cli.archive.layout import ArchiveError, Manifest, Source
from retention_cli.archive.positions import Positions
from retention_cli.archive.writer import Archived, Archiver
from retention_cli.audit.log import AuditLog
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire.connections import error_named
from retention_cli.core.model import Decision, Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.progress import silent
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.observe.lineage import other_log
from retention_cli.plan.reconcile import Held, Target, Unchanged, reconcile
from retention_cli.plan.value import Totals
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import Limits
from retention_cli.trim.archive_gate import ArchivedFirst, rehearsed
from retention_cli.trim.batches import Trimmer
from retention_cli.trim.journal import AuditJournal
from retention_cli.trim.narrow import exceeded, limited_to, of_partitions
from retention_cli.trim.recheck import Recheck
from retention_cli.trim.report import OutcomeName, TrimRow
from retention_cli.trim.state import Answer, State, Unanswered, judge
from tests.support.archives import SOURCE, sample, written
from tests.support.audit_logs import BEGUN
from tests.support.evidence import observation
from tests.support.facts import known
from tests.support.plans import EVERY, HOLD, KEEP, plan, plan as made, row
from tests.support.says import pick, refusal, says


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
    for named, said in (
        (f"{topic}:9", "has no partition 9 here: it has 0 to 4"),
        ("other:0", "none of its partitions"),
    ):
        assert said in refusal(NothingMatchesError, of_partitions, EVERY, wanting(named), Amount)


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
    said = refusal(UsageError, topic_arguments, [text])
    assert "is not a partition number" in said or "full name of its topic" in said


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


@pytest.mark.parametrize("offsets", [(5, 8), (8, 5)])
def test_unanswered_request_counts_until_the_log_starts_there_or_beyond(offsets: tuple[int, ...]) -> None:
    """G6: one that asked for less was carried out. The farther one may yet be, and others must leave room for it."""
    sent = Unanswered()
    for offset in offsets:
        sent.note(TP, target_at(offset), LOST)
    assert pick(known(sent.settle(TP, 5)), "outcome", "target", "log_start") == ("unverified", 8, 5)
    assert {target.offset for target in sent.may_go({})} == {8}
    assert pick(known(sent.settle(TP, 8)), "outcome", "target", "records") == ("trimmed", 8, 6)


def test_farther_request_without_an_answer_counts_beside_one_that_was_carried_out() -> None:
    """G6: the second asked for less, and its leader answered."""
    state = State({TP: row(trim_to=8)}, {})
    assert pick(state.judged(TP, target_at(8), LOST, 2), "outcome", "target") == ("unverified", 8)
    assert pick(state.judged(TP, target_at(5), 5, 5), "outcome", "target") == ("trimmed", 5)
    assert {target.offset for target in state.unanswered.may_go({})} == {8}


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


# -- what must be archived goes no further than it is: the gate between a recheck and its deletes, and what it is told --


OTHER = TopicPartition("free", 0)
URL = "s3://bucket/kafka"
OLD, NEW = os.urandom(32), os.urandom(32)


def target(offset: int = 100, **more) -> Target:
    return Target(offset, row(**{"topic_id": "A", "log_start": 10, "trim_to": offset, **more}))


def fresh(archives: dict[str, str] | None = None) -> Recheck:
    return Recheck(0.0, observation([]), {}, {}, {"orders": URL} if archives is None else archives)


class Copier(Archiver):
    """Copies by word alone; where consumers of a topic stood, it can't keep."""

    def __init__(self, copied: Archived | Reason | None, differing: Reason | None = None, unkept: str = "") -> None:
        self.copied, self.reason, self.unkept = copied, differing, unkept
        self.asked: list[list[TopicPartition]] = []

    def copy(self, wanted, progress):  # noqa: ARG002
        self.asked.append(list(wanted))
        return {} if self.copied is None else dict.fromkeys(wanted, self.copied)

    def differing(self, copied, leaders):  # noqa: ARG002
        return {} if self.reason is None else dict.fromkeys(copied, self.reason)

    def keep(self, url, positions):
        if positions.topic == self.unkept:
            raise ArchiveError(f"{url} can't be written: no space")


def copied(url: str = URL, topic_id: str = "A", start: int = 10, end: int = 100) -> Archived:
    source = Source("c", TP.topic, topic_id, TP.partition)
    return Archived(source, url, start, end, (Manifest(source, start, end, 1, "now", 0, 90),))


def after(gate: ArchivedFirst, first: Target, second: Target | None = None, url: str = URL):
    """Sort, copy what is not, and sort once more, as a trim's two rounds do."""
    gate.copy(gate.sort({TP: first}, fresh()).uncopied, silent)
    return gate.sort({TP: second or first}, fresh({"orders": url}))


def test_missing_archiver_holds_topics_with_an_archive_alone() -> None:
    gate = ArchivedFirst(None)
    sorted_ = gate.sort({TP: target(), OTHER: target()}, fresh())
    assert (sorted_.ready, sorted_.uncopied, list(sorted_.held)) == ({OTHER: target()}, {}, [TP])
    assert sorted_.held[TP].reasons[0].code == "archive"
    gate.copy({TP: (URL, target())}, silent)
    assert list(gate.sort({TP: target()}, fresh()).held) == [TP]


def test_partition_is_copied_once_before_its_trim() -> None:
    copier = Copier(copied())
    gate = ArchivedFirst(copier)
    first = gate.sort({TP: target()}, fresh())
    assert (first.ready, first.held, first.uncopied) == ({}, {}, {TP: (URL, target())})
    assert after(gate, target()).ready == {TP: target()}
    assert copier.asked == [[TP]]


class Sealer(Archiver):
    """Copies 30 records, encrypted with the policy's key of that moment."""

    def copy(self, wanted, progress):  # noqa: ARG002
        url = next(iter(wanted.values()))[0]
        done = Archived(SOURCE, url, 0, 30, (written(self.store(url), sample()),))
        self.note(TP, done, log_start=30)  # of no log: only the key is looked at
        return {TP: done}


@pytest.mark.parametrize(
    ("now", "given_", "said"),
    [
        pytest.param(OLD, ["archive.key"], None, id="the same"),
        pytest.param(OLD, ["newer.key", "archive.key"], None, id="rotated"),
        pytest.param(NEW, ["archive.key"], "no file of archive.key has it", id="replaced"),
        pytest.param(OLD, ["newer.key"], "no file of archive.key has it", id="dropped"),
        pytest.param(None, ["archive.key"], "can't be read", id="lost"),
        pytest.param(OLD, [], "no file of archive.key has it", id="none"),
    ],
)
def test_copy_that_no_key_file_decrypts_any_longer_releases_nothing(
    tmp_path: Path, now: bytes | None, given_: list[str], said: str | None
) -> None:
    """The key may be replaced or lost between the copy and the delete: then the log has the only records to read."""
    key, url = tmp_path / "archive.key", str(tmp_path / "archive")
    key.write_bytes(OLD)
    reader: Any = SimpleNamespace(epoch_ends=lambda _wanted, _leaders: {})
    gate = ArchivedFirst(Sealer(reader, SOURCE.cluster_id))
    wanted = {TP: target(30, log_start=0, topic_id=SOURCE.topic_id)}
    seen = replace(fresh({"orders": url}), archive_keys=(str(key),))
    gate.copy(gate.sort(wanted, seen).uncopied, silent)
    (tmp_path / "newer.key").write_bytes(NEW)
    key.unlink()
    if now is not None:
        key.write_bytes(now)
    sorted_ = gate.sort(wanted, replace(seen, archive_keys=tuple(str(tmp_path / name) for name in given_)))
    assert sorted_.ready == (wanted if said is None else {})
    assert said is None or said in sorted_.held[TP].reasons[0].text


FULL, CUT = Reason("archive", "the disk is full"), Reason("archive", "the log was cut back")


@pytest.mark.parametrize(
    ("copier", "second", "url", "said"),
    [
        pytest.param(Copier(None), target(), URL, "", id="left out by the archiver"),
        pytest.param(Copier(FULL), target(), URL, FULL.text, id="it could not be copied"),
        pytest.param(Copier(copied(), CUT), target(), URL, CUT.text, id="the log differs from its copy"),
        (Copier(copied()), target(log_start=9), URL, "from 10 on, and its log starts at 9"),
        (Copier(copied()), target(log_start=None), URL, "an unknown offset"),
        (Copier(copied()), target(topic_id="B"), URL, "recreated"),
        (Copier(copied()), target(), "s3://elsewhere", "the policy now names s3://elsewhere"),
        (Copier(copied(url="s3://elsewhere")), target(), URL, "was archived to s3://elsewhere"),
        (Copier(copied(end=10)), target(), URL, "only up to 10,"),
    ],
)
def test_log_without_a_copy_of_its_own_records_releases_nothing(
    copier: Copier, second: Target, url: str, said: str
) -> None:
    sorted_ = after(ArchivedFirst(copier), target(), second, url)
    assert (sorted_.ready, list(sorted_.held)) == ({}, [TP])
    assert said in sorted_.held[TP].reasons[0].text


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_trim_never_passes_the_end_of_the_copy(start: int, copied_from: int, end: int, wanted: int) -> None:
    sorted_ = after(ArchivedFirst(Copier(copied(start=copied_from, end=end))), target(start + wanted, log_start=start))
    for one in sorted_.ready.values():
        assert copied_from <= start < one.offset <= min(end, start + wanted)
    assert sorted_.ready or sorted_.held


def test_dry_run_names_what_would_be_archived() -> None:
    assert rehearsed(TP, target(), fresh())[0].text == (
        f"a trim would first archive offsets 10 to 100 to {URL}; a dry run archives nothing"
    )
    assert rehearsed(TP, target(), fresh({})) == ()


def test_audit_log_records_archived_ranges(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append({**BEGUN, "run": "r"})
    AuditJournal(log, "r", lambda: 0).archived({TP: copied(), OTHER: Reason("archive", "the disk is full")})
    line = json.loads(log.path.read_text().splitlines()[1])
    assert (line["event"], line["partitions"]) == (
        "archive",
        [
            {"topic": "orders", "partition": 0, "topic_id": "A", "url": URL, "from": 10, "to": 100, "records": 90}
            | {"manifests": [copied().segments[0].path], "notes": []},
            {"topic": "free", "partition": 0, "reason": "the disk is full"},
        ],
    )
    assert list(log.runs()) == ["r"]


def test_unwritable_audit_log_ends_the_trim() -> None:
    def full(_) -> None:
        raise StateError("the disk is full")

    refusal(StateError, after, ArchivedFirst(Copier(copied()), full), target())


# -- is it still the same log? -----------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Found(100), None),
        (Found(50), None),
        (Found(49), "cut back"),
        (NotFound(), "does not know leader epoch 3"),
        (RequestFailedError("no answer", retriable=True), "run again"),
    ],
)
def test_archived_copy_counts_only_while_its_last_record_is_in_the_log(answer, said: str | None) -> None:
    """Offset 49 in leader epoch 3: the epoch must end behind it (KIP-101)."""

    def epoch_ends(wanted, _leaders):
        assert wanted == [(TP, 3)]
        return {(TP, 3): answer}

    reader: Any = SimpleNamespace(epoch_ends=epoch_ends)
    found = other_log(reader, {TP: [(49, 3)]}, {TP: PartitionMetadata(1, 5)})
    assert not found if said is None else said in found[TP]


# -- segments end to end -----------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=8))
def test_joined_segments_contain_each_offset_once(given_spans: list[tuple[int, int]]) -> None:
    source = Source("c", "t", "i", 0)
    segments = [Manifest(source, start, start + length, 1, "now", 0) for start, length in given_spans]
    pieces, gaps = stitched(segments)
    taken = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert taken == sorted({offset for one in segments for offset in range(one.start, one.end)})
    for piece in pieces:
        assert piece.manifest.start <= piece.start < piece.end == piece.manifest.end
    missing = [offset for start, end in gaps for offset in range(start, end)]
    assert not segments or sorted([*taken, *missing]) == list(range(min(taken), max(taken) + 1))


def test_topic_whose_positions_cannot_be_kept_is_held_and_not_copied() -> None:
    """Where consumers stood is kept before anything is copied; another topic of the run goes on."""
    archiver, other = Copier(None, unkept="orders"), TopicPartition("kept", 0)
    gate = ArchivedFirst(
        archiver, positions=lambda topics: {name: Positions("C", name, "A", 0, (0,), (0,)) for name in topics}
    )
    gate.copy({TP: (URL, target()), other: (URL, target(topic="kept"))}, silent)
    assert archiver.asked == [[other]]
    says(gate.sort({TP: target()}, fresh()).held[TP].reasons[0].text, "orders-0 could not be archived", "no space")
