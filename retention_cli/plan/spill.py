"""Keep decisions in a temporary file, for plans of a million partitions: a few thousand are in memory at a time."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, overload

from retention_cli.core.extras import arrow
from retention_cli.core.model import Decision
from retention_cli.plan.columns import COLUMNS, decision_of, row_to_keep
from retention_cli.plan.parquet import schema, write_batches

_AT_A_TIME: Final = 5_000


class SpilledDecisions(Sequence[Decision]):
    """Decisions in a temporary file, read again on each iteration. The file is deleted with this object.

    Args:
        decisions: the decisions in their final order; iterated once.

    Raises:
        MissingPartError: pyarrow is not installed.
        OSError: the file can't be written.
    """

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kretain-plan-")
        self.path = Path(self._folder.name) / "rows.parquet"
        write_batches(self.path, schema(COLUMNS), map(row_to_keep, decisions))
        self._count = int(arrow("pyarrow.parquet").read_metadata(self.path).num_rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Decision]:
        parquet = arrow("pyarrow.parquet")
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_AT_A_TIME):
                for row in batch.to_pylist():
                    yield decision_of(row)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | Sequence[Decision]:
        """Return one decision or a slice. Slow: reads every decision before it."""
        places = range(self._count)[index]
        if isinstance(places, int):
            return next(itertools.islice(self, places, None))
        wanted = set(places)
        found = {place: one for place, one in enumerate(self) if place in wanted}
        return [found[place] for place in places]
