"""The files of a run's evidence: ``RUN/001-facts.parquet`` for each recheck, and ``RUN/results.parquet``.

They are in ``evidence/`` beside the audit log, or at the policy's ``evidence`` URL, by cluster id. A recheck's file is
written before the requests that rest on it are sent, the results when the run ends. The audit log names each with its
SHA-256, so a crash loses no fact of a delete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import parquet_problem
from retention_cli.evidence.format import (
    FACTS,
    KEY,
    LISTS,
    RESULTS,
    EvidenceError,
    Kind,
    commits_of,
    options,
    schema_of,
)
from retention_cli.evidence.value import Commits

FORMAT: Final = "kretain.evidence/v1"
RESULTS_NAME: Final = "results.parquet"
ROWS_A_GROUP: Final = 20_000


def facts_name(recheck: int) -> str:
    """Return the name of a recheck's file; names sort as rechecks do."""
    return f"{recheck:03d}-facts.parquet"


def is_file_name(name: str) -> bool:
    """Return whether a file of this name is evidence: others are being written, or do not belong here."""
    return name.endswith(".parquet") and not name.startswith(".")


def content_of(table: Any) -> bytes:
    """Return a table as the bytes of its file. The same table gives the same bytes."""
    pa = arrow()
    columns, lists = (FACTS, LISTS) if "lookups" in table.column_names else (RESULTS, {})
    with pa.BufferOutputStream() as sink:
        arrow("pyarrow.parquet").write_table(table, sink, row_group_size=ROWS_A_GROUP, **options(columns, lists))
        return bytes(sink.getvalue())


def digest_of(content: bytes) -> str:
    """Return the checksum that the audit log has of a file."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Part:
    """A file of evidence, read: its head, and its rows as an Arrow table."""

    name: str
    head: Mapping[str, Any]
    table: Any

    @cached_property
    def commits(self) -> Commits:
        """What groups had committed, by the number of the row."""
        return commits_of(self.table)


@contextmanager
def _opened(name: str, content: bytes, columns: Mapping[str, Kind], lists: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Open a file of evidence, with the schema of these columns: texts that repeat stay coded.

    Raises:
        EvidenceError: it is no evidence, or what is read inside is damaged.
    """
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    coded = [one for one, kind in columns.items() if kind.type == "string"]
    wanted = schema_of(columns, {one: LISTS[one] for one in lists}, {})
    for one in coded:
        at = wanted.get_field_index(one)
        wanted = wanted.set(at, pa.field(one, pa.dictionary(pa.int32(), pa.string())))
    try:
        with parquet.ParquetFile(
            pa.BufferReader(content), read_dictionary=coded, page_checksum_verification=True
        ) as file:
            yield file, wanted
    except (OSError, pa.ArrowException, ValueError, KeyError, RecursionError) as error:
        raise EvidenceError(f"{name} is damaged, or no evidence: {parquet_problem(error)}") from None


def groups_of(name: str, content: bytes, columns: Mapping[str, Kind], lists: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a file's row groups, one at a time, with these columns alone.

    Raises:
        EvidenceError: it is no evidence, or damaged.
    """
    with _opened(name, content, columns, lists) as (file, wanted):
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=wanted.names).select(wanted.names).cast(wanted)


def part_of(name: str, content: bytes) -> Part:
    """Return a file of evidence, read.

    Raises:
        EvidenceError: it is none, or damaged.
    """
    columns, lists = (RESULTS, ()) if name == RESULTS_NAME else (FACTS, tuple(LISTS))
    with _opened(name, content, columns, lists) as (file, wanted):
        table = file.read()
        head = json.loads((table.schema.metadata or {}).get(KEY.encode(), b"null"))
        table = table.select(wanted.names).cast(wanted)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise EvidenceError(f"{name} is no {FORMAT}: its metadata has no such {KEY}")
    return Part(name, head, table)
