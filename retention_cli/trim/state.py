"""The state of a trim: planned rows, their outcomes, attempts, and unanswered requests. Pure.

A trim goes through state → wanted (:mod:`retention_cli.trim.reconcile`) → requests → results; this module has the state
and takes the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.plan.reconcile import Target
from retention_cli.trim.report import OutcomeName, TrimRow
from retention_cli.trim.verify import Answer, Unanswered, judge


@dataclass(slots=True)
class State:
    """The progress of a trim.

    ``planned`` are the rows to trim, ``rows`` the results so far, ``tries`` the number of failed attempts of each.
    ``unanswered`` are requests that may still be executed, ``done`` is the amount known to be trimmed (G6).
    ``unplanned`` is how many of the rows are of partitions that are not to be trimmed. ``asked`` is what the plan asks
    for.
    """

    planned: Mapping[TopicPartition, Decision]
    rows: dict[TopicPartition, TrimRow]
    tries: dict[TopicPartition, int] = field(default_factory=dict)
    unanswered: Unanswered = field(default_factory=Unanswered)
    done: Amount = field(default_factory=Amount)
    unplanned: int = 0
    asked: Amount = field(default_factory=Amount)
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
        asked = total(Amount(one.records, one.size_bytes, one.unconsumed) for one in planned.values())
        return cls(planned, rows, unplanned=len(rows), asked=asked)

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
        """Return the results of batches, by number, of which more is known now than stands in the audit log.

        A trim without an answer may be found done by a later recheck. It is the last request of its partition that
        has the result: the audit log counts earlier ones as settled by it.
        """
        now = {number: [self._now(number, row) for row in rows] for number, rows in self._doubtful.items()}
        return {number: rows for number, rows in now.items() if rows != self._doubtful[number]}

    def _now(self, number: int, row: TrimRow) -> TrimRow:
        known = self.rows.get(row.tp)
        done = known is not None and known.outcome == "trimmed" and self._last[row.tp] == number
        return known if known is not None and done and row.outcome == "unverified" else row

    def judged(self, tp: TopicPartition, target: Target, said: Answer, start: int | None) -> TrimRow:
        """Return the result of a request, or of an earlier unanswered one, whose trim counts as this run's, too."""
        row = judge(tp, target, said, start)
        if row.outcome == "trimmed":
            self.unanswered.forget(tp)
        else:
            if row.outcome == "unverified":
                self.unanswered.note(tp, target, said)
            row = self.unanswered.settle(tp, start) or row
        self._counted(row)
        return row

    def _counted(self, row: TrimRow | None) -> TrimRow | None:
        if row is not None and row.outcome == "trimmed":
            self.done += Amount(row.records, row.size_bytes, self.planned[row.tp].unconsumed)
        return row
