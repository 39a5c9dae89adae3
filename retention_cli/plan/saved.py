"""Open saved plans, JSON or Parquet, and validate everything in them (docs/plan.md); hand one to another process.

In Parquet, rows are typed columns, for millions of partitions. There are two forms, read alike. A file: rows sorted by
cluster, topic and partition, and the plan's head (its JSON without the rows) as JSON in the file's key-value metadata,
under ``kretain.plan``. A folder, as written by Spark: any number of ``*.parquet`` parts with rows in any order, and the
head in ``_plan.json``, which is written last. A row has the JSON's keys plus ``cluster``, the cluster's id, so that one
file or folder can contain the plans of a fleet: its head is then a ``kretain.fleet-plan/v1`` whose ``clusters`` are
heads. Rows are counted: a head has its cluster's number of rows.

Over Spark a plan is bytes, and kretain unpickles none of them: its rows are Parquet
(:func:`retention_cli.plan.value.as_parquet`), the rest is JSON that is checked.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import json_problem, parquet_problem, schema_problem
from retention_cli.core.files import PLAN_MAX_BYTES, open_regular, read_file
from retention_cli.core.model import Decision, RuleName, TopicPartition
from retention_cli.core.printable import printable
from retention_cli.core.signing import Signed
from retention_cli.disks.disk import DiskOutcome, Space
from retention_cli.plan.value import (
    CLUSTER,
    FLEET_FORMAT,
    FORMAT,
    NAMES,
    SAVED,
    Plan,
    decision_of,
    decisions_in,
    head_as_json,
    schema,
    tables_of,
)

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
    """A saved plan without its rows."""

    format: str
    created_at: str
    cluster: _Cluster
    policy: _Policy
    requester: _Requester | None = None


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
        raise SavedPlanError(
            f"{path if line is None else f'{path}:{line}'} is not a valid plan file: {problem}"
        ) from None
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
        raise SavedPlanError(
            f"{path} is not a valid plan file: {where + ': ' if where else ''}{schema_problem(first)}"
        ) from None


class Entry(NamedTuple):
    """A plan in a file, not yet validated: its cluster's name in a fleet, its place in the JSON, and its content."""

    name: str
    place: str
    content: Mapping[str, Any]


def heads_of(model: type[H], entries: Iterable[Entry], path: Path) -> Iterator[tuple[str, H, Mapping[str, Any]]]:
    """Yield each cluster's name, its entry as an instance of the model, and the entry's content without the rows.

    Raises:
        SavedPlanError: an entry does not fit, or two are of one cluster.
    """
    names: dict[str, str] = {}
    for name, place, content in entries:
        head = checked(model, content, path, place)
        if (other := names.setdefault(head.cluster.id, name)) != name:
            raise SavedPlanError(f"{path}: {other} and {name} are one cluster, {head.cluster.id}")
        yield name, head, {key: value for key, value in content.items() if key != "partitions"}


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
        return {name: partial(replace, plan_with(one, saved, one.partitions, self.path)) for name, one, saved in heads}


def plan_with(head: HeadModel, saved: Mapping[str, Any], rows: Iterable[RowModel], path: Path) -> Plan:
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
        saved=saved,
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


KEY: Final = "kretain.plan"
"""The key of the head in a file's metadata."""
HEAD_FILE: Final = "_plan.json"
"""The head's file in a folder. It is written last: a folder without it is incomplete."""
ROWS_A_GROUP: Final = 20_000
"""The number of rows in a row group, and so the most that are held in memory."""

_COLUMNS: Final = (CLUSTER, *SAVED)


class _Totals(StrictModel):
    partitions: Annotated[int, Field(ge=0)]


class _CountedHead(HeadModel):
    totals: _Totals


def write_rows(path: Path, head: Mapping[str, Any], plans: Iterable[tuple[str, Sequence[Decision]]]) -> None:
    """Write a plan's file; ``plans`` are (cluster id, decisions), sorted.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """
    columns = schema(metadata={KEY: json.dumps(head, ensure_ascii=False)})
    parquet = arrow("pyarrow.parquet")
    with parquet.ParquetWriter(path, columns, compression="zstd", write_page_checksum=True) as file:
        for cluster, decisions in plans:
            for table in tables_of(decisions, ROWS_A_GROUP):
                named = table.select(NAMES).add_column(0, CLUSTER.name, arrow().repeat(cluster, len(table)))
                file.write_table(named.cast(columns))


def write_plan(path: Path, plan: Plan) -> None:
    """Write one cluster's plan; see :func:`write_rows`."""
    write_rows(path, head_as_json(plan), [(plan.cluster_id, plan.decisions)])


class ParquetPlans:
    """An open plan file or folder: its head as JSON, and its rows, which are not kept in memory.

    Raises:
        SavedPlanError: it is missing, incomplete, or lacks columns.
        MissingPartError: pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._holding: dict[tuple[str, Path], dict[int, None]] = {}
        self._parquet = arrow("pyarrow.parquet")
        if path.is_dir():
            self._parts = self._parts_of_folder()
            self.head = json_in(read_bytes(path / HEAD_FILE), path / HEAD_FILE)
        else:
            self._parts = [path]
            with self._opened(path) as file:
                raw = (file.metadata.metadata or {}).get(KEY.encode())
            if raw is None:
                raise SavedPlanError(f"{path} is not a plan: its metadata has no {KEY}")
            self.head = json_in(raw, path)
        for part in self._parts:
            with self._opened(part) as file:
                _check_columns(file.schema_arrow, part)

    def plans(self, entries: Iterable[Entry]) -> Plans:
        """Return the plans. Heads and counts are checked here, rows each time that a plan is read.

        Raises:
            SavedPlanError: one of them can't be executed.
        """
        heads = list(heads_of(_CountedHead, entries, self.path))
        self._check_counts({head.cluster.id: head.totals.partitions for _name, head, _saved in heads})
        return {name: partial(self._plan, head, saved) for name, head, saved in heads}

    def _plan(self, head: _CountedHead, saved: Mapping[str, Any]) -> Plan:
        return plan_with(head, saved, self._rows(head.cluster.id, head.totals.partitions), self.path)

    def _check_counts(self, wanted: Mapping[str, int]) -> None:
        """Check that each cluster has the number of rows in its head, and that no other cluster has rows."""
        found: dict[str, int] = {}
        for part in self._parts:
            with self._opened(part) as file:
                for group in range(file.num_row_groups):
                    for batch in file.iter_batches(ROWS_A_GROUP, row_groups=[group], columns=["cluster"]):
                        for one in batch.column("cluster").cast("string").value_counts().to_pylist():
                            found[one["values"]] = found.get(one["values"], 0) + one["counts"]
                            self._holding.setdefault((one["values"], part), {})[group] = None
        for cluster in found:
            if cluster not in wanted:
                raise SavedPlanError(f"{self.path} has rows of cluster {cluster}, which its head does not name")
        for cluster, rows in wanted.items():
            self._check_count(cluster, found.get(cluster, 0), rows)

    def _check_count(self, cluster: str, found: int, wanted: int) -> None:
        if found != wanted:
            raise SavedPlanError(
                f"{self.path} is incomplete: cluster {cluster} has {found:,} rows, its head says {wanted:,}"
            )

    def _rows(self, cluster: str, wanted: int) -> Iterator[RowModel]:
        """Yield one cluster's rows, validated and counted, in file order; ``_check_counts`` must have been called."""
        compute = arrow("pyarrow.compute")
        found = 0
        for part in self._parts:
            with self._opened(part) as file:
                # Not by the file's statistics: pyarrow aborts the process on some that are damaged.
                groups = self._holding.get((cluster, part), ())
                for batch in file.iter_batches(ROWS_A_GROUP, row_groups=list(groups)) if groups else ():
                    theirs = batch.filter(compute.equal(batch.column("cluster").cast("string"), cluster))
                    found += theirs.num_rows
                    for row in theirs.to_pylist():
                        yield checked(RowModel, row, part, f"{row['topic']}-{row['partition']}")
        self._check_count(cluster, found, wanted)

    def _parts_of_folder(self) -> list[Path]:
        if not (self.path / HEAD_FILE).exists():
            raise SavedPlanError(f"{self.path} is not a complete plan: it has no {HEAD_FILE}, which is written last")
        found = sorted(self.path.iterdir())
        if any(one.name == "_temporary" for one in found):
            raise SavedPlanError(
                f"{self.path} is not complete: another process is still writing it (_temporary exists)"
            )
        return [one for one in found if one.suffix == ".parquet" and not one.name.startswith(("_", "."))]

    @contextlib.contextmanager
    def _opened(self, part: Path) -> Iterator[Any]:
        """Open a part; raise errors in its bytes as a SavedPlanError with a one-line text."""
        try:
            with (
                open_regular(part) as opened,
                self._parquet.ParquetFile(opened, page_checksum_verification=True) as file,
            ):
                yield file
        except FileNotFoundError:
            raise SavedPlanError(f"{part} cannot be read: No such file or directory") from None
        except (OSError, arrow().ArrowException, ValueError, MemoryError) as error:
            raise SavedPlanError(f"{part} is not a complete Parquet file: {parquet_problem(error)}") from None


def _check_columns(found: Any, part: Path) -> None:
    types = arrow().types
    for name, _, kind_of, *_ in _COLUMNS:
        if found.get_field_index(name) < 0:
            raise SavedPlanError(f"{part} is not a plan: column {name} is missing or duplicated")
        kind = found.field(name).type
        plain = kind.value_type if types.is_dictionary(kind) else kind
        if kind_of == "text":
            good = types.is_string(plain) or types.is_large_string(plain) or types.is_null(plain)
        elif kind_of in ("int32", "int64"):
            good = types.is_integer(plain) or types.is_null(plain)
        else:
            good = types.is_list(kind) or types.is_large_list(kind)
        if not good:
            raise SavedPlanError(f"{part} is not a plan: column {name} is {kind}, not as {KEY} says")


PlanFile = JsonFile | ParquetPlans


def open_plans(path: Path) -> PlanFile:
    """Open a plan file: its head, and what reads its plans.

    Raises:
        SavedPlanError: it is unreadable, or not complete.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    is_parquet = path.suffix == ".parquet" or path.is_dir()  # a folder is what Spark writes
    return ParquetPlans(path) if is_parquet else JsonFile(path, json_in(read_bytes(path), path))


def read_plan(path: Path) -> Plan:
    """Read a saved plan of one cluster, JSON or Parquet.

    Raises:
        SavedPlanError: it is unreadable or of another format, or has duplicate rows or impossible numbers; the text
            names the place.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    return plan_in(open_plans(path))


def not_a_plan(path: Path, found: object, *formats: str) -> SavedPlanError:
    """Return the error for a file in another format (None: in none) than these."""
    if found is None:
        return SavedPlanError(f'{path} is not a saved plan: it has no "format" (expected {formats[0]})')
    return SavedPlanError(f"{path} has format {found!r}; this kretain carries out {' and '.join(formats)}")


def plan_in(file: PlanFile) -> Plan:
    """Return the plan of one cluster in an open file.

    Raises:
        SavedPlanError: as :func:`read_plan`.
    """
    if (found := file.head.get("format")) == FLEET_FORMAT:
        raise SavedPlanError(
            f"{file.path} is the plan of a fleet: also give --fleet FILE, and --cluster NAME for one cluster"
        )
    if found != FORMAT:
        raise not_a_plan(file.path, found, FORMAT)
    return file.plans([Entry("", "", file.head)])[""]()
