"""What became of a trim: a row per partition, ``kretain.trim/v1``, and who is told meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from retention_cli.core.model import Reason, TopicPartition
from retention_cli.decide.guards.limits import Amount, total
from retention_cli.disks.solve.outcome import DiskOutcome, outcome_as_json
from retention_cli.plan.target import Target
from retention_cli.plan.value import UNCHECKED, Clock

OutcomeName = Literal["trimmed", "unchanged", "held", "failed", "unverified", "would-trim"]


@dataclass(frozen=True, slots=True)
class TrimRow:
    """What became of one partition. ``target`` is the offset asked for, ``log_start`` as read back."""

    topic: str
    partition: int
    outcome: OutcomeName
    target: int | None
    log_start: int | None
    reasons: tuple[Reason, ...] = ()
    records: int = 0
    size_bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class TrimReport:
    """What became of every partition of a plan, in its order, and how long rechecks and deletes (read back) took.

    ``clock`` says whether our clock was compared with the brokers' (G8). ``disks`` are what R6 came to at
    the last recheck. ``audit_problem`` says why the audit log lacks some of it: the rows are all there is then.
    ``audit_broken`` is where the chain of the audit log was found broken before, None where it was whole. ``sent``
    says that a request to delete went out, ``stopped_by`` what ended the trim behind it and is no broker's doing.
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
    clock: Clock = UNCHECKED
    disks: Sequence[DiskOutcome] = ()
    sent: bool = False
    stopped_by: Exception | None = None

    @property
    def short(self) -> list[Reason]:
        """Return, for each disk that stays above its ceiling, by how much and what stands in the way (R6)."""
        return [note for one in self.disks if one.short_bytes for note in one.notes()]

    def count(self, outcome: OutcomeName) -> int:
        """Return how many partitions came to that."""
        return sum(row.outcome == outcome for row in self.rows)

    @property
    def trimmed(self) -> Amount:
        """Return what is gone (in a dry run: what would go)."""
        return total(
            Amount(row.records, row.size_bytes) for row in self.rows if row.outcome in ("trimmed", "would-trim")
        )


class Journal(Protocol):
    """Takes what is about to happen and what came of it. Each call returns when it is on the disk."""

    def batch(self, number: int, targets: Mapping[TopicPartition, Target]) -> None:
        """Announce a batch, before its requests go out."""
        ...

    def result(self, number: int, rows: Collection[TrimRow]) -> None:
        """Say what came of a batch."""
        ...


def row_of(
    tp: TopicPartition,
    outcome: OutcomeName,
    target: int | None = None,
    log_start: int | None = None,
    reasons: tuple[Reason, ...] = (),
    records: int = 0,
    size_bytes: int | None = 0,
) -> TrimRow:
    """Return a row; what is left out is nothing."""
    return TrimRow(tp.topic, tp.partition, outcome, target, log_start, reasons, records, size_bytes)


def report_as_json(report: TrimReport) -> dict[str, Any]:
    """Return the report without its rows: ``kretain.trim/v1``."""
    names: tuple[OutcomeName, ...] = ("trimmed", "unchanged", "held", "failed", "unverified", "would-trim")
    gone = report.trimmed
    return {
        "format": "kretain.trim/v1",
        "run": report.run,
        "cluster": {"id": report.cluster_id, "bootstrap": report.bootstrap},
        "interrupted": report.interrupted,
        "audit_problem": report.audit_problem,
        "audit_broken": report.audit_broken,
        "clock": report.clock,
        "disks": [outcome_as_json(one) for one in report.disks],
        "totals": {
            "partitions": len(report.rows),
            **{name: report.count(name) for name in names},
            "records": gone.records,
            "bytes": gone.size_bytes,
        },
    }


def row_as_json(row: TrimRow) -> dict[str, Any]:
    """Return one partition of the report as JSON's own types."""
    return {
        "topic": row.topic,
        "partition": row.partition,
        "outcome": row.outcome,
        "target": row.target,
        "log_start": row.log_start,
        "records": row.records,
        "bytes": row.size_bytes,
        "reasons": [{"code": reason.code, "text": reason.text} for reason in row.reasons],
    }
