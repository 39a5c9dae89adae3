"""A plan read back from a file, with everything in it doubted (DESIGN.md, ``trim --plan``)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from retention_cli.model import Decision, Reason, TopicPartition
from retention_cli.plan import FORMAT, Plan

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_Offset = Annotated[int, Field(ge=0, lt=2**63)]
_Count = Annotated[int, Field(ge=0)]


class SavedPlanError(Exception):
    """The file is no plan that can be carried out."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Reason(_Strict):
    code: str
    text: str


class _Row(_Strict):
    topic: Annotated[str, Field(min_length=1)]
    topic_id: str | None
    partition: Annotated[int, Field(ge=0, lt=2**31)]
    action: Literal["trim", "keep", "hold", "skip"]
    log_start: _Offset | None
    high_watermark: _Offset | None
    last_stable_offset: _Offset | None
    min_commit: _Offset | None
    min_commit_by: str | None
    trim_to: _Offset | None
    records: _Count
    bytes: _Count | None
    unconsumed: _Count
    rule: Literal["consumed", "event-time", "min-timestamp", "forced-age", "size", "disk-usage"] | None
    limited_by: Literal["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"] | None
    reasons: list[_Reason]

    @model_validator(mode="after")
    def _possible(self) -> _Row:
        start, end, target = self.log_start, self.high_watermark, self.trim_to
        if start is not None and end is not None and start > end:
            raise ValueError(f"log_start {start} lies beyond high_watermark {end}")
        if self.action == "trim":
            if target is None or start is None or end is None or self.topic_id is None:
                raise ValueError("a row that trims needs topic_id, log_start, high_watermark and trim_to")
            if not start <= target <= end:
                raise ValueError(f"trim_to {target} lies outside of {start} to {end}")
        return self


class _Cluster(_Strict):
    id: Annotated[str, Field(min_length=1)]
    bootstrap: str


class _Policy(_Strict):
    source: str
    digest: str
    flags: dict[str, int | str] = Field(default_factory=dict)
    topics: list[str] = Field(default_factory=list)


class _File(_Strict):
    format: str
    created_at: str
    cluster: _Cluster
    policy: _Policy
    partitions: list[_Row]


def read_plan(path: Path) -> Plan:
    """Read a saved plan.

    Raises:
        SavedPlanError: unreadable, another format, duplicate rows or impossible numbers; the text names the place.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SavedPlanError(f"{path} cannot be read: {error.strerror}") from None
    try:
        saved = _File.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise SavedPlanError(
            f"{path} is not a plan that can be carried out: {place + ': ' if place else ''}{message}"
        ) from None
    if saved.format != FORMAT:
        raise SavedPlanError(f"{path} has format {saved.format!r}; this kretain carries out {FORMAT}")
    try:
        created = dt.datetime.fromisoformat(saved.created_at)
        if created.tzinfo is None:
            raise SavedPlanError(f"{path}: created_at {saved.created_at!r} has no time zone")
        created = created.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise SavedPlanError(f"{path}: created_at {saved.created_at!r} is not a time") from None
    seen: set[TopicPartition] = set()
    for row in saved.partitions:
        tp = TopicPartition(row.topic, row.partition)
        if tp in seen:
            raise SavedPlanError(f"{path}: {tp} has more than one row")
        seen.add(tp)
    return Plan(
        created_at_ms=(created - _EPOCH) // dt.timedelta(milliseconds=1),
        cluster_id=saved.cluster.id,
        bootstrap=saved.cluster.bootstrap,
        policy_source=saved.policy.source,
        policy_digest=saved.policy.digest,
        flags=saved.policy.flags,
        topics=tuple(saved.policy.topics),
        decisions=tuple(sorted((_decision(row) for row in saved.partitions), key=lambda one: one.tp)),
    )


def _decision(row: _Row) -> Decision:
    return Decision(
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        action=row.action,
        log_start=row.log_start,
        high_watermark=row.high_watermark,
        last_stable_offset=row.last_stable_offset,
        min_commit=row.min_commit,
        min_commit_by=row.min_commit_by,
        trim_to=row.trim_to,
        records=row.records,
        size_bytes=row.bytes,
        unconsumed=row.unconsumed,
        rule=row.rule,
        limited_by=row.limited_by,
        reasons=tuple(Reason(one.code, one.text) for one in row.reasons),
    )
