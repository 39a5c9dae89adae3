"""A plan's rows: their columns, defined once for JSON, CSV and Parquet, and the rows in memory or as Parquet. Pure.

A new column needs an entry here, a field of :class:`~retention_cli.core.model.Decision`, and a line in docs/plan.md.
"""

from __future__ import annotations

import heapq
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from retention_cli.core.extras import arrow
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import Code, Decision, Reason

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
        """Yield the decisions as Arrow tables of :data:`COLUMNS`, each of at most so many rows."""
        for content in self._contents:
            with _opened(content) as file:
                for batch in file.iter_batches(rows):
                    yield arrow().Table.from_batches([batch])

    def having(self, actions: Collection[str], *, reasons: bool) -> Iterator[Decision]:
        """See :func:`having`."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        for table in self.tables():
            chosen = compute.is_in(table.column("action"), value_set=pa.array(list(actions)))
            if reasons:
                chosen = compute.and_(chosen, compute.greater(compute.list_value_length(table.column("reasons")), 0))
            yield from map(decision_of, table.filter(chosen).to_pylist())

    def largest(self, count: int) -> Iterator[Decision]:
        """Yield so many of each table's decisions, those that matter most: the others need not be decoded."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        for table in self.tables():
            order = compute.index_in(table.column("action"), value_set=pa.array(_ORDER))
            ranked = table.append_column("order", order)
            first = compute.sort_indices(ranked, [("order", "ascending"), ("records", "descending")])[:count]
            yield from map(decision_of, table.take(first).to_pylist())


def _opened(content: bytes) -> Any:
    return arrow("pyarrow.parquet").ParquetFile(arrow().BufferReader(content))


def tables_of(decisions: Iterable[Decision], rows: int = _ROWS_AT_A_TIME) -> Iterator[Any]:
    """Yield decisions as Arrow tables of :data:`COLUMNS`, each of at most so many rows."""
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
    if isinstance(decisions, StoredDecisions):
        return decisions.having(actions, reasons=reasons)
    return (one for one in decisions if one.action in actions and (one.reasons or not reasons))


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
