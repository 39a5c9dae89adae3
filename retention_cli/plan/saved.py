"""Read a plan from a file, and validate everything in it (docs/plan.md, Saved plans); hand one to another process.

Over Spark a plan is bytes, and kretain unpickles none of them: its rows are Parquet
(:func:`retention_cli.plan.value.as_parquet`), the rest is JSON that is checked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from retention_cli.core.file_problems import json_problem, schema_problem
from retention_cli.core.files import PLAN_MAX_BYTES, read_file
from retention_cli.core.model import Decision, RuleName, TopicPartition
from retention_cli.core.printable import printable
from retention_cli.core.signing import Signed
from retention_cli.disks.disk import DiskOutcome, Space
from retention_cli.plan.value import Plan, decision_of, decisions_in

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_Offset = Annotated[int, Field(ge=0, lt=2**63)]
_Count = Annotated[int, Field(ge=0)]
M = TypeVar("M", bound=BaseModel)


class SavedPlanError(Exception):
    """The file is not an executable plan."""


class StrictModel(BaseModel):
    """A model that accepts only values of exactly the declared types, and ignores unknown (newer) keys."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Reason(StrictModel):
    code: str
    text: str


class RowModel(StrictModel):
    """One partition of a saved plan."""

    topic: Annotated[str, Field(min_length=1)]
    topic_id: str | None
    partition: Annotated[int, Field(ge=0, lt=2**31)]
    leader_epoch: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
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
    rule: RuleName | None
    limited_by: Literal["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"] | None
    reasons: list[_Reason]

    @model_validator(mode="after")
    def _possible(self) -> RowModel:
        start, end, target = self.log_start, self.high_watermark, self.trim_to
        if start is not None and end is not None and start > end:
            raise ValueError(f"log_start {start} is beyond high_watermark {end}")
        if self.action == "trim":
            if target is None or start is None or end is None or self.topic_id is None:
                raise ValueError("a row that trims needs topic_id, log_start, high_watermark and trim_to")
            if not start <= target <= end:
                raise ValueError(f"trim_to {target} is outside {start} to {end}")
        return self


class _Cluster(StrictModel):
    id: Annotated[str, Field(min_length=1)]
    bootstrap: str


class _Policy(StrictModel):
    source: str
    digest: str
    flags: dict[str, int | str] = Field(default_factory=dict)
    topics: list[str] = Field(default_factory=list)


class _Requester(StrictModel):
    key: str
    signature: str


class HeadModel(StrictModel):
    """A saved plan without its rows. ``_content`` is its complete content."""

    format: str
    created_at: str
    cluster: _Cluster
    policy: _Policy
    requester: _Requester | None = None
    _content: Mapping[str, Any] = PrivateAttr(default_factory=dict)


H = TypeVar("H", bound=HeadModel)


class PlanModel(HeadModel):
    """A saved plan."""

    partitions: list[RowModel]


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        SavedPlanError: it can't be read.
    """
    try:
        return read_file(path, PLAN_MAX_BYTES)
    except OSError as error:
        raise SavedPlanError(f"{path} cannot be read: {error.strerror}") from None


def json_in(raw: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object in a file's bytes.

    Raises:
        SavedPlanError: it is not a JSON object.
    """
    try:
        found = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        line, problem = json_problem(error)
        place = path if line is None else f"{path}:{line}"
        raise SavedPlanError(f"{place} is not a valid plan file: {problem}") from None
    if not isinstance(found, dict):
        raise SavedPlanError(f"{path} is not a valid plan file: it is not a JSON object")
    return found


def checked(model: type[M], content: object, path: Path, place: str = "") -> M:
    """Return ``content`` as an instance of the model.

    Raises:
        SavedPlanError: it does not fit the model; the text names the first error and its place.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(printable(str(part)) for part in (*([place] if place else []), *first["loc"]))
        message = schema_problem(first)
        raise SavedPlanError(f"{path} is not a valid plan file: {where + ': ' if where else ''}{message}") from None


class Entry(NamedTuple):
    """A plan in a file, not yet validated: its cluster's name in a fleet, its place in the JSON, and its content."""

    name: str
    place: str
    content: Mapping[str, Any]


def heads_of(model: type[H], entries: Iterable[Entry], path: Path) -> Iterator[tuple[str, H]]:
    """Yield each cluster's name, and its entry as an instance of the model.

    Raises:
        SavedPlanError: an entry does not fit, or two are of one cluster.
    """
    names: dict[str, str] = {}
    for name, place, content in entries:
        head = checked(model, content, path, place)
        head._content = {key: value for key, value in content.items() if key != "partitions"}  # noqa: SLF001
        if (other := names.setdefault(head.cluster.id, name)) != name:
            raise SavedPlanError(f"{path}: {other} and {name} are one cluster, {head.cluster.id}")
        yield name, head


Plans = dict[str, Callable[[], Plan]]
"""Returns each cluster's plan, by the cluster's name."""


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A plan file in JSON. ``head`` is all of its content."""

    path: Path
    head: Mapping[str, Any]

    def plans(self, entries: Iterable[Entry]) -> Plans:
        """Return the plans, validated.

        Raises:
            SavedPlanError: one of them can't be executed.
        """
        heads = heads_of(PlanModel, entries, self.path)
        return {name: partial(replace, plan_with(one, one.partitions, self.path)) for name, one in heads}


def plan_with(head: HeadModel, rows: Iterable[RowModel], path: Path) -> Plan:
    """Return the plan of a validated head and validated rows, in any order.

    Raises:
        SavedPlanError: ``created_at`` is invalid, or a partition has more than one row.
    """
    try:
        created = dt.datetime.fromisoformat(head.created_at)
        if created.tzinfo is None:
            raise SavedPlanError(f"{path}: created_at {head.created_at!r} has no time zone")
        created = created.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise SavedPlanError(f"{path}: created_at {head.created_at!r} is not a time") from None
    decisions: dict[TopicPartition, Decision] = {}
    for row in rows:
        tp = TopicPartition(row.topic, row.partition)
        if tp in decisions:
            raise SavedPlanError(f"{path}: {tp} has more than one row")
        decisions[tp] = decision_of({**vars(row), "reasons": [vars(one) for one in row.reasons]})
    return Plan(
        created_at_ms=(created - _EPOCH) // dt.timedelta(milliseconds=1),
        cluster_id=head.cluster.id,
        bootstrap=head.cluster.bootstrap,
        policy_source=head.policy.source,
        policy_digest=head.policy.digest,
        flags=head.policy.flags,
        topics=tuple(head.policy.topics),
        decisions=tuple(decisions[tp] for tp in sorted(decisions)),
        requester=None if head.requester is None else Signed(head.requester.key, head.requester.signature),
        saved=head._content,  # noqa: SLF001
    )


def head_of(plan: Plan) -> str:
    """Return a plan without its rows. JSON has no keys that are partitions: each disk's replicas are separate."""
    replicas = [[(*tp, size_bytes) for tp, size_bytes in one.disk.replicas.items()] for one in plan.disks]
    disks = [replace(one, disk=replace(one.disk, replicas={})) for one in plan.disks]
    return _heads().dump_json((replace(plan, decisions=(), counted=plan.totals, disks=disks), replicas)).decode()


def plan_of_parts(head: str, rows: bytes, bootstrap: str, plans: int) -> Plan:
    """Return the plan of a cluster that is reached at ``bootstrap``. It is one of ``plans`` plans.

    Raises:
        ValueError: it is no plan, or rows are missing.
        ArrowException: the rows can't be read.
    """
    (plan, replicas), decisions = _heads().validate_json(head), decisions_in([rows], plans)
    if plan.totals.partitions != len(decisions):
        raise ValueError("rows are missing")
    held = [{TopicPartition(topic, number): size for topic, number, size in sizes} for sizes in replicas]
    disks = [replace(one, disk=replace(one.disk, replicas=its)) for one, its in zip(plan.disks, held, strict=True)]
    return replace(plan, bootstrap=bootstrap, topics=tuple(plan.topics), decisions=decisions, disks=disks)


_Head = tuple[Plan, Sequence[Sequence[tuple[str, int, int]]]]
"""A plan without its rows, and the replicas of each of its disks."""


@cache
def _heads() -> TypeAdapter[_Head]:
    heads: TypeAdapter[_Head] = TypeAdapter(_Head)
    heads.rebuild(_types_namespace={"DiskOutcome": DiskOutcome, "Space": Space})
    return heads
