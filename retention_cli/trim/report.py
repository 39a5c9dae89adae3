"""The results of a trim: one row per partition, and ``kretain.trim/v1``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from retention_cli.core.model import Reason, TopicPartition
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.disks.disk import DiskOutcome, outcome_as_json
from retention_cli.plan.value import UNCHECKED, Clock

OutcomeName = Literal["trimmed", "unchanged", "held", "failed", "unverified", "would-trim"]
OUTCOMES: Final[tuple[OutcomeName, ...]] = get_args(OutcomeName)


@dataclass(frozen=True, slots=True)
class TrimRow:
    """The result for one partition. ``target`` is the requested offset; ``log_start`` was read back.

    ``unconsumed`` is how many of the ``records`` a consumer had yet to read (G2).
    """

    tp: TopicPartition
    outcome: OutcomeName
    target: int | None = None
    log_start: int | None = None
    reasons: tuple[Reason, ...] = ()
    records: int = 0
    size_bytes: int | None = 0
    unconsumed: int = 0


@dataclass(frozen=True, slots=True)
class TrimReport:
    """The result for every partition of a plan, in its order, and how long rechecks and deletes (with read-back) took.

    ``clock`` is whether this machine's clock was compared with the brokers' (G8). ``disks`` are R6's results at the
    last recheck. ``audit_problem`` is why the audit log is incomplete: the rows are then the only record.
    ``audit_unshipped`` is why the copy of the log that the policy wants lacks lines, None if it has all.
    ``audit_broken`` is where the audit log's chain was already broken, None if it was intact. ``sent``: a delete
    request was sent. ``stopped_by`` is the unexpected exception that ended the trim after a batch was announced.
    """

    run: str
    cluster_id: str
    bootstrap: str
    rows: Sequence[TrimRow]
    interrupted: bool = False
    recheck_seconds: float = 0.0
    delete_seconds: float = 0.0
    audit_problem: str | None = None
    audit_broken: str | None = None
    audit_unshipped: str | None = None
    clock: Clock = UNCHECKED
    disks: Sequence[DiskOutcome] = ()
    sent: bool = False
    stopped_by: Exception | None = None

    @property
    def short(self) -> list[Reason]:
        """The reasons for each disk that stays above its ceiling: by how much and why (R6)."""
        return [note for one in self.disks if one.short_bytes for note in one.notes()]

    def count(self, outcome: OutcomeName) -> int:
        """Return how many partitions had that outcome."""
        return sum(row.outcome == outcome for row in self.rows)

    @property
    def trimmed(self) -> Amount:
        """The amount that was trimmed (in a dry run: that would be)."""
        return total(
            Amount(row.records, row.size_bytes, row.unconsumed)
            for row in self.rows
            if row.outcome in ("trimmed", "would-trim")
        )


def report_as_json(report: TrimReport) -> dict[str, Any]:
    """Return the report without its rows, as JSON's own types (``kretain.trim/v1``)."""
    gone = report.trimmed
    return {
        "format": "kretain.trim/v1",
        "run": report.run,
        "cluster": {"id": report.cluster_id, "bootstrap": report.bootstrap},
        "interrupted": report.interrupted,
        "audit_problem": report.audit_problem,
        "audit_broken": report.audit_broken,
        "audit_unshipped": report.audit_unshipped,
        "clock": report.clock,
        "disks": [outcome_as_json(one) for one in report.disks],
        "totals": {
            "partitions": len(report.rows),
            **{name: report.count(name) for name in OUTCOMES},
            "records": gone.records,
            "bytes": gone.size_bytes,
        },
    }


def row_as_json(row: TrimRow) -> dict[str, Any]:
    """Return one partition's row as JSON's own types."""
    return {
        "topic": row.tp.topic,
        "partition": row.tp.partition,
        "outcome": row.outcome,
        "target": row.target,
        "log_start": row.log_start,
        "records": row.records,
        "bytes": row.size_bytes,
        "reasons": [{"code": reason.code, "text": reason.text} for reason in row.reasons],
    }
