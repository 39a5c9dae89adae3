"""Execute a plan: recheck, delete, read back, report (docs/architecture.md, Trim).

A plan alone allows no trim. Each batch is decided again at most :data:`RECHECK_SECONDS` before its request
is sent; the plan can only narrow what that decision allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.deleter import Answered, Deleter, Outcome as DeleteOutcome
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.errors import Refusal
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.disks.disk import DiskOutcome
from retention_cli.evidence.writer import Recorder
from retention_cli.plan.reconcile import Target
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.trim.archive_gate import ArchivedFirst, rehearsed
from retention_cli.trim.journal import AuditJournal, ResultFacts, Sent, rows_of
from retention_cli.trim.narrow import batches_of, requests_of, wanted
from retention_cli.trim.recheck import Recheck, Rechecks
from retention_cli.trim.report import OutcomeName, TrimReport, TrimRow
from retention_cli.trim.state import Answer, State, judge

RECHECK_SECONDS: Final = 30.0
"""How old a batch's recheck may be when its request is sent, and when its last answer still counts."""
SEND_SECONDS: Final = 1.0
"""How much of a recheck's time must be left for another batch to be sent."""
ATTEMPTS: Final = 4
AGAIN_AFTER_S: Final = (0.5, 1.0, 2.0)
FEWEST: Final = 1_000
"""A recheck that was too slow is followed by one of half as many partitions, but never of fewer than this."""


class RefusedError(Refusal):
    """The trim would exceed a limit of the policy (G6), or needs an approval. Nothing was trimmed."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("; ".join(reason.text for reason in reasons))
        self.reasons = reasons


class StopError(Exception):
    """Nothing more may be sent in this run. What was sent counts; the rest is left unchanged, with this reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


Permit = Callable[[], AbstractContextManager[None]]
"""Entered around each batch, from before it is announced until its result is recorded. Entering it raises
:class:`StopError` if nothing more may be sent."""


@dataclass(slots=True)
class Trimmer:
    """Trims one plan, once.

    Args:
        plan: the most that may be trimmed.
        rechecks: decides partitions again, and checks the policy's limits; its reader reads log start offsets back.
        run: the run's name.
        max_partitions: trim at most this many partitions, the first ones.
        progress: called with the number of settled partitions.
        deleter: None in a dry run, which thus can't delete.
        journal: None in a dry run.
        archived: limits trims to what is archived, where the policy wants that.
        permit: entered around each batch.
        recorder: writes evidence; None: none is kept.
    """

    plan: Plan
    rechecks: Rechecks
    run: str
    max_partitions: int | None = None
    progress: Progress = silent
    deleter: Deleter | None = None
    journal: AuditJournal | None = None
    archived: ArchivedFirst = field(default_factory=lambda: ArchivedFirst(None))
    permit: Permit = nullcontext
    recorder: Recorder | None = None
    _result_facts: ResultFacts = field(default_factory=ResultFacts, init=False)
    _state: State = field(init=False)
    _batches: int = 0  # announced
    _sent: bool = False
    _recheck_s: float = 0.0
    _delete_s: float = 0.0
    _disks: Sequence[DiskOutcome] = ()
    _at_most: int | None = None
    _slow: int = 0  # rechecks of the fewest partitions that took too long, one after the other

    def __post_init__(self) -> None:
        self._state = State.of(self.plan.decisions, self.max_partitions)
        self._disks = self.plan.disks

    @property
    def reader(self) -> ClusterReader:
        """What reads the cluster."""
        return self.rechecks.reader

    def trim(self) -> TrimReport:
        """Trim what both the plan and the current facts allow.

        Ctrl-C between requests ends the trim; during a request, its result is read back first. Once a batch was
        announced, an error ends the trim too, and is in the report instead of being raised.

        Raises:
            RefusedError: the trim as planned would exceed a limit; nothing was trimmed.
            BrokerError, PolicyError: nothing could be rechecked, and nothing was trimmed.
            StateError: nothing could be announced in the audit log, and nothing was trimmed.
        """
        state = self._state
        stopped: str | None = None
        audit_problem: str | None = None
        stopped_by: Exception | None = None
        interrupted = False
        left: Reason | None = None
        try:
            while waiting := state.waiting():
                self._pause(waiting)
                self._round(waiting[: self._at_most])
        except KeyboardInterrupt:
            interrupted, stopped = True, "interrupted before its turn"
        except StopError as error:
            left = error.reason
        except Exception as error:
            if not self._batches:
                raise
            stopped, audit_problem, stopped_by = _why(error)
        for tp in state.waiting():
            outcome: OutcomeName = "unchanged" if interrupted or left is not None else "failed"
            state.end(tp, TrimRow(tp, outcome, reasons=(left or Reason("trim", stopped or "not reached"),)))
        audit_problem = audit_problem or self._record_corrections()
        if (unkept := self._keep_results()) is not None:
            interrupted |= isinstance(unkept, KeyboardInterrupt)
            audit_problem = audit_problem or str(unkept) or "interrupted before the results were written as evidence"
            stopped_by = stopped_by or (None if isinstance(unkept, (StateError, KeyboardInterrupt)) else unkept)
        return TrimReport(
            self.run,
            self.plan.cluster_id,
            self.plan.bootstrap,
            [state.rows[one.tp] for one in self.plan.decisions],
            interrupted,
            self._recheck_s,
            self._delete_s,
            audit_problem,
            disks=self._disks,
            sent=self._sent,
            stopped_by=stopped_by,
        )

    def _pause(self, waiting: Collection[TopicPartition]) -> None:
        """Wait before partitions are tried again; not before their first round."""
        if tried := max(self._state.tries.get(tp, 0) for tp in waiting):
            self.reader.clock.sleep(AGAIN_AFTER_S[min(tried, len(AGAIN_AFTER_S)) - 1])

    def _record_corrections(self) -> str | None:
        """Record the results that became known later; return why the audit log can't be written, None if it can."""
        if self.journal is None:
            return None
        try:
            for number, known in self._state.corrected().items():
                self.journal.result(number, known)
        except StateError as error:
            return str(error)
        return None

    def _keep_results(self) -> Exception | KeyboardInterrupt | None:
        """Write each partition's outcome as evidence; return what went wrong. The trim is done, and is reported."""
        try:
            if self.recorder is not None and self.recorder.rechecks:
                self.recorder.results(list(self._result_facts.results(self._state.rows, self._state.planned)))
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (any error: the deletes must still be reported)
            return error
        return None

    def _round(self, waiting: Sequence[TopicPartition]) -> None:
        """Recheck the waiting partitions, and trim as many of them as the recheck's time allows."""
        self.archived.keep_again(waiting)
        began = self.reader.clock.monotonic()
        fresh = self.rechecks.recheck(waiting)
        self._disks = fresh.disks
        self._recheck_s += self.reader.clock.monotonic() - began
        found, ended = wanted(self._state.planned, waiting, fresh.decisions, fresh.unreadable, fresh.epoch_end)
        for row in ended:
            if row.outcome == "failed":
                self._try_again(row.tp, row)
            else:
                self._state.end(row.tp, row, fresh.decisions.get(row.tp))
        for tp in [tp for tp, one in found.items() if self._state.unanswered.reached(tp, one.decision.log_start)]:
            one = found.pop(tp)  # another request would take more than that one, and count for both (G6)
            self._state.end(tp, TrimRow(tp, "unchanged", log_start=one.decision.log_start), one.decision)
        targets = self._within_limits(found)
        if self.deleter is None:
            for tp, target in targets.items():
                self._state.rows[tp] = TrimRow(
                    tp,
                    "would-trim",
                    target.offset,
                    target.decision.log_start,
                    (*rehearsed(tp, target, fresh), *target.decision.reasons),
                    target.records,
                    target.size_bytes,
                    target.unconsumed,
                )
            return
        sorted_ = self.archived.sort(targets, fresh)
        for tp, held in sorted_.held.items():
            self._state.end(tp, TrimRow(tp, "held", reasons=held.reasons), targets[tp].decision)
        self._keep(fresh, [tp for tp in waiting if tp not in sorted_.uncopied])
        self._send_all(sorted_.ready, fresh)
        if sorted_.uncopied:  # copying is slow, so the results are used in the next round, after another recheck
            self.archived.copy(sorted_.uncopied, self.progress)

    def _keep(self, fresh: Recheck, tps: Sequence[TopicPartition]) -> None:
        """Write what the recheck found as evidence, before any request based on it is sent."""
        if self.recorder is None or not tps:
            return
        rows = rows_of(self.recorder.rechecks + 1, fresh, self._state.planned, tps)
        self.recorder.facts(rows, fresh.observation)
        self._result_facts.note(rows, fresh.decisions)

    def _send_all(self, targets: Mapping[TopicPartition, Target], fresh: Recheck) -> None:
        """Send as many batches as the recheck's time allows; leave the others for another recheck."""
        sent = False
        for batch in batches_of(targets, _brokers(targets, fresh.observation.leaders)):
            good_until = fresh.began + RECHECK_SECONDS
            with self.permit():  # entering may take some of the recheck's time
                if in_time := good_until - self.reader.clock.since_boot() >= SEND_SECONDS:
                    self._send(batch, fresh, good_until)
                    sent, self._slow = True, 0
            if not in_time and not sent:  # too old a recheck for any batch
                self._too_slow(targets)
                return

    def _too_slow(self, targets: Mapping[TopicPartition, Target]) -> None:
        """Leave these for a quicker recheck, of half as many. If even the fewest take too long, so will the others."""
        if len(targets) > FEWEST:  # a quicker one is possible: it does not count as an attempt
            self._at_most = max(FEWEST, len(targets) // 2)
            return
        slow = (Reason("trim", f"a recheck took longer than {RECHECK_SECONDS:g} s: trim fewer topics at a time"),)
        for tp, target in targets.items():
            self._try_again(tp, TrimRow(tp, "failed", target.offset, reasons=slow))
        self._slow += 1
        if self._slow >= ATTEMPTS:
            for tp in self._state.waiting():
                self._state.end(tp, TrimRow(tp, "failed", reasons=slow))

    def _try_again(self, tp: TopicPartition, failed: TrimRow) -> None:
        """Leave the partition for another round; a dry run has only one round."""
        self._state.try_again(tp, failed, 1 if self.deleter is None else ATTEMPTS)

    def _within_limits(self, targets: Mapping[TopicPartition, Target]) -> Mapping[TopicPartition, Target]:
        """Return the targets if the limits (G6) and approvals allow all of them; otherwise hold them.

        Raises:
            RefusedError: they exceed a limit or lack an approval, and nothing was sent yet.
        """
        state = self._state
        may_go = state.unanswered.may_go(targets)  # an unanswered request may have been executed, or may yet be
        run = state.done + total(Amount(one.records, one.size_bytes, one.unconsumed) for one in may_go)
        broken = self.rechecks.exceeded(run)
        if self.deleter is not None and run.records:
            more = next((tp for tp, one in targets.items() if one.records > state.planned[tp].records), None)
            broken += self.rechecks.unapproved(run, state.requested, more=more)
        if not broken:
            return targets
        if not self._batches:
            raise RefusedError(broken)
        for tp, target in targets.items():
            state.end(tp, TrimRow(tp, "held", reasons=tuple(broken)), target.decision)
        return {}

    def _send(
        self,
        batch: Mapping[TopicPartition, Target],
        fresh: Recheck,
        good_until: float,
    ) -> None:
        """Delete one batch and read the result back. Retriable failures wait for another recheck."""
        assert self.deleter is not None and self.journal is not None  # noqa: S101, PT018  (never reached in a dry run)
        state, leaders = self._state, fresh.observation.leaders
        self.journal.batch(self._batches + 1, batch)  # a batch that can't be announced is not sent
        self._batches += 1
        number = 0 if self.recorder is None else self.recorder.rechecks
        if (left_s := good_until - self.reader.clock.since_boot()) <= 0:  # the disk under the audit log stalled
            self._leave_unsent(batch, number)
            return
        for tp, target in batch.items():
            # The result until it is read back, in case a second Ctrl-C prevents that.
            state.rows[tp] = judge(tp, target, None, None)
            self._result_facts.sent[self._batches, tp] = Sent(number, state.rows[tp])
        answers: dict[TopicPartition, Answer] = {}

        def hear(tp: TopicPartition, outcome: DeleteOutcome) -> None:
            answers[tp] = outcome.log_start if isinstance(outcome, Answered) else outcome

        interrupted = False
        began = self.reader.clock.monotonic()
        self._sent = True
        try:
            self.deleter.delete(
                requests_of(batch, _brokers(batch, leaders)),
                hear,
                timeout_s=min(left_s, self.reader.timeout_s),
                good_until=good_until,
            )
        except KeyboardInterrupt:
            interrupted = True
        starts = self._read_back(batch, leaders)
        self._delete_s += self.reader.clock.monotonic() - began
        judged = {tp: state.judged(tp, target, answers.get(tp), starts.get(tp)) for tp, target in batch.items()}
        for tp, row in judged.items():
            answer = answers.get(tp)
            at = self.deleter.written.get(tp)
            self._result_facts.sent[self._batches, tp] = Sent(
                number, row, None if at is None else fresh.unix_ms(at), answer
            )
            state.rows[tp] = row
            if isinstance(answer, RequestFailedError) and answer.retriable and not interrupted and not _reached(row):
                self._try_again(tp, row)
        self._record(self._batches, judged.values())
        self.progress("trimming", state.settled(), len(state.planned))
        if interrupted:
            raise KeyboardInterrupt

    def _leave_unsent(self, batch: Mapping[TopicPartition, Target], recheck: int) -> None:
        """Record that an announced batch was not sent, and try its partitions again."""
        late = (Reason("trim", "not sent: its recheck was too old when the batch was announced"),)
        unsent = [
            self._state.unanswered.settle(tp, None) or TrimRow(tp, "failed", target.offset, reasons=late)
            for tp, target in batch.items()
        ]
        self._record(self._batches, unsent)
        for row in unsent:
            self._result_facts.sent[self._batches, row.tp] = Sent(recheck, row)
            self._try_again(row.tp, row)

    def _record(self, number: int, rows: Collection[TrimRow]) -> None:
        assert self.journal is not None  # noqa: S101  (a dry run sends nothing)
        self.journal.result(number, rows)
        self._state.recorded(number, rows)

    def _read_back(
        self, batch: Mapping[TopicPartition, Target], leaders: Mapping[TopicPartition, PartitionMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the log start offsets that can be read: a successful delete does not prove that the log changed."""
        answers = self.reader.list_offsets([dict.fromkeys(batch, "earliest")], leaders)[0]
        lost = [tp for tp, answer in answers.items() if not isinstance(answer, Found)]
        if lost:  # their leader may have moved: look it up once more
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


def _brokers(
    tps: Collection[TopicPartition], leaders: Mapping[TopicPartition, PartitionMetadata]
) -> dict[TopicPartition, int | None]:
    return {tp: leaders[tp].leader for tp in tps}


def _reached(row: TrimRow) -> bool:
    return row.log_start is not None and row.target is not None and row.log_start >= row.target


def _why(error: Exception) -> tuple[str, str | None, Exception | None]:
    """Return why an error ended a trim, the audit log's problem if it is that, and the error if it is unexpected."""
    match error:
        case BrokerError() | PolicyError():
            return f"the recheck failed: {error}", None, None
        case StateError():
            return str(error), str(error), None
        case _:
            return f"ended by {type(error).__name__}: {error}", None, error
