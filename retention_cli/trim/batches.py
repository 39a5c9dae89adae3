"""Carry a plan out: recheck, delete, read back, report (docs/architecture.md, Trim).

Nothing is deleted on the plan's word. Each batch is decided afresh at most :data:`RECHECK_SECONDS` before
its request goes out; the plan can only narrow what that decision allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.deleter import Answered, Deleter
from retention_cli.brokers.deleter import Outcome as DeleteOutcome
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.errors import Refusal
from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.disks.solve.outcome import DiskOutcome
from retention_cli.plan.make import Recheck
from retention_cli.plan.target import Target
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.trim.archive_gate import ArchivedFirst, rehearsed
from retention_cli.trim.reconcile import Held, Unchanged, reconcile
from retention_cli.trim.report import Journal, OutcomeName, TrimReport, TrimRow, row_of
from retention_cli.trim.verify import Answer, Unanswered, judge

RECHECK_SECONDS: Final = 30.0
"""How old a batch's recheck may be when its request goes out, and when the last answer to it counts."""
SEND_SECONDS: Final = 1.0
"""What must be left of a recheck's time to send another batch on it."""
PARTITIONS_A_LEADER: Final = 1_000
ATTEMPTS: Final = 4
AGAIN_AFTER_S: Final = (0.5, 1.0, 2.0)


class RefusedError(Refusal):
    """The trim would break a limit of the policy (G6). Nothing was trimmed."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("; ".join(reason.text for reason in reasons))
        self.reasons = reasons


RecheckFor = Callable[[Collection[TopicPartition]], Recheck]
"""Decides these partitions afresh, with today's policy and facts."""
Limiter = Callable[[Amount], list[Reason]]
"""Given what this run trims in all, says which of the policy's limits that would break."""


@dataclass(slots=True)
class Trimmer:
    """One carrying out of one plan.

    Args:
        plan: the wishes.
        recheck: decides afresh.
        limiter: the policy's limits.
        reader: reads log start offsets back.
        deleter: None in a dry run, which thus can't delete.
        journal: None in a dry run.
        run: the run's name.
        max_partitions: trim these few first.
        archived: lets nothing through that the policy wants archived, and that is not.
        progress: is told how many partitions are done.
    """

    plan: Plan
    recheck: RecheckFor
    limiter: Limiter
    reader: ClusterReader
    deleter: Deleter | None
    journal: Journal | None
    run: str
    max_partitions: int | None = None
    progress: Progress = silent
    archived: ArchivedFirst = field(default_factory=lambda: ArchivedFirst(None))
    _planned: dict[TopicPartition, Decision] = field(default_factory=dict)
    _rows: dict[TopicPartition, TrimRow] = field(default_factory=dict)
    _tries: dict[TopicPartition, int] = field(default_factory=dict)
    _unanswered: Unanswered = field(default_factory=Unanswered)
    _done: Amount = field(default_factory=Amount)
    _batches: int = 0
    _sent: bool = False
    _disks: Sequence[DiskOutcome] = ()
    _recheck_s: float = 0.0
    _delete_s: float = 0.0

    def trim(self) -> TrimReport:
        """Trim what the plan names and today's facts allow.

        A Ctrl-C between requests ends it there; during one, what was under way is read back first. Once a batch was
        announced, whatever else goes wrong ends it likewise: the report has what was done.

        Raises:
            RefusedError: the whole would break a limit; nothing was trimmed.
            BrokerError, PolicyError: nothing could be rechecked, and nothing was trimmed.
            StateError: nothing could be announced in the audit log, and nothing was trimmed.
        """
        self._sort_out()
        self._disks = self.plan.disks
        stopped: str | None = None
        audit_problem: str | None = None
        stopped_by: Exception | None = None
        interrupted = False
        try:
            while waiting := [tp for tp in self._planned if tp not in self._rows]:
                if tried := max(self._tries.get(tp, 0) for tp in waiting):
                    self.reader.clock.sleep(AGAIN_AFTER_S[min(tried, len(AGAIN_AFTER_S)) - 1])
                self._round(waiting)
        except KeyboardInterrupt:
            interrupted, stopped = True, "interrupted before its turn"
        except (BrokerError, PolicyError) as error:
            if not self._batches:
                raise
            stopped = f"the recheck failed: {error}"
        except StateError as error:
            if not self._batches:
                raise
            stopped = audit_problem = str(error)
        except Exception as error:
            if not self._batches:
                raise
            stopped, stopped_by = f"ended by {type(error).__name__}: {error}", error
        for tp in self._planned:
            if tp not in self._rows:
                outcome: OutcomeName = "unchanged" if interrupted else "failed"
                reasons = (Reason("trim", stopped or "not reached"),)
                self._rows[tp] = self._late(tp, None) or row_of(tp, outcome, reasons=reasons)
        rows = [self._rows[one.tp] for one in self.plan.decisions]
        return TrimReport(
            self.run,
            self.plan.cluster_id,
            self.plan.bootstrap,
            rows,
            interrupted,
            self._recheck_s,
            self._delete_s,
            audit_problem,
            disks=self._disks,
            sent=self._sent,
            stopped_by=stopped_by,
        )

    def _sort_out(self) -> None:
        """Note what needs no request: rows that keep, skip or hold, and those beyond ``max_partitions``."""
        for one in self.plan.decisions:
            if one.action == "trim":
                if self.max_partitions is None or len(self._planned) < self.max_partitions:
                    self._planned[one.tp] = one
                else:
                    later = (Reason("max-partitions", "left for a later run"),)
                    self._rows[one.tp] = row_of(one.tp, "unchanged", reasons=later)
            else:
                outcome: OutcomeName = "held" if one.action == "hold" else "unchanged"
                self._rows[one.tp] = row_of(one.tp, outcome, log_start=one.log_start, reasons=one.reasons)

    def _round(self, waiting: Sequence[TopicPartition]) -> None:
        """Recheck what waits, and trim as much of it as that recheck is good for."""
        began = self.reader.clock.monotonic()
        fresh = self.recheck(waiting)
        self._disks = fresh.disks
        self._recheck_s += self.reader.clock.monotonic() - began
        targets: dict[TopicPartition, Target] = {}
        for tp in waiting:
            decision = fresh.decisions.get(tp)
            if (reason := fresh.unreadable.get(tp)) is not None:
                self._try_again(tp, row_of(tp, "failed", self._planned[tp].trim_to, reasons=(reason,)))
                continue
            planned = self._planned[tp]
            match reconcile(planned, decision, fresh.epoch_end(tp, planned.leader_epoch)):
                case Held(reasons):
                    self._rows[tp] = self._late(tp, decision) or row_of(tp, "held", reasons=reasons)
                case Unchanged(reasons, log_start):
                    unchanged = row_of(tp, "unchanged", log_start=log_start, reasons=reasons)
                    self._rows[tp] = self._late(tp, decision) or unchanged
                case Target() as target:
                    targets[tp] = target
        self._check_limits(targets)
        if self.deleter is None:
            for tp, target in targets.items():
                self._rows[tp] = row_of(
                    tp,
                    "would-trim",
                    target.offset,
                    target.decision.log_start,
                    (*rehearsed(tp, target, fresh), *target.decision.reasons),
                    target.records,
                    target.size_bytes,
                )
            return
        sorted_ = self.archived.sort(targets, fresh)
        for tp, held in sorted_.held.items():
            self._rows[tp] = self._late(tp, targets[tp].decision) or row_of(tp, "held", reasons=held.reasons)
        self._send_all(sorted_.ready, fresh)
        if sorted_.uncopied:  # that takes long, so what it finds counts in the next round, after another recheck
            self.archived.copy(sorted_.uncopied, self.progress)

    def _send_all(self, targets: Mapping[TopicPartition, Target], fresh: Recheck) -> None:
        """Send as many batches as the recheck is good for; the others wait for another."""
        sent = False
        for batch in _batches(targets, fresh.leaders):
            good_until = fresh.began + RECHECK_SECONDS
            if good_until - self.reader.clock.monotonic() >= SEND_SECONDS:
                self._send(batch, fresh.leaders, good_until)
                sent = True
            elif not sent:  # this recheck was good for nothing; where the next ones are too, say so
                slow = Reason("trim", f"a recheck takes longer than {RECHECK_SECONDS:g} s: trim fewer topics at a time")
                for tp in batch:
                    self._try_again(tp, row_of(tp, "failed", targets[tp].offset, reasons=(slow,)))

    def _try_again(self, tp: TopicPartition, failed: TrimRow) -> None:
        """Leave the partition for another round, or, after the last, with what became of it."""
        self._tries[tp] = self._tries.get(tp, 0) + 1
        if self._tries[tp] >= ATTEMPTS or self.deleter is None:
            self._rows[tp] = failed if failed.outcome == "unverified" else self._late(tp, None) or failed
        else:
            self._rows.pop(tp, None)

    def _late(self, tp: TopicPartition, fresh: Decision | None) -> TrimRow | None:
        """Say what became of an earlier request that nobody answered; None where there was none.

        ``fresh`` is what a recheck found since. A request may be carried out after we have looked.
        """
        same = fresh is None or fresh.topic_id == self._planned[tp].topic_id
        row = self._unanswered.settle(tp, fresh.log_start if fresh is not None and same else None)
        if row is not None and row.outcome == "trimmed":
            self._done += Amount(row.records, row.size_bytes)
        return row

    def _check_limits(self, targets: dict[TopicPartition, Target]) -> None:
        may_go = self._unanswered.may_go(targets)  # what no broker answered may have gone, or yet go
        amount = total(Amount(one.records, one.size_bytes) for one in may_go)
        broken = self.limiter(self._done + amount)
        if not broken:
            return
        if not self._batches:
            raise RefusedError(broken)
        for tp in list(targets):
            self._rows[tp] = self._late(tp, targets[tp].decision) or row_of(tp, "held", reasons=tuple(broken))
            del targets[tp]

    def _send(
        self,
        batch: Mapping[TopicPartition, Target],
        leaders: Mapping[TopicPartition, PartitionMetadata],
        good_until: float,
    ) -> None:
        """Delete one batch and read it back. What may be tried again waits for another recheck."""
        assert self.deleter is not None and self.journal is not None  # noqa: S101, PT018  (a dry run never comes here)
        self.journal.batch(self._batches + 1, batch)  # what can't be announced is not sent
        self._batches += 1
        left_s = good_until - self.reader.clock.monotonic()
        if left_s <= 0:  # the disk under the audit log stalled
            late = (Reason("trim", "not sent: its recheck was too old by the time that it was announced"),)
            unsent = [
                self._unanswered.settle(tp, None) or row_of(tp, "failed", target.offset, reasons=late)
                for tp, target in batch.items()
            ]
            self.journal.result(self._batches, unsent)
            for row in unsent:
                self._try_again(TopicPartition(row.topic, row.partition), row)
            return
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, target in batch.items():
            leader = leaders[tp].leader
            if leader is not None:
                by_leader.setdefault(leader, {})[tp] = target.offset
            # Until it is read back, all that can be said; also where a second Ctrl-C ends even that.
            self._rows[tp] = judge(tp, target, None, None)
        said: dict[TopicPartition, Answer] = {}

        def hear(tp: TopicPartition, outcome: DeleteOutcome) -> None:
            said[tp] = outcome.log_start if isinstance(outcome, Answered) else outcome

        interrupted = False
        began = self.reader.clock.monotonic()
        self._sent = True
        try:
            self.deleter.delete(by_leader, hear, timeout_s=min(left_s, self.reader.timeout_s))
        except KeyboardInterrupt:
            interrupted = True
        starts = self._read_back(batch, leaders)
        self._delete_s += self.reader.clock.monotonic() - began
        judged = {tp: self._judged(tp, target, said.get(tp), starts.get(tp)) for tp, target in batch.items()}
        for tp, row in judged.items():
            answer = said.get(tp)
            self._rows[tp] = row
            if isinstance(answer, RequestFailedError) and answer.retriable and not interrupted and not _reached(row):
                self._try_again(tp, row)
        self.journal.result(self._batches, judged.values())
        self.progress("trimming", sum(tp in self._rows for tp in self._planned), len(self._planned))
        if interrupted:
            raise KeyboardInterrupt

    def _judged(self, tp: TopicPartition, target: Target, said: Answer, start: int | None) -> TrimRow:
        """Say what became of a request, or of an earlier one that no broker answered: what that moved is ours, too."""
        row = judge(tp, target, said, start)
        if row.outcome == "trimmed":
            self._unanswered.forget(tp)
        else:
            if row.outcome == "unverified":
                self._unanswered.note(tp, target, said)
            row = self._unanswered.settle(tp, start) or row
        if row.outcome == "trimmed":
            self._done += Amount(row.records, row.size_bytes)
        return row

    def _read_back(
        self, batch: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the log start offsets that can be read; success of a delete is not proof of a change."""
        answers = self.reader.list_offsets([dict.fromkeys(batch, "earliest")], leaders)[0]
        lost = [tp for tp, answer in answers.items() if not isinstance(answer, Found)]
        if lost:  # their leader may have moved: ask who leads now, once
            try:
                topics = self.reader.metadata({tp.topic for tp in lost}).topics
            except BrokerError:
                topics = {}
            newer = {
                tp: topics[tp.topic].partitions[tp.partition]
                for tp in lost
                if tp.topic in topics
                and topics[tp.topic].topic_id == batch[tp].decision.topic_id
                and tp.partition in topics[tp.topic].partitions
            }
            answers |= self.reader.list_offsets([dict.fromkeys(newer, "earliest")], newer)[0]
        return {tp: answer.offset for tp, answer in answers.items() if isinstance(answer, Found)}


def _reached(row: TrimRow) -> bool:
    return row.log_start is not None and row.target is not None and row.log_start >= row.target


def _batches(
    targets: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, PartitionMetadata]
) -> Iterator[dict[TopicPartition, Target]]:
    """Cut targets so that each batch is one request of a bounded size per leader."""
    by_leader: dict[int | None, list[TopicPartition]] = {}
    for tp in sorted(targets):
        by_leader.setdefault(leaders[tp].leader, []).append(tp)
    longest = max((len(tps) for tps in by_leader.values()), default=0)
    for start in range(0, longest, PARTITIONS_A_LEADER):
        yield {tp: targets[tp] for tps in by_leader.values() for tp in tps[start : start + PARTITIONS_A_LEADER]}
