"""Open saved plans; those in Parquet have the rows of the JSON plan as typed columns, for millions of partitions.

There are two forms, read alike. A file: rows sorted by cluster, topic and partition, and the plan's head (its JSON
without the rows) as JSON in the file's key-value metadata, under ``kretain.plan``. A folder, as written by Spark: any
number of ``*.parquet`` parts with rows in any order, and the head in ``_plan.json``, which is written last.

A row has the JSON's keys plus ``cluster``, the cluster's id, so that one file or folder can contain the plans of a
fleet: its head is then a ``kretain.fleet-plan/v1`` whose ``clusters`` are heads. Everything read is validated as for
JSON (:mod:`retention_cli.plan.saved`), and rows are counted: a head has its cluster's number of rows.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem
from retention_cli.core.files import open_regular
from retention_cli.core.model import Decision
from retention_cli.plan.saved import (
    Entry,
    HeadModel,
    JsonFile,
    Plans,
    RowModel,
    SavedPlanError,
    StrictModel,
    checked,
    heads_of,
    json_in,
    plan_with,
    read_bytes,
)
from retention_cli.plan.value import (
    CLUSTER,
    FLEET_FORMAT,
    FORMAT,
    NAMES,
    SAVED,
    Plan,
    head_as_json,
    schema,
    tables_of,
)

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
                names = arrow().repeat(cluster, len(table))
                file.write_table(table.select(NAMES).add_column(0, CLUSTER.name, names).cast(columns))


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
        heads = dict(heads_of(_CountedHead, entries, self.path))
        self._check_counts({head.cluster.id: head.totals.partitions for head in heads.values()})
        return {name: partial(self._plan, head) for name, head in heads.items()}

    def _plan(self, head: _CountedHead) -> Plan:
        return plan_with(head, self._rows(head.cluster.id, head.totals.partitions), self.path)

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
        broken = (arrow().ArrowException, ValueError, MemoryError)
        try:
            with (
                open_regular(part) as opened,
                self._parquet.ParquetFile(opened, page_checksum_verification=True) as file,
            ):
                yield file
        except FileNotFoundError:
            raise SavedPlanError(f"{part} cannot be read: No such file or directory") from None
        except (OSError, *broken) as error:
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
    if path.suffix == ".parquet" or path.is_dir():  # a folder is what Spark writes
        return ParquetPlans(path)
    return JsonFile(path, json_in(read_bytes(path), path))


def read_plan(path: Path) -> Plan:
    """Read a saved plan of one cluster, JSON or Parquet.

    Raises:
        SavedPlanError: it is unreadable or of another format, or has duplicate rows or impossible numbers; the text
            names the place.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    return plan_in(open_plans(path))


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
        raise SavedPlanError(f"{file.path} has format {found!r}; this kretain carries out {FORMAT}")
    return file.plans([Entry("", "", file.head)])[""]()
