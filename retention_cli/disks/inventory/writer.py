"""Write an inventory to a Parquet file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.format import COLUMNS, METADATA_KEY, schema
from retention_cli.disks.inventory.log_dirs import ScanError
from retention_cli.disks.inventory.partition import PartitionRead

ROW_GROUP: Final = 65_536
"""The number of rows in a row group; about as many are held in memory."""


class InventoryWriter:
    """Writes the rows of one broker's inventory in row groups.

    Args:
        parquet: the Parquet file's writer.
        broker: the broker's id.
        tiered: returns whether a topic has remote storage; None if it is unknown of all topics.
    """

    def __init__(self, parquet: Any, broker: int, tiered: Callable[[str], bool] | None) -> None:
        self._parquet, self._broker, self._tiered = parquet, broker, tiered
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]

    def add(self, folder: str, tp: TopicPartition, found: PartitionRead) -> None:
        """Add all segments of a partition."""
        many = len(found.segments)
        if not many:
            return
        *facts, problems, _notes = zip(*found.segments, strict=True)
        tiered = None if self._tiered is None else self._tiered(tp.topic)
        same = (self._broker, folder, tp.topic, found.topic_id, tp.partition)
        columns = (
            *([value] * many for value in same),
            *facts,
            [*[False] * (many - 1), found.ends_active],
            [tiered] * many,
            problems,
            [found.leader_epoch] * many,
        )
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        while len(self._columns[0]) >= ROW_GROUP:
            self._write(ROW_GROUP)

    def describe(self, about: dict[str, Any]) -> None:
        """Write the remaining rows, and the file's metadata."""
        self._write(len(self._columns[0]))
        text = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
        self._parquet.add_key_value_metadata({METADATA_KEY: text.encode()})

    def _write(self, rows: int) -> None:
        if rows:
            pa = arrow()
            arrays = [
                pa.array(column[:rows], type=field.type) for column, field in zip(self._columns, schema(), strict=True)
            ]
            self._parquet.write_batch(pa.record_batch(arrays, schema=schema()), row_group_size=ROW_GROUP)
            self._columns = [column[rows:] for column in self._columns]


@contextmanager
def inventory_writer(path: str, broker: int, tiered: Callable[[str], bool] | None) -> Iterator[InventoryWriter]:
    """Write an inventory to a temporary file, which gets its name on a successful exit, and is deleted otherwise.

    Raises:
        ScanError: the file can't be written.
        MissingPartError: pyarrow is not installed.
    """
    target = Path(os.path.abspath(path))  # noqa: PTH100  (resolves no links)
    parquet = arrow("pyarrow.parquet")
    scratch: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
        scratch = Path(name)
        with parquet.ParquetWriter(
            scratch,
            schema(),
            compression="zstd",
            use_dictionary=["dir", "topic", "topic_id", "problem"],
            write_page_checksum=True,
        ) as file:
            yield InventoryWriter(file, broker, tiered)
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    except OSError as error:
        raise ScanError(f"{target} can't be written: {error.strerror or error}") from None
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)
