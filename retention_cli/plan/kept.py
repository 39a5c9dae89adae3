"""A plan's rows in a temporary file of columns, written once: for plans of millions of partitions.

What is counted, printed, saved and trimmed is all read from that file, some thousand rows at a time.
"""

from __future__ import annotations

import heapq
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, overload

from retention_cli.core.codes import Code
from retention_cli.core.extras import arrow
from retention_cli.core.model import Decision
from retention_cli.plan.columns import COLUMNS, NAMES, decision_of
from retention_cli.plan.parquet import ROWS_A_GROUP, schema
from retention_cli.plan.rows import ORDER, StoredDecisions, TopicRows, importance
from retention_cli.plan.value import Totals

IN_MEMORY: Final = 50_000
"""At most this many decisions are held in memory: about 60 MB."""
_AT_A_TIME: Final = 5_000
_ALL: Final = [one.name for one in COLUMNS]
_FIELDS: Final = tuple(Decision._fields.index(one.field) for one in COLUMNS)


class KeptRows:
    """Takes a plan's rows in order, as Arrow tables, and counts them. The file is deleted with the last reader of it.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kretain-plan-")
        self.path = Path(self._folder.name) / "rows.parquet"
        self.totals = Totals.of(())
        self._groups: list[frozenset[str]] = []

    @contextmanager
    def writing(self) -> Iterator[Callable[[Any], None]]:
        """Yield the function that takes a table: columns as in :data:`~.columns.COLUMNS`."""
        pa, columns = arrow(), schema(COLUMNS)
        waiting: list[Any] = []
        with arrow("pyarrow.parquet").ParquetWriter(self.path, columns, compression="lz4") as file:

            def flush() -> None:
                if waiting:
                    table = pa.concat_tables(waiting)
                    file.write_table(table, row_group_size=len(table))
                    self._groups.append(frozenset(table.column("action").unique().to_pylist()))
                    waiting.clear()

            def write(table: Any) -> None:
                self._count(table)
                waiting.append(table.select(_ALL).cast(columns))
                if sum(map(len, waiting)) >= ROWS_A_GROUP:
                    flush()

            yield write
            flush()

    def take(self, *contents: bytes) -> None:
        """Write the rows of others' files, in order.

        Raises:
            ArrowException: it is no such file.
        """
        pa = arrow()
        with self.writing() as write:
            for content in contents:
                with arrow("pyarrow.parquet").ParquetFile(pa.BufferReader(content)) as file:
                    for batch in file.iter_batches(ROWS_A_GROUP):
                        write(pa.Table.from_batches([batch]))

    def _count(self, table: Any) -> None:
        compute = arrow("pyarrow.compute")
        counts = dict.fromkeys(ORDER, 0)
        for one in table.column("action").value_counts().to_pylist():
            counts[one["values"]] = one["counts"]
        trims = table.filter(compute.equal(table.column("action"), "trim"))
        sizes = trims.column("bytes")
        self.totals += Totals(
            table.num_rows,
            **counts,
            records=total(trims.column("records")),
            size_bytes=None if sizes.null_count else total(sizes),
            unconsumed=total(trims.column("unconsumed")),
            size_exact=bool(trims.num_rows) and compute.all(trims.column("bytes_exact")).as_py(),
        )

    def tables(
        self, columns: Sequence[str] | None = None, actions: Collection[str] = ORDER, rows: int = _AT_A_TIME
    ) -> Iterator[Any]:
        """Yield the rows in order, or these columns of them, as tables of at most so many rows.

        Stretches of the file with none of the ``actions`` are left out; some rows of other actions remain.
        """
        pa = arrow()
        wanted = [number for number, one in enumerate(self._groups) if not one.isdisjoint(actions)]
        with arrow("pyarrow.parquet").ParquetFile(self.path) as file:
            for batch in file.iter_batches(rows, row_groups=wanted, columns=columns) if wanted else ():
                yield pa.Table.from_batches([batch])

    def losing(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield the partitions that would lose unread records: topic, number, log start and target (G2)."""
        compute = arrow("pyarrow.compute")
        names = ("topic", "partition", "log_start", "trim_to")
        for table in self.tables([*names, "action", "unconsumed"], ["trim"]):
            trims = compute.equal(table.column("action"), "trim")
            some = table.filter(compute.and_(trims, compute.greater(table.column("unconsumed"), 0)))
            yield from zip(*(some.column(name).to_pylist() for name in names), strict=True)

    def decisions(self, plans: int = 1) -> Sequence[Decision]:
        """Return the rows: more than this plan's share of :data:`IN_MEMORY` stay in the file, if there are several."""
        return KeptDecisions(self) if self.totals.partitions > IN_MEMORY // plans else tuple(KeptDecisions(self))


def decisions_table(decisions: Iterable[Decision]) -> Any:
    """Return decisions as a table of the plan's columns."""
    pa, columns = arrow(), schema(COLUMNS)
    fields = list(zip(*decisions, strict=True)) or [()] * len(Decision._fields)
    reasons = Decision._fields.index("reasons")
    fields[reasons] = tuple([{"code": one.code, "text": one.text} for one in some] for some in fields[reasons])
    arrays = [pa.array(fields[at], one.type) for at, one in zip(_FIELDS, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=columns)


def total(column: Any) -> int:
    """Return the sum of a column of numbers, without those that are null."""
    return sum(column.drop_null().to_pylist())  # Arrow's own passes 2⁶³ in silence


class KeptDecisions(StoredDecisions):
    """Decisions that stay in a file, read again on each iteration."""

    def __init__(self, kept: KeptRows) -> None:
        self.kept = kept

    def __len__(self) -> int:
        return self.kept.totals.partitions

    def __iter__(self) -> Iterator[Decision]:
        return (decision_of(row) for table in self.kept.tables() for row in table.to_pylist())

    def tables(self) -> Iterator[Any]:
        """Yield the decisions as tables of the columns that are saved."""
        return (table.select(NAMES) for table in self.kept.tables(NAMES, rows=ROWS_A_GROUP))

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the decisions as rows of the plan's JSON."""
        return (row for table in self.kept.tables(NAMES) for row in table.select(NAMES).to_pylist())

    def having(self, actions: Collection[str], *, reasons: bool) -> Iterator[Decision]:
        """Yield the decisions with one of these actions; with ``reasons`` only those that have any."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        for table in self.kept.tables(actions=actions):
            chosen = compute.is_in(table.column("action"), value_set=pa.array(list(actions)))
            if reasons:
                chosen = compute.and_(chosen, compute.greater(compute.list_value_length(table.column("reasons")), 0))
            for row in table.filter(chosen).to_pylist():
                yield decision_of(row)

    def most_important(self, count: int) -> list[Decision]:
        """Return the first decisions by :func:`~.rows.importance`."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        keys = [("order", "ascending"), ("records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
        found: list[Decision] = []
        for table in self.kept.tables(rows=ROWS_A_GROUP):
            order = compute.index_in(table.column("action"), value_set=pa.array(ORDER))
            first = compute.select_k_unstable(table.append_column("order", order), count, keys)
            found = heapq.nsmallest(count, [*found, *map(decision_of, table.take(first).to_pylist())], key=importance)
        return found

    def by_topic(self) -> Iterator[TopicRows]:
        """Yield what each topic's decisions come to, in the order of their names."""
        waiting: TopicRows | None = None
        for table in self.kept.tables(rows=ROWS_A_GROUP):
            for one in _topics_in(table):
                if waiting is not None and waiting.topic == one.topic:
                    waiting.take(one)
                else:
                    if waiting is not None:
                        yield waiting
                    waiting = one
        if waiting is not None:
            yield waiting

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | Sequence[Decision]:
        """Return one decision or a slice. Slow: reads every decision before it."""
        places = range(len(self))[index]
        if isinstance(places, int):
            return next(itertools.islice(self, places, None))
        wanted = set(places)
        found = {place: one for place, one in enumerate(self) if place in wanted}
        return [found[place] for place in places]


def _topics_in(table: Any) -> Iterator[TopicRows]:
    """Yield what the topics of a table come to, in the order of their names."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    known = compute.is_in(table.column("action"), value_set=pa.array(["trim", "keep"]))
    said = compute.greater(compute.list_value_length(table.column("reasons")), 0)
    plain = compute.and_not(known, compute.and_(said, compute.is_null(table.column("trim_to"))))
    found: dict[str, TopicRows] = {}
    some = table.filter(plain)
    some = some.append_column("held", _held_back_by(some))
    sums = [([], "count_all"), ("records", "sum"), ("bytes", "sum"), ("bytes", "count")]
    for row in some.group_by(["topic", "action", "held"], use_threads=False).aggregate(sums).to_pylist():
        here = found.setdefault(row["topic"], TopicRows(row["topic"]))
        unsized = row["bytes_count"] < row["count_all"]
        size = None if unsized else row["bytes_sum"]
        held = () if row["held"] is None else (row["held"].removeprefix("group:"),)
        here.add(row["action"], row["records_sum"], size, held, row["count_all"])
    for one in map(decision_of, table.filter(compute.invert(plain)).to_pylist()):
        found.setdefault(one.topic, TopicRows(one.topic)).add_row(one)
    yield from (found[topic] for topic in sorted(found))


def _held_back_by(some: Any) -> Any:
    """Return :func:`~.rows.held_back_by` of rows that trim, or are kept without a reason; null: nothing does."""
    compute = arrow("pyarrow.compute")

    def same(one: Any, other: Any) -> Any:
        return compute.fill_null(compute.equal(one, other), False)

    floor, by, limit = (some.column(name) for name in ("min_commit", "min_commit_by", "limited_by"))
    known = compute.and_not(compute.is_valid(floor), same(floor, some.column("high_watermark")))
    stands = compute.coalesce(some.column("trim_to"), some.column("log_start"))
    consumer = compute.if_else(compute.and_(known, same(floor, stands)), by, None)
    return compute.if_else(compute.and_not(compute.is_valid(limit), same(limit, Code.G2)), limit, consumer)
