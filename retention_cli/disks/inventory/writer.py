"""Write an inventory to a Parquet file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from retention_cli.core.extras import arrow
from retention_cli.disks.inventory.format import COLUMNS, METADATA_KEY, schema
from retention_cli.disks.inventory.log_dirs import ScanError
from retention_cli.disks.inventory.partition import PartitionRead

ROW_GROUP: Final = 65_536
"""The number of rows in a row group; about as many are held in memory."""


class InventoryWriter:
    """Writes rows in row groups to a temporary file, and renames it to its path on a successful exit.

    Raises:
        ScanError: the file can't be written.
        MissingPartError: pyarrow is not installed.
    """

    def __init__(self, path: str, broker: int, tiered: Callable[[str], bool | None]) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100  (resolves no links)
        self._broker, self._tiered = broker, tiered
        self._pa, self._schema = arrow(), schema()
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._scratch = ""
        self._writer: Any = None

    def __enter__(self) -> Self:
        try:
            folder, name = os.path.split(self._path)
            handle, self._scratch = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            os.close(handle)
            self._writer = arrow("pyarrow.parquet").ParquetWriter(
                self._scratch,
                self._schema,
                compression="zstd",
                use_dictionary=["dir", "topic", "topic_id", "problem"],
                write_page_checksum=True,
            )
        except OSError as error:
            self._discard()
            raise self._cant(error) from None
        return self

    def add(self, folder: str, topic: str, partition: int, found: PartitionRead) -> None:
        """Add all segments of a partition."""
        many = len(found)
        problems: list[str | None] = [None] * many
        for place, text in found.flaws.items():
            problems[place] = text
        active = [False] * many
        if many and found.ends_active:
            active[-1] = True
        for column, values in zip(
            self._columns,
            (
                [self._broker] * many,
                [folder] * many,
                [topic] * many,
                [found.topic_id] * many,
                [partition] * many,
                found.base_offsets,
                found.next_offsets,
                found.sizes,
                found.log_sizes,
                found.first_timestamps,
                found.largest_timestamps,
                found.mtimes,
                active,
                [self._tiered(topic)] * many,
                problems,
                [found.leader_epoch] * many,
            ),
            strict=True,
        ):
            column.extend(values)  # type: ignore[arg-type]
        while len(self._columns[0]) >= ROW_GROUP:
            self._write(ROW_GROUP)

    def describe(self, about: dict[str, Any]) -> None:
        """Write the remaining rows, and the file's metadata."""
        self._write(len(self._columns[0]))
        text = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
        self._writer.add_key_value_metadata({METADATA_KEY: text.encode()})

    def _write(self, rows: int) -> None:
        if not rows:
            return
        batch = self._pa.record_batch(
            [
                self._pa.array(column[:rows], type=field.type)
                for column, field in zip(self._columns, self._schema, strict=True)
            ],
            schema=self._schema,
        )
        self._columns = [column[rows:] for column in self._columns]
        try:
            self._writer.write_batch(batch, row_group_size=ROW_GROUP)
        except OSError as error:
            raise self._cant(error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self._writer.close()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(self._scratch, 0o666 & ~umask)  # noqa: PTH101
            os.replace(self._scratch, self._path)  # noqa: PTH105
        except OSError as problem:
            self._discard()
            raise self._cant(problem) from None

    def _discard(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        except OSError:
            pass  # the disk is full: the file is deleted anyway
        finally:
            if self._scratch and os.path.exists(self._scratch):  # noqa: PTH110
                os.unlink(self._scratch)  # noqa: PTH108

    def _cant(self, error: OSError) -> ScanError:
        return ScanError(f"{self._path} can't be written: {error.strerror or error}")
