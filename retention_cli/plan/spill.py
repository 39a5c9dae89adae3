"""Decisions in a file of our own: a plan of a million partitions, of which memory holds a few thousand at a time."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, overload

from retention_cli.core.extras import arrow
from retention_cli.core.model import Decision, Reason
from retention_cli.plan.parquet import write_rows

_AT_A_TIME: Final = 5_000


class KeptDecisions(Sequence[Decision]):
    """Decisions that are read anew each time that somebody goes through them. The file goes with the last who has it.

    Args:
        decisions: in the order that they are to have; gone through once.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kretain-plan-")
        self._path = Path(self._folder.name) / "rows.parquet"
        write_rows(self._path, {}, (("", one) for one in decisions))
        self._count = int(arrow("pyarrow.parquet").read_metadata(self._path).num_rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Decision]:
        parquet = arrow("pyarrow.parquet")
        with parquet.ParquetFile(self._path) as file:
            for batch in file.iter_batches(_AT_A_TIME):
                for row in batch.to_pylist():
                    yield decision_of(row)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | Sequence[Decision]:
        """Return one, or some: all before it are read, so nobody should go through them this way."""
        places = range(self._count)[index]
        if isinstance(places, int):
            return next(itertools.islice(self, places, None))
        wanted = set(places)
        found = {place: one for place, one in enumerate(self) if place in wanted}
        return [found[place] for place in places]


def decision_of(row: Mapping[str, Any]) -> Decision:
    """Return the decision of a row of :func:`retention_cli.plan.parquet.schema`."""
    return Decision(
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition"],
        action=row["action"],
        log_start=row["log_start"],
        high_watermark=row["high_watermark"],
        last_stable_offset=row["last_stable_offset"],
        min_commit=row["min_commit"],
        min_commit_by=row["min_commit_by"],
        trim_to=row["trim_to"],
        records=row["records"],
        size_bytes=row["bytes"],
        unconsumed=row["unconsumed"],
        rule=row["rule"],
        limited_by=row["limited_by"],
        reasons=tuple(Reason(one["code"], one["text"]) for one in row["reasons"] or ()),
        size_exact=bool(row.get("bytes_exact")),
        leader_epoch=row["leader_epoch"],
    )
