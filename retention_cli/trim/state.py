"""The state of a trim: planned rows, their outcomes, attempts, and unanswered requests. Pure.

A trim goes through state → wanted (:func:`retention_cli.trim.narrow.wanted`) → requests → results; this module has the
state and judges the results, from the leader's answer and the log start that was read back.

DeleteRecords carries no condition, and success only means that the log starts at the offset or beyond. So a result
distinguishes records that this trim removed from those that broker retention or another trimmer had already removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from retention_cli.brokers.errors import NotSentError, RequestFailedError
from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.plan.reconcile import Target
from retention_cli.trim.report import OutcomeName, TrimRow

Answer = int | RequestFailedError | None
"""The log start offset in a leader's successful answer, the error, or None if the answer was not awaited."""

_REFUSALS: Final = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_REQUEST",
        "INVALID_TOPIC",
        "OFFSET_OUT_OF_RANGE",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors that a broker returns before it changes its log.

It may return any other error later: a leader moves its own log start first, then waits for its followers, and returns
REQUEST_TIMED_OUT or NOT_LEADER_FOR_PARTITION if that takes too long or it is deposed meanwhile.
"""


def refused(answer: Answer) -> bool:
    """Return whether it is proven that a leader did not change its log: by its answer, or as it was asked nothing."""
    return isinstance(answer, NotSentError) or (
        isinstance(answer, RequestFailedError) and answer.answered and answer.code in _REFUSALS
    )


def judge(tp: TopicPartition, target: Target, answer: Answer, start: int | None) -> TrimRow:
    """Return a partition's row of the report (docs/plan.md, outcomes).

    ``trimmed`` counts records from the recheck's log start to the target: never more than were removed, but perhaps
    more than this trim removed itself, if broker retention ran in between. ``gone`` (unchanged) and ``failed`` count
    none. If no answer came, a log start exactly at the target counts as this trim's: only another trimmer with the
    same target could have moved it there, and the two can't be distinguished. If retention moves the log start
    further while the leader still waits for this request's followers, that can't be distinguished from retention
    alone, and counts as ``gone``.

    Args:
        tp: the partition.
        target: the requested offset, and the decision behind it.
        answer: the leader's answer.
        start: the log start offset that was read back, None if it could not be read.
    """
    wanted = target.offset
    reached = start is not None and start >= wanted
    if refused(answer):
        if not reached:
            return _row(tp, target, "failed", start, Reason("delete", str(answer)))
        what = str(answer) if isinstance(answer, NotSentError) else f"the broker refused ({answer})"
        text = f"{what}, and {_moved_elsewhere(start)}"
        return _row(tp, target, "unchanged", start, Reason("gone", text))
    if isinstance(answer, int):
        if start is None:
            text = "the broker confirmed the delete, but the log start offset could not be read back"
            return _row(tp, target, "unverified", start, Reason("verify", text))
        if not reached:
            text = f"the broker answered {answer:,}, but the log still starts at {start:,}"
            return _row(tp, target, "failed", start, Reason("verify", text))
        if answer > wanted and start > wanted:
            return _row(tp, target, "unchanged", start, Reason("gone", _moved_elsewhere(start)))
    if start == wanted or (reached and answer == wanted):  # moves after the answer don't matter
        return _row(tp, target, "trimmed", start)
    if reached:
        text = (
            f"{_what(answer)}, and the log starts at {start:,}, beyond the offset asked for: this trim, broker "
            f"retention or another trimmer may have moved it"
        )
        return _row(tp, target, "unverified", start, Reason("verify", text))
    if isinstance(answer, RequestFailedError) and answer.answered and start is not None:
        return _row(tp, target, "failed", start, Reason("delete", str(answer)))
    where = "could not be read back" if start is None else f"was still {start:,}"
    text = f"{_what(answer)}, and the log start offset {where}: it may still move"
    return _row(tp, target, "unverified", start, Reason("verify", text))


@dataclass(slots=True)
class Unanswered:
    """A run's requests with an unknown outcome: they may be executed even after the read-back."""

    _sent: dict[TopicPartition, list[tuple[Target, Answer]]] = field(default_factory=dict)

    def note(self, tp: TopicPartition, target: Target, answer: Answer) -> None:
        """Remember a request whose outcome is ``unverified``."""
        self._sent.setdefault(tp, []).append((target, answer))

    def forget(self, tp: TopicPartition, upto: int = 2**63 - 1) -> None:
        """Drop a partition's requests up to an offset: their result is known. A farther one may yet be executed."""
        if left := [one for one in self._sent.pop(tp, ()) if one[0].offset > upto]:
            self._sent[tp] = left

    def may_go(self, targets: Mapping[TopicPartition, Target]) -> Collection[Target]:
        """Return each partition's largest target, of these and of requests that may still be executed (G6)."""
        found = dict(targets)
        for tp, sent in self._sent.items():
            mine = [found[tp]] if tp in found else []
            found[tp] = max((*mine, *(target for target, _answer in sent)), key=lambda one: one.offset)
        return found.values()

    def reached(self, tp: TopicPartition, start: int | None) -> bool:
        """Return whether a partition's log starts where one of its requests asked for, or beyond."""
        return start is not None and any(target.offset <= start for target, _answer in self._sent.get(tp, ()))

    def settle(self, tp: TopicPartition, start: int | None) -> TrimRow | None:
        """Return the result of a partition's requests, given its current log start; None if there is none to report.

        Of several requests, the one that goes farthest counts: while the log starts before it, it may be carried out
        yet. A request that was not executed has no result to report.
        """
        left = [one for one in self._sent.get(tp, ()) if judge(tp, *one, start).outcome != "failed"]
        row = judge(tp, *max(left, key=lambda one: one[0].offset), start) if left else None
        if row is None or row.outcome != "unverified":
            self.forget(tp)
        return row


def _moved_elsewhere(start: int | None) -> str:
    return f"the log starts at {start:,}: broker retention or another trimmer moved it there, not this trim"


def _what(answer: Answer) -> str:
    match answer:
        case None:
            return "kretain did not wait for an answer"
        case int():
            return f"the broker answered {answer:,}"
        case RequestFailedError(answered=True):
            return f"the broker answered {answer}, which it may do after it has moved the log start"
        case _:
            return f"no answer came ({answer})"


def _row(tp: TopicPartition, target: Target, outcome: OutcomeName, start: int | None, *reasons: Reason) -> TrimRow:
    if outcome in ("trimmed", "unverified"):
        return TrimRow(tp, outcome, target.offset, start, reasons, target.records, target.size_bytes, target.unconsumed)
    return TrimRow(tp, outcome, target.offset, start, reasons)


@dataclass(slots=True)
class State:
    """The progress of a trim.

    ``planned`` are the rows to trim, ``rows`` the results so far, ``tries`` the number of failed attempts of each.
    ``unanswered`` are requests that may still be executed, ``done`` is the amount known to be trimmed (G6).
    ``unplanned`` is how many of the rows are of partitions that a trim leaves alone. ``requested`` is the
    plan's total.
    """

    planned: Mapping[TopicPartition, Decision]
    rows: dict[TopicPartition, TrimRow]
    tries: dict[TopicPartition, int] = field(default_factory=dict)
    unanswered: Unanswered = field(default_factory=Unanswered)
    done: Amount = field(default_factory=Amount)
    unplanned: int = 0
    requested: Amount = field(default_factory=Amount)
    _last: dict[TopicPartition, int] = field(default_factory=dict)
    _doubtful: dict[int, list[TrimRow]] = field(default_factory=dict)

    @classmethod
    def of(cls, decisions: Sequence[Decision], max_partitions: int | None = None) -> Self:
        """Return the state before anything is sent: rows not to trim, or left for a later run, are settled."""
        planned: dict[TopicPartition, Decision] = {}
        rows: dict[TopicPartition, TrimRow] = {}
        for one in decisions:
            if one.action == "trim":
                if max_partitions is None or len(planned) < max_partitions:
                    planned[one.tp] = one
                else:
                    later = (Reason("max-partitions", "left for a later run"),)
                    rows[one.tp] = TrimRow(one.tp, "unchanged", reasons=later)
            else:
                outcome: OutcomeName = "held" if one.action == "hold" else "unchanged"
                rows[one.tp] = TrimRow(one.tp, outcome, log_start=one.log_start, reasons=one.reasons)
        return cls(
            planned,
            rows,
            unplanned=len(rows),
            requested=total(Amount(one.records, one.size_bytes, one.unconsumed) for one in planned.values()),
        )

    def waiting(self) -> list[TopicPartition]:
        """Return the partitions that are not yet settled."""
        return [tp for tp in self.planned if tp not in self.rows]

    def settled(self) -> int:
        """Return how many planned rows are settled. It is asked after each batch, so no row is looked at."""
        return len(self.rows) - self.unplanned

    def end(self, tp: TopicPartition, row: TrimRow, fresh: Decision | None = None) -> None:
        """Settle a partition with this row, unless an earlier unanswered request has a result.

        ``fresh`` is a recheck's decision since then. A request may still be executed after that.
        """
        same = fresh is None or fresh.topic_id == self.planned[tp].topic_id
        late = self.unanswered.settle(tp, fresh.log_start if fresh is not None and same else None)
        self.rows[tp] = self._counted(late) or row

    def try_again(self, tp: TopicPartition, failed: TrimRow, attempts: int) -> None:
        """Leave the partition for another round or, after ``attempts`` attempts, settle it."""
        self.tries[tp] = self.tries.get(tp, 0) + 1
        if self.tries[tp] < attempts:
            self.rows.pop(tp, None)
        elif failed.outcome == "unverified":
            self.rows[tp] = failed
        else:
            self.end(tp, failed)

    def recorded(self, number: int, rows: Iterable[TrimRow]) -> None:
        """Note the results of a batch as they stand in the audit log."""
        rows = list(rows)
        self._last.update((row.tp, number) for row in rows)
        if any(row.outcome == "unverified" for row in rows):
            self._doubtful[number] = rows

    def corrected(self) -> dict[int, list[TrimRow]]:
        """Return the results of batches, by number, where more is known now than the audit log has.

        A trim without an answer may be found done by a later recheck. It is the last request of its partition that
        has the result: the audit log counts earlier ones as settled by it.
        """
        now = {number: [self._now(number, row) for row in rows] for number, rows in self._doubtful.items()}
        return {number: rows for number, rows in now.items() if rows != self._doubtful[number]}

    def _now(self, number: int, row: TrimRow) -> TrimRow:
        known = self.rows.get(row.tp)
        done = known is not None and known.outcome == "trimmed" and self._last[row.tp] == number
        return known if known is not None and done and row.outcome == "unverified" else row

    def judged(self, tp: TopicPartition, target: Target, answer: Answer, start: int | None) -> TrimRow:
        """Return the result of a request, or of an earlier unanswered one, whose trim counts as this run's, too."""
        row = judge(tp, target, answer, start)
        if row.outcome == "trimmed":
            self.unanswered.forget(tp, target.offset)
        elif row.outcome == "unverified":
            self.unanswered.note(tp, target, answer)
            settled = self.unanswered.settle(tp, start) or row
            row = row if settled.outcome == "unverified" else settled
        else:
            row = self.unanswered.settle(tp, start) or row
        self._counted(row)
        return row

    def _counted(self, row: TrimRow | None) -> TrimRow | None:
        if row is not None and row.outcome == "trimmed":
            self.done += Amount(row.records, row.size_bytes, self.planned[row.tp].unconsumed)
        return row
