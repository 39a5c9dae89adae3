"""A trim's lines in the audit log."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from retention_cli import __version__
from retention_cli.archive.writer import Archived, Copies
from retention_cli.audit.chain import Link, signature_line
from retention_cli.audit.lock import whoever
from retention_cli.audit.log import AuditLog, NamedLedger
from retention_cli.core.model import TopicPartition
from retention_cli.core.units import timestamp
from retention_cli.plan.approval import Approval
from retention_cli.plan.reconcile import Target
from retention_cli.plan.value import Plan
from retention_cli.trim.report import TrimReport, TrimRow

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def new_run_name(now_ms: int) -> str:
    """Return a name for a run that sorts by time: ``20261121T030000Z-3f9a``."""
    moment = timestamp(now_ms)
    return f"{moment[:19].replace('-', '').replace(':', '')}Z-{secrets.token_hex(2)}"


class AuditJournal:
    """Writes one run's lines: ``run``, then ``batch`` and ``result`` in turn, then ``end``, and a signature with a key.

    Each call returns once the line is on disk.
    """

    def __init__(
        self, log: AuditLog, run: str, clock_ms: Callable[[], int], key: Ed25519PrivateKey | None = None
    ) -> None:
        self._log = log
        self._run = run
        self._clock_ms = clock_ms
        self._key = key

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
        told = [
            {
                "topic": row.tp.topic,
                "partition": row.tp.partition,
                "outcome": row.outcome,
                "log_start": row.log_start,
                **({"reason": row.reasons[0].text} if row.reasons else {}),
            }
            for row in rows
        ]
        self._append("result", batch=number, partitions=told)

    def evidence(self, file: str, rows: int, sha256: str) -> None:
        """Record a file of evidence: where it is, how many rows it has, and its checksum."""
        self._append("evidence", file=file, rows=rows, sha256=sha256)

    def archived(self, copies: Copies) -> None:
        """Record which offsets were archived and where, and why others were not."""
        rows = []
        for tp, one in copies.items():
            row: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition}
            if isinstance(one, Archived):
                segments = one.segments
                row |= {"topic_id": one.source.topic_id, "url": one.url, "from": one.start, "to": one.end}
                row |= {"records": sum(segment.records for segment in segments)}
                row |= {"manifests": [segment.path for segment in segments], "notes": list(one.notes)}
            else:
                row["reason"] = one.text
            rows.append(row)
        self._append("archive", partitions=rows)

    def end(self, report: TrimReport | None, exit_code: int, error: str | None = None) -> None:
        """Close the run with its exit code and totals, or with the error that ended it without a report."""
        totals: dict[str, int | None] = {}
        if report is not None:
            totals = {"records": report.trimmed.records, "bytes": report.trimmed.size_bytes}
            totals |= {name: report.count(name) for name in ("trimmed", "unchanged", "held", "failed", "unverified")}
        last = self._append("end", exit=exit_code, totals=totals, **({"error": error} if error else {}))
        if self._key is not None:
            self._log.append(signature_line(self._run, last, self._key) | {"at": timestamp(self._clock_ms())})

    def _append(self, event: str, **more: Any) -> Link:
        return self._log.append({"event": event, "run": self._run, "at": timestamp(self._clock_ms()), **more})
