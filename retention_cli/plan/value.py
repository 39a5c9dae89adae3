"""The plan: decisions with their totals, as a value, as JSON, and its rows in memory or as Parquet. Pure.

A plan is a list of requests (docs/plan.md, The plan). A trim decides again, and uses the smaller of the two offsets: a
plan can only narrow it. The rows' columns are defined once for JSON, CSV and Parquet: a new one needs an entry in
``COLUMNS``, a field of :class:`~retention_cli.core.model.Decision`, and a line in docs/plan.md.
"""

from __future__ import annotations

import heapq
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from retention_cli import __version__
from retention_cli.core.extras import arrow
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import Code, Decision, Reason
from retention_cli.core.signing import Signed
from retention_cli.core.units import timestamp
from retention_cli.policy.settings import TRIGGER_FLAGS

if TYPE_CHECKING:  # only plans with disks need it
    from retention_cli.disks.disk import DiskOutcome, Space

Kind = Literal["text", "int32", "int64", "bool", "reasons"]


class Column(NamedTuple):
    """One column: its name in plans, the decision's field, its kind, and whether it may be null.

    A column that is not ``saved`` is only passed between kretain's own processes, and in no saved or printed plan.
    """

    name: str
    field: str
    kind: Kind
    nullable: bool = True
    saved: bool = True


COLUMNS: Final = (
    Column("topic", "topic", "text", nullable=False),
    Column("topic_id", "topic_id", "text"),
    Column("partition", "partition", "int32", nullable=False),
    Column("leader_epoch", "leader_epoch", "int32"),
    Column("action", "action", "text", nullable=False),
    Column("log_start", "log_start", "int64"),
    Column("high_watermark", "high_watermark", "int64"),
    Column("last_stable_offset", "last_stable_offset", "int64"),
    Column("min_commit", "min_commit", "int64"),
    Column("min_commit_by", "min_commit_by", "text"),
    Column("trim_to", "trim_to", "int64"),
    Column("records", "records", "int64", nullable=False),
    Column("bytes", "size_bytes", "int64"),
    Column("unconsumed", "unconsumed", "int64", nullable=False),
    Column("rule", "rule", "text"),
    Column("limited_by", "limited_by", "text"),
    Column("reasons", "reasons", "reasons", nullable=False),
    Column("bytes_exact", "size_exact", "bool", saved=False),
)
"""The columns, in the order in which they are written."""

SAVED: Final = tuple(one for one in COLUMNS if one.saved)
NAMES: Final = tuple(one.name for one in SAVED)
"""The keys of a row in JSON, and the columns of CSV and Parquet."""
CLUSTER: Final = Column("cluster", "", "text", nullable=False)
"""The first column of a table that may contain the plans of a fleet."""

_PLAIN: Final = tuple(one for one in SAVED if one.kind != "reasons")
_plain_values: Final = attrgetter(*(one.field for one in _PLAIN))
_plain_names: Final = tuple(one.name for one in _PLAIN)


def row_as_json(decision: Decision) -> dict[str, Any]:
    """Return a decision as a row of the plan's JSON."""
    row = dict(zip(_plain_names, _plain_values(decision), strict=True))
    row["reasons"] = [{"code": reason.code, "text": reason.text} for reason in decision.reasons]
    return row


def decision_of(row: Mapping[str, Any]) -> Decision:
    """Return the decision in a row. Columns that are not saved may be missing."""
    values = {one.field: row[one.name] for one in COLUMNS if one.name in row or one.saved}
    values["reasons"] = tuple(Reason(one["code"], one["text"]) for one in row["reasons"] or ())
    values["size_exact"] = bool(values.get("size_exact"))
    return Decision(**values)


def schema(columns: Sequence[Column] = (CLUSTER, *SAVED), metadata: Mapping[str, str] | None = None) -> Any:
    """Return the ``pyarrow.Schema`` of the columns: offsets and counts int64, partitions and epochs int32.

    Raises:
        MissingPartError: pyarrow is not installed.
    """
    pa = arrow()
    reason = pa.struct([pa.field("code", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
    types = {
        "text": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "reasons": pa.list_(reason),
    }
    return pa.schema(
        [pa.field(one.name, types[one.kind], nullable=one.nullable) for one in columns], metadata=dict(metadata or {})
    )


IN_MEMORY: Final = 50_000
"""At most this many decisions are held in memory: about 60 MB."""
_ROWS_AT_A_TIME: Final = 5_000
_ORDER: Final = ("trim", "hold", "keep", "skip")
"""The actions, those that matter most first."""


class StoredDecisions(Sequence[Decision]):
    """Decisions as Parquet, of many partitions: a tenth of the size of those in memory. Each iteration decodes them.

    Args:
        contents: what :func:`as_parquet` returned, in the plan's order.

    Raises:
        ArrowException: a content is something else.
    """

    def __init__(self, contents: Iterable[bytes]) -> None:
        self._contents = tuple(contents)
        self._count: int = sum(_opened(one).metadata.num_rows for one in self._contents)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Decision]:
        return (decision_of(row) for table in self.tables() for row in table.to_pylist())

    def __getitem__(self, index: Any) -> Any:
        """Return one decision or a slice. Slow: decodes all of them."""
        return tuple(self)[index]

    def tables(self, rows: int = _ROWS_AT_A_TIME) -> Iterator[Any]:
        """Yield the decisions as Arrow tables of :data:`COLUMNS`, each of at most this many rows."""
        for content in self._contents:
            with _opened(content) as file:
                for batch in file.iter_batches(rows):
                    yield arrow().Table.from_batches([batch])

    def largest(self, count: int) -> Iterator[Decision]:
        """Yield this many of each table's decisions, those that matter most: the others need not be decoded."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        for table in self.tables():
            ranked = table.append_column("order", compute.index_in(table.column("action"), value_set=pa.array(_ORDER)))
            first = compute.sort_indices(ranked, [("order", "ascending"), ("records", "descending")])[:count]
            yield from map(decision_of, table.take(first).to_pylist())


def _opened(content: bytes) -> Any:
    return arrow("pyarrow.parquet").ParquetFile(arrow().BufferReader(content))


def tables_of(decisions: Iterable[Decision], rows: int = _ROWS_AT_A_TIME) -> Iterator[Any]:
    """Yield decisions as Arrow tables of :data:`COLUMNS`, each of at most this many rows."""
    if isinstance(decisions, StoredDecisions):
        yield from decisions.tables(rows)
        return
    pa, columns = arrow(), schema(COLUMNS)
    for some in in_batches(decisions, rows):
        values: dict[str, Sequence[Any]] = dict(zip(Decision._fields, zip(*some, strict=True), strict=True))
        values["reasons"] = [[{"code": one.code, "text": one.text} for one in why] for why in values["reasons"]]
        arrays = [pa.array(values[one.field], kind) for one, kind in zip(COLUMNS, columns.types, strict=True)]
        yield pa.Table.from_arrays(arrays, schema=columns)


def as_parquet(decisions: Iterable[Decision]) -> bytes:
    """Return decisions as Parquet, for :func:`decisions_in` in another process."""
    content = io.BytesIO()
    with arrow("pyarrow.parquet").ParquetWriter(content, schema(COLUMNS), compression="zstd") as file:
        for table in tables_of(decisions):
            file.write_table(table)
    return content.getvalue()


def decisions_in(contents: Iterable[bytes], plans: int = 1) -> Sequence[Decision]:
    """Return the decisions in Parquet. Of ``plans`` plans, each has its share of :data:`IN_MEMORY` in memory.

    Raises:
        ArrowException: it is not what :func:`as_parquet` returned.
    """
    stored = StoredDecisions(contents)
    return stored if len(stored) > IN_MEMORY // plans else tuple(stored)


def having(decisions: Iterable[Decision], *actions: str, reasons: bool = False) -> Iterator[Decision]:
    """Yield the decisions with one of these actions; with ``reasons`` only those that have any."""
    if not isinstance(decisions, StoredDecisions):
        yield from (one for one in decisions if one.action in actions and (one.reasons or not reasons))
        return
    pa, compute = arrow(), arrow("pyarrow.compute")
    for table in decisions.tables():
        chosen = compute.is_in(table.column("action"), value_set=pa.array(actions))
        if reasons:
            chosen = compute.and_(chosen, compute.greater(compute.list_value_length(table.column("reasons")), 0))
        yield from map(decision_of, table.filter(chosen).to_pylist())


def most_important(decisions: Iterable[Decision], count: int) -> list[Decision]:
    """Return the largest trims; if there are few, holds, too, then the rest. They are in the plan's order."""
    some = decisions.largest(count) if isinstance(decisions, StoredDecisions) else decisions
    return sorted(heapq.nsmallest(count, some, key=_importance), key=lambda one: one.tp)


def _importance(one: Decision) -> tuple[int, int, str, int]:
    """Return the sort key of what matters: the largest trims, then holds, then the rest; of equal ones the first."""
    return _ORDER.index(one.action), -one.records, one.topic, one.partition


def held_back_by(one: Decision) -> list[str]:
    """Return what keeps the rest of the partition from being trimmed: a consumer, a guard, or reasons' codes."""
    if one.action in ("hold", "skip"):
        return list(dict.fromkeys(reason.code for reason in one.reasons))
    if one.limited_by is not None and one.limited_by != Code.G2:
        return [one.limited_by]
    if one.min_commit is None or one.min_commit_by is None or one.min_commit == one.high_watermark:
        return []
    # A trim beyond the floor is forced: no consumer holds it back. A floor below the log start has a note of its own.
    at_floor = one.min_commit == (one.log_start if one.trim_to is None else one.trim_to)
    lost = one.trim_to is None and any(reason.code in (Code.F5, Code.G2) for reason in one.reasons)
    return [one.min_commit_by.removeprefix("group:")] if at_floor or lost else []


FORMAT: Final = "kretain.plan/v1"
FLEET_FORMAT: Final = "kretain.fleet-plan/v1"
NO_FILE: Final = "flags"
"""A plan's ``policy_source`` if there is no policy file."""
UNCHECKED: Final = "unchecked"
Clock = Literal["checked", "unchecked"]
"""Whether this machine's clock was compared with the brokers'. Only a trim does that, never a plan (G8)."""
Rules = Literal["file", "one-off"]
"""The triggers that a plan uses: the policy file's, or only the flags'."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over all rows; records, bytes and unconsumed over the rows that trim.

    ``size_bytes`` is None if the size of any trimmed row is unknown; ``size_exact``: all of those sizes are exact.
    """

    partitions: int
    trim: int
    keep: int
    hold: int
    skip: int
    records: int
    size_bytes: int | None
    unconsumed: int
    size_exact: bool = False

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Totals:
        """Count the decisions."""
        counts = {"trim": 0, "keep": 0, "hold": 0, "skip": 0}
        records = unconsumed = 0
        size: int | None = 0
        exact = True
        for one in decisions:
            counts[one.action] += 1
            if one.action == "trim":
                exact &= one.size_exact
                records += one.records
                unconsumed += one.unconsumed
                size = None if size is None or one.size_bytes is None else size + one.size_bytes
        return cls(
            sum(counts.values()),
            **counts,
            records=records,
            size_bytes=size,
            unconsumed=unconsumed,
            size_exact=exact and counts["trim"] > 0,
        )

    def __add__(self, other: Totals) -> Totals:
        mine, theirs = self.size_bytes, other.size_bytes
        return Totals(
            self.partitions + other.partitions,
            self.trim + other.trim,
            self.keep + other.keep,
            self.hold + other.hold,
            self.skip + other.skip,
            self.records + other.records,
            None if mine is None or theirs is None else mine + theirs,
            self.unconsumed + other.unconsumed,
            all(one.size_exact for one in (self, other) if one.trim) and self.trim + other.trim > 0,
        )


class TopicRows(NamedTuple):
    """The sums of a topic's decisions, and what holds how many of them back (:func:`held_back_by`)."""

    topic: str
    totals: Totals
    held: Counter[str]


def by_topic(decisions: Iterable[Decision]) -> Iterator[TopicRows]:
    """Yield the sums of each topic's decisions; a topic's decisions are together."""
    for topic, rows in groupby(decisions, key=lambda one: one.topic):
        some = list(rows)
        yield TopicRows(topic, Totals.of(some), Counter(by for one in some for by in held_back_by(one)))


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for one cluster, made at one time, sorted by topic and partition.

    ``flags`` are the one-off rules as given, ``topics`` the TOPIC arguments. ``unconsumed_by`` counts, per
    consumer, the records that would be trimmed before it has read them. ``refusals`` are why a trim would refuse the
    plan (G6), ``notes`` are other warnings. ``memory_since_ms`` is when the cluster's ledger was started (Unix ms),
    None if there was none yet. ``disks`` are R6's results if there are disk rules; ``space`` is how much brokers
    free after the plan, and when. ``counted`` are the totals, if the decisions were already counted. ``requester`` has
    signed the plan. ``saved`` is its file's content, None if it was made in this run.
    """

    created_at_ms: int
    cluster_id: str
    bootstrap: str
    policy_source: str
    policy_digest: str
    flags: Mapping[str, int | str]
    topics: Sequence[str]
    decisions: Sequence[Decision]
    unconsumed_by: Mapping[str, int] = field(default_factory=dict)
    refusals: Sequence[Reason] = ()
    notes: Sequence[Reason] = ()
    memory_since_ms: int | None = None
    memory: str = "local"
    disks: Sequence[DiskOutcome] = ()
    space: Space | None = None
    counted: Totals | None = None
    requester: Signed | None = None
    saved: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def totals(self) -> Totals:
        """Counts over all decisions."""
        return Totals.of(self.decisions) if self.counted is None else self.counted

    @property
    def rules(self) -> Rules:
        """The triggers that the plan uses. A flag for a trigger turns the file's triggers off (docs/policy.md)."""
        return "one-off" if any(flag in self.flags for flag in TRIGGER_FLAGS) else "file"


def totals_as_json(totals: Totals) -> dict[str, Any]:
    """Return the sums over decisions as JSON's own types."""
    return {
        "partitions": totals.partitions,
        "trim": totals.trim,
        "keep": totals.keep,
        "hold": totals.hold,
        "skip": totals.skip,
        "records": totals.records,
        "bytes": totals.size_bytes,
        "bytes_exact": totals.size_exact,
        "unconsumed": totals.unconsumed,
    }


def head_as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan's JSON without its rows."""
    totals = plan.totals
    return {
        "format": FORMAT,
        "kretain": __version__,
        "created_at": timestamp(plan.created_at_ms),
        "cluster": {"id": plan.cluster_id, "bootstrap": plan.bootstrap},
        "policy": {
            "source": plan.policy_source,
            "digest": plan.policy_digest,
            "rules": plan.rules,
            "flags": dict(plan.flags),
            "topics": list(plan.topics),
        },
        **({} if plan.requester is None else {"requester": asdict(plan.requester)}),
        "clock": UNCHECKED,
        "memory": {
            "state": plan.memory,
            "since": None if plan.memory_since_ms is None else timestamp(plan.memory_since_ms),
        },
        "has_changes": totals.trim > 0,
        "totals": totals_as_json(totals),
        **_disks_as_json(plan),
        "unconsumed_by": dict(sorted(plan.unconsumed_by.items())),
        "refusals": [{"code": reason.code, "text": reason.text} for reason in plan.refusals],
        "notes": [{"code": reason.code, "text": reason.text} for reason in plan.notes],
    }


def _disks_as_json(plan: Plan) -> dict[str, Any]:
    if not plan.disks and plan.space is None:
        return {"disks": [], "space": None}
    from retention_cli.disks.disk import outcome_as_json

    return {
        "disks": [outcome_as_json(one) for one in plan.disks],
        "space": None if plan.space is None else asdict(plan.space),
    }


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the complete plan as JSON's own types."""
    return {**head_as_json(plan), "partitions": list(map(row_as_json, plan.decisions))}


def json_lines(head: Mapping[str, Any], key: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of a JSON object whose ``key`` is a list, with one row per line: fast, and easy to diff."""
    text = json.dumps(head, ensure_ascii=False, indent=1)
    yield text[: text.rindex("\n")] + f',\n "{key}": ['
    first = True
    for row in rows:
        yield ("\n  " if first else ",\n  ") + json.dumps(row, ensure_ascii=False)
        first = False
    yield "]\n}\n" if first else "\n ]\n}\n"


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the plan's JSON in pieces, one partition per line: what ``--out`` saves and ``-o json`` prints."""
    return json_lines(head_as_json(plan), "partitions", map(row_as_json, plan.decisions))


def plan_text(plan: Plan) -> str:
    """Return the plan's JSON as text."""
    return "".join(plan_lines(plan))


def delete_records_json(plan: Plan) -> dict[str, Any]:
    """Return the content of an ``--offset-json-file`` for kafka-delete-records.sh."""
    return {
        "partitions": [
            {"topic": one.topic, "partition": one.partition, "offset": one.trim_to}
            for one in having(plan.decisions, "trim")
        ],
        "version": 1,
    }
