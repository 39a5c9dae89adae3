"""What a trim leaves: its lines in the audit log, and its evidence or a plan's, which is rechecks and their results."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from retention_cli import __version__
from retention_cli.archive.writer import Archived, Copies
from retention_cli.audit.chain import Link, signature_line
from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.core.state_dir import StateError, cluster_folder, whoever
from retention_cli.core.units import timestamp
from retention_cli.evidence.value import DiskPart, Planned, ReadTimes, RecordedDecision, Result, Row
from retention_cli.evidence.writer import recorder_for
from retention_cli.plan.approval import Approval
from retention_cli.plan.make import PlanInputs
from retention_cli.plan.reconcile import Target
from retention_cli.plan.value import Plan
from retention_cli.trim.recheck import Recheck
from retention_cli.trim.report import TrimReport, TrimRow
from retention_cli.trim.state import Answer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def new_run_name(now_ms: int) -> str:
    """Return a name for a run that sorts by time: ``20261121T030000Z-3f9a``."""
    return f"{timestamp(now_ms)[:19].replace('-', '').replace(':', '')}Z-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class AuditJournal:
    """Writes one run's lines: ``run``, then ``batch`` and ``result`` in turn, then ``end``, and a signature with a key.

    Each call returns once the line is on disk.
    """

    _log: AuditLog
    _run: str
    _clock_ms: Callable[[], int]
    _key: Ed25519PrivateKey | None = None

    def begin(
        self, plan: Plan, source: str | None, ledger: NamedLedger | None = None, approval: Approval | None = None
    ) -> None:
        """Announce the run.

        Args:
            plan: the plan to execute.
            source: the plan's file, None if the plan was made in this run.
            ledger: the ledger that its decisions use, None without a ledger.
            approval: a second person's approval of the plan, None if none counts.
        """
        totals = plan.totals
        self._append(
            "run",
            cluster={"id": plan.cluster_id, "bootstrap": plan.bootstrap},
            kretain=__version__,
            **whoever(),
            pid=os.getpid(),
            policy={"source": plan.policy_source, "digest": plan.policy_digest, "flags": dict(plan.flags)},
            plan={"file": source, "created_at": timestamp(plan.created_at_ms)},
            planned={
                "partitions": totals.trim,
                "records": totals.records,
                "bytes": totals.size_bytes,
                "unconsumed": totals.unconsumed,
            },
            **({} if approval is None else {"approval": approval.as_json()}),
            **({} if ledger is None else {"ledger": {"id": ledger.ledger_id, "revision": ledger.revision}}),
        )

    def batch(self, number: int, targets: Mapping[TopicPartition, Target]) -> None:
        """Announce a batch before its requests are sent: the recheck's facts, and the target offsets."""
        rows = [
            {
                "topic": tp.topic,
                "topic_id": target.decision.topic_id,
                "partition": tp.partition,
                "log_start": target.decision.log_start,
                "min_commit": target.decision.min_commit,
                "target": target.offset,
                "records": target.records,
                "bytes": target.size_bytes,
                "unconsumed": target.unconsumed,
                "rule": target.decision.rule,
            }
            for tp, target in targets.items()
        ]
        self._append("batch", batch=number, partitions=rows)

    def result(self, number: int, rows: Collection[TrimRow]) -> None:
        """Record a batch's results."""
        results = [
            {
                "topic": row.tp.topic,
                "partition": row.tp.partition,
                "outcome": row.outcome,
                "log_start": row.log_start,
                **({"reason": row.reasons[0].text} if row.reasons else {}),
            }
            for row in rows
        ]
        self._append("result", batch=number, partitions=results)

    def evidence(self, file: str, rows: int, sha256: str) -> None:
        """Record a file of evidence: where it is, how many rows it has, and its checksum."""
        self._append("evidence", file=file, rows=rows, sha256=sha256)

    def archived(self, copies: Copies) -> None:
        """Record which offsets were archived and where, and why others were not."""
        rows = [{"topic": tp.topic, "partition": tp.partition, **_as_json(one)} for tp, one in copies.items()]
        self._append("archive", partitions=rows)

    def end(self, report: TrimReport | None, exit_code: int, error: str | None = None) -> None:
        """Close the run with its exit code and totals, or with the error that ended it without a report."""
        totals: dict[str, int | None] = {}
        if report is not None:
            totals = {
                "records": report.trimmed.records,
                "bytes": report.trimmed.size_bytes,
                **{name: report.count(name) for name in ("trimmed", "unchanged", "held", "failed", "unverified")},
            }
        last = self._append("end", exit=exit_code, totals=totals, **({"error": error} if error else {}))
        if self._key is not None:
            self._log.append(signature_line(self._run, last, self._key) | {"at": timestamp(self._clock_ms())})

    def _append(self, event: str, **more: Any) -> Link:
        return self._log.append({"event": event, "run": self._run, "at": timestamp(self._clock_ms()), **more})


def _as_json(one: Archived | Reason) -> dict[str, Any]:
    if isinstance(one, Reason):
        return {"reason": one.text}
    return {
        "topic_id": one.source.topic_id,
        "url": one.url,
        "from": one.start,
        "to": one.end,
        "records": sum(segment.records for segment in one.segments),
        "manifests": [segment.path for segment in one.segments],
        "notes": list(one.notes),
    }


def rows_of(
    number: int, fresh: Recheck, planned: Mapping[TopicPartition, Decision], tps: Collection[TopicPartition]
) -> list[Row]:
    """Return the evidence of a recheck, the ``number``-th of its run, for these of the plan's partitions.

    A partition that is gone, or managed no longer, has no facts: its result says that.
    """
    seen, rows = fresh.observation, []
    reads = [
        ReadTimes(*(fresh.unix_ms(at) for at in (min(fresh.began, one.times.began), *one.times[1:])))
        for one in seen.passes
    ]
    for tp in sorted(tps):
        facts, decision = seen.facts.get(tp), fresh.decisions.get(tp)
        if facts is None or decision is None:
            continue
        plan = planned[tp]
        epoch_end = None if plan.leader_epoch == facts.leader_epoch else fresh.epoch_end(tp, plan.leader_epoch)
        disks = fresh.disk_parts.get(tp)
        rows.append(
            Row(
                number,
                facts,
                seen.settings[tp.topic],
                fresh.now_ms,
                reads[seen.read_in.get(tp, 0)],
                Planned(
                    plan.trim_to or 0,
                    plan.topic_id,
                    plan.leader_epoch,
                    plan.min_commit,
                    plan.unconsumed,
                    epoch_end,
                ),
                RecordedDecision.of(decision),
                None if disks is None else DiskPart(*disks),
            )
        )
    return rows


class Sent(NamedTuple):
    """A request for one partition: its recheck, its outcome, when it was written (Unix ms), its answer."""

    recheck: int
    row: TrimRow
    sent_ms: int | None = None
    answer: Answer = None


@dataclass(slots=True)
class ResultFacts:
    """What a run's results need besides its report's rows.

    ``rechecks`` has the last recheck of each partition, ``derivable`` the reasons that deciding again gives, ``sent``
    what was announced, by batch.
    """

    rechecks: dict[TopicPartition, int] = field(default_factory=dict)
    derivable: dict[TopicPartition, tuple[Reason, ...]] = field(default_factory=dict)
    sent: dict[tuple[int, TopicPartition], Sent] = field(default_factory=dict)

    def note(self, rows: Iterable[Row], decisions: Mapping[TopicPartition, Decision]) -> None:
        """Note which recheck partitions were in last, and its reasons."""
        for one in rows:
            tp = one.facts.tp
            self.rechecks[tp] = one.recheck
            self.derivable[tp] = decisions[tp].reasons

    def results(self, rows: Mapping[TopicPartition, TrimRow], planned: Collection[TopicPartition]) -> Iterator[Result]:
        """Yield each request's result, and the one of each of the plan's partitions that none was sent for."""
        settling = {
            tp: sent
            for (_, tp), sent in self.sent.items()
            if rows[tp].target == sent.row.target and rows[tp].outcome not in ("held", "would-trim")
        }
        for (batch, tp), sent in self.sent.items():
            final = settling.get(tp) is sent
            yield self._result(tp, rows[tp] if final else sent.row, sent, batch, final=final)
        for tp in planned:
            if tp not in settling:
                yield self._result(tp, rows[tp], None, final=True)

    def _result(
        self, tp: TopicPartition, row: TrimRow, sent: Sent | None, batch: int | None = None, *, final: bool
    ) -> Result:
        answer = None if sent is None else sent.answer
        return Result(
            *tp,
            self.rechecks.get(tp) if sent is None else sent.recheck,
            batch,
            row.outcome,
            final,
            None if sent is None else row.target,
            None if sent is None else sent.sent_ms,
            answer if isinstance(answer, int) else None,
            None if answer is None or isinstance(answer, int) else str(answer),
            row.log_start,
            row.records,
            row.size_bytes,
            "; ".join(reason.text for reason in row.reasons if reason not in self.derivable.get(tp, ())) or None,
        )


def record_plan(
    inputs: PlanInputs, reader: ClusterReader, now_ms: int, state_dir: Path, url: str | None, *, inventory: bool
) -> str:
    """Write the evidence of a plan, so that a policy can be tried before its first delete (docs/replay.md).

    It then has a run's name, which is returned.

    It is in no audit log: nothing was trimmed, and its files say so.

    Args:
        inputs: what the plan was made of, with what groups have committed.
        reader: the cluster that was read.
        now_ms: the time that was decided for.
        state_dir: where evidence is, if the policy says nothing.
        url: the policy's ``evidence``.
        inventory: whether sizes are by an inventory.

    Raises:
        StateError: it can't be written, or the policy wants none.
    """
    seen = inputs.observation
    run = new_run_name(now_ms)
    folder = cluster_folder(state_dir, seen.cluster_id)
    head = {"run": run, "cluster": seen.cluster_id, "inventory": inventory, "plan": True}
    if (recorder := recorder_for(url, folder, head, lambda _file, _rows, _digest: None)) is None:
        raise StateError("--evidence: the policy says evidence: none, or pyarrow is missing (kretain[parquet])")
    zero_ms = reader.clock.wall_ms() - 1000 * reader.clock.since_boot()
    decisions = {one.tp: one for one in inputs.decisions}
    fresh = Recheck(
        min(seen.began, (now_ms - zero_ms) / 1000),
        seen,
        decisions,
        {},
        now_ms=now_ms,
        zero_ms=zero_ms,
        disk_parts=inputs.disk_parts,
    )
    recorder.facts(rows_of(1, fresh, decisions, decisions.keys()), seen)
    return run
