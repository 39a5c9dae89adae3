"""A plan's rows: in memory, or as Parquet, as tasks return them. Pure."""

from __future__ import annotations

import heapq
import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from retention_cli.core.codes import Code
from retention_cli.core.extras import arrow
from retention_cli.core.grouping import in_batches
from retention_cli.core.model import Decision
from retention_cli.plan.columns import COLUMNS, decision_of, schema

IN_MEMORY: Final = 50_000
"""At most this many decisions are held in memory: about 60 MB."""
_ROWS_AT_A_TIME: Final = 5_000
_ORDER: Final = ("trim", "hold", "keep", "skip")
"""The actions, those that matter most first."""


@dataclass(slots=True)
class TopicRows:
    """What a topic's decisions come to: how many there are, and what keeps how many from being trimmed further.

    ``records`` and ``size_bytes`` (None: unknown) are what would go. ``held`` counts :func:`held_back_by`.
    """

    topic: str
    actions: Counter[str] = field(default_factory=Counter)
    records: int = 0
    size_bytes: int | None = 0
    held: Counter[str] = field(default_factory=Counter)

    def add(self, one: Decision) -> None:
        """Add a decision."""
        self.actions[one.action] += 1
        self.held.update(held_back_by(one))
        if one.action == "trim":
            self.records += one.records
            known = self.size_bytes is not None and one.size_bytes is not None
            self.size_bytes = (self.size_bytes or 0) + (one.size_bytes or 0) if known else None


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
        """Yield the decisions as Arrow tables of :data:`~.columns.COLUMNS`, each of at most so many rows."""
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
    """Yield decisions as Arrow tables of :data:`~.columns.COLUMNS`, each of at most so many rows."""
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


def by_topic(decisions: Iterable[Decision]) -> Iterator[TopicRows]:
    """Yield what each topic's decisions come to; a topic's decisions are together."""
    for topic, rows in groupby(decisions, key=lambda one: one.topic):
        found = TopicRows(topic)
        for one in rows:
            found.add(one)
        yield found


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
