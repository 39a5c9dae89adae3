"""Evidence as Parquet: typed columns for what nearly every partition has, JSON for what is odd about a few.

The files are ``RUN/001-facts.parquet`` for each recheck, and ``RUN/results.parquet``, in ``evidence/`` next to the
audit log, or at the policy's ``evidence`` URL, by cluster id. A recheck's file is written before the requests based on
it are sent, the results when the run ends. The audit log names each with its SHA-256, so a crash loses no fact of a
delete.

A fact that is unknown, or has notes, or is rare, is in ``more``: a JSON object by the fact's name. Every other fact is
in a column of its own, for SQL (docs/evidence.md). Both together give the same facts back.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice, repeat, starmap
from typing import Any, Final, NamedTuple, cast, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from retention_cli.core.extras import arrow, texts_of
from retention_cli.core.file_problems import parquet_problem
from retention_cli.core.model import Floor, LookUp, PartitionFacts, Sample, TopicFacts, Unknown
from retention_cli.evidence.value import (
    KINDS,
    NONE,
    Commit,
    Commits,
    DiskPart,
    Numbers,
    Planned,
    ReadTimes,
    RecordedDecision,
    Result,
    Row,
)
from retention_cli.policy.settings import Settings

KEY: Final = "kretain.evidence"
"""The key of the head, as JSON, in a file's metadata."""


class EvidenceError(Exception):
    """It is no evidence, is damaged, or lacks something; the text says which file or row."""


class Kind(NamedTuple):
    """How a column is stored: its type, and whether its values repeat."""

    type: str
    repeats: bool


_TEXT, _SAME, _NUMBER, _SMALL, _BOOL = (
    Kind("string", True),
    Kind("int64", True),
    Kind("int64", False),
    Kind("int32", True),
    Kind("bool_", False),
)
_PLANNED: Final = ("plan_trim_to", "plan_topic_id", "plan_epoch", "plan_min_commit", "plan_unconsumed")
_DECISION: Final = ("action", "trim_to", "rule", "limited_by", "trim_bytes", "trim_bytes_exact")
FACTS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("topic", "topic_facts", "settings"), _TEXT),
    **dict.fromkeys(("recheck", "partition", "leader_epoch"), _SMALL),
    "now_ms": _SAME,
    **{f"{name}_ms": _SAME for name in ReadTimes._fields},
    **dict.fromkeys(("log_start", "high_watermark", "last_stable_offset", "floor"), _NUMBER),
    **dict.fromkeys(("floor_by", "floor_unknown"), _TEXT),
    "size_bytes": _NUMBER,
    "watched_since_ms": _SAME,
    "more": _TEXT,
    **dict.fromkeys(("plan_trim_to", "plan_min_commit"), _NUMBER),
    "plan_unconsumed": _SAME,
    "plan_epoch": _SMALL,
    "plan_topic_id": _TEXT,
    **dict(zip(_DECISION, (_TEXT, _NUMBER, _TEXT, _TEXT, _NUMBER, _BOOL), strict=True)),
}
"""A recheck's columns. ``lookups`` and ``commits``, lists of :data:`LOOKUP` and :data:`COMMIT`, come after them."""
LOOKUP: Final = {"at_ms": _SAME, "offset": _NUMBER, "stamped_ms": _NUMBER, "record": _NUMBER, "data": _BOOL}
COMMIT: Final = {"by": _TEXT, "kind": _TEXT, "offset": _NUMBER, "epoch": _SMALL, "epoch_end": _NUMBER}
RESULTS: Final[Mapping[str, Kind]] = {
    "topic": _TEXT,
    **dict.fromkeys(("partition", "recheck", "batch"), _SMALL),
    "outcome": _TEXT,
    "final": _BOOL,
    "request_offset": _NUMBER,
    "sent_ms": _SAME,
    "answer": _NUMBER,
    "error": _TEXT,
    "log_start_after": _NUMBER,
    **dict.fromkeys(("records", "size_bytes"), _NUMBER),
    "why": _TEXT,
}
_PLAIN: Final = PartitionFacts._field_defaults  # noqa: SLF001  (a named tuple's own, and public)
_IN_MORE: Final = (
    *("newest", "event_prefix", "samples", "stamped_below", "clock", "usage", "tails", "segment_bases", "has_leader"),
)
"""Facts that are in ``more`` unless they have their default, which then is what they are."""
_OFFSETS: Final = ("log_start", "high_watermark", "last_stable_offset", "size_bytes")


def schema_of(columns: Mapping[str, Kind], lists: Mapping[str, Mapping[str, Kind]], head: Mapping[str, Any]) -> Any:
    """Return the Arrow schema of columns and of lists of structures."""
    pa = arrow()
    fields = [(name, getattr(pa, kind.type)()) for name, kind in columns.items()]
    fields += [
        (name, pa.list_(pa.struct([(one, getattr(pa, kind.type)()) for one, kind in parts.items()])))
        for name, parts in lists.items()
    ]
    return pa.schema(fields, metadata={KEY: json.dumps(head)})


LISTS: Final = {"lookups": LOOKUP, "commits": COMMIT}


def facts_table(head: Mapping[str, Any], rows: Sequence[Row], commits: Commits) -> Any:
    """Return a recheck's rows as an Arrow table."""
    recheck, facts, settings, now_ms, reads, planned, decisions, disks = _turned(rows, Row)
    fact = dict(zip(PartitionFacts._fields, _turned(facts, PartitionFacts), strict=True))
    *plan, fact["epoch_end"] = _turned(planned, Planned)
    irregular: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for name, plain in {**{name: _PLAIN[name] for name in _IN_MORE}, "epoch_end": None, "disks": None}.items():
        _put(irregular, name, disks if name == "disks" else fact[name], plain)
    columns: dict[str, Any] = {
        **{name: fact[name] for name in ("partition", "leader_epoch", "watched_since_ms")},
        **{name: _offsets(fact[name], irregular, name) for name in _OFFSETS},
        **dict(zip((f"{name}_ms" for name in ReadTimes._fields), _turned(reads, ReadTimes), strict=True)),
        **dict(zip(("floor", "floor_by", "floor_unknown"), _floors(fact["floor"], irregular), strict=True)),
        **dict(zip((*_PLANNED, *_DECISION), (*plan, *_turned(decisions, RecordedDecision)), strict=True)),
        "recheck": recheck,
        "topic": _coded(fact["topic"], lambda one: one.name),
        "topic_facts": _coded(fact["topic"], as_json),
        "settings": _coded(settings, as_json),
        "now_ms": now_ms,
        "lookups": _lookups(fact["lookups"], fact["data_lookups"], irregular),
        "commits": _commits(commits),
    }
    columns["more"] = [as_json(irregular[n]) if n in irregular else None for n in range(len(rows))]
    return _table(columns, FACTS, schema_of(FACTS, LISTS, head))


def results_table(head: Mapping[str, Any], results: Sequence[Result]) -> Any:
    """Return results as an Arrow table."""
    return _table(dict(zip(RESULTS, _turned(results, Result), strict=True)), RESULTS, schema_of(RESULTS, {}, head))


def _table(columns: Mapping[str, Any], kinds: Mapping[str, Kind], schema: Any) -> Any:
    arrays = {name: _array(columns[name], kind) for name, kind in kinds.items()}
    return arrow().Table.from_arrays([arrays.get(one, columns[one]) for one in schema.names], schema=schema)


def _array(values: Sequence[Any] | Numbers, kind: Kind) -> Any:
    """Return a column; in an array of numbers −1 stands for none.

    ``pyarrow.array`` would import pandas first, where that is installed: a trim has no other use for it.
    """
    pa = arrow()
    if kind.type == "string":
        builder = arrow("pyarrow.lib").StringBuilder()
        builder.append_values(values)
        return builder.finish()
    known = None
    if isinstance(values, np.ndarray):
        known = pa.py_buffer(np.packbits(values != NONE, bitorder="little"))
    elif None in values:
        known = pa.py_buffer(np.packbits([one is not None for one in values], bitorder="little"))
        values = [one or 0 for one in values]
    data = np.array(values, getattr(np, kind.type))
    plain = np.packbits(data, bitorder="little") if data.dtype == np.bool_ else data
    return pa.Array.from_buffers(getattr(pa, kind.type)(), len(values), [known, pa.py_buffer(plain)])


def as_json(value: Any) -> str:
    """Return a value of frozen values, tuples and mappings as JSON; a name that is no Unicode is escaped in it."""
    return json.dumps(to_jsonable_python(value), separators=(",", ":"))


# -- encoding --------------------------------------------------------------------------------------------------------


def _turned(rows: Sequence[Any], kind: Any) -> list[Sequence[Any]]:
    """Return rows of named tuples as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * len(kind._fields)


def _put(irregular: dict[int, dict[str, Any]], name: str, values: Sequence[Any], plain: object) -> None:
    for n, value in enumerate(values):
        if value is plain or value == plain or (value is not None and plain is not None and not value and not plain):
            continue  # of two kinds of nothing, such as () and {}, each is read back as the default
        irregular[n][name] = value


def _offsets(values: Sequence[Any], irregular: dict[int, dict[str, Any]], name: str) -> list[int | None]:
    for n, one in enumerate(values):
        if type(one) is not int:
            irregular[n][name] = one
    return [one if type(one) is int else None for one in values]


def _floors(values: Sequence[Any], irregular: dict[int, dict[str, Any]]) -> Iterable[Sequence[Any]]:
    """Return the columns of floors: offset, whose it is, and the codes of why it is unknown."""
    known = [one if type(one) is Floor else None for one in values]
    codes: list[str | None] = [None] * len(values)
    for n, one in enumerate(known):
        if one is None:
            irregular[n]["floor"] = values[n]
            codes[n] = " ".join(sorted({str(reason.code) for reason in values[n].reasons}))
        elif one.notes:
            irregular[n]["floor"] = one._asdict()  # by names, which docs/evidence.sql reads: a tuple would be a list
    return [one and one.offset for one in known], [one and one.by for one in known], codes


def _coded(values: Sequence[Any], text: Callable[[Any], str]) -> list[str]:
    """Return a column of objects' texts; many rows share one object."""
    texts = {key: text(one) for key, one in {id(one): one for one in values}.items()}
    return [texts[id(one)] for one in values]


def _lookups(plain: Sequence[Any], data: Sequence[Any], irregular: dict[int, dict[str, Any]]) -> Any:
    found: list[tuple[int, int, int | None, int | None, bool]] = []
    ends = [0]
    for n, both in enumerate(zip(plain, data, strict=True)):
        for of_data in (False, True):
            for time_ms, one in both[of_data].items():
                if type(one) is LookUp:
                    found.append((time_ms, one.offset, one.timestamp, one.record, of_data))
                if type(one) is not LookUp or one.note is not None:
                    irregular[n]["data_lookups" if of_data else "lookups"] = dict(both[of_data])
        ends.append(len(found))
    return _lists(ends, zip(*found, strict=True) if found else [()] * len(LOOKUP), LOOKUP)


def _commits(commits: Commits) -> Any:
    texts = [
        [names[n] for n in which.tolist()] for names, which in ((commits.names, commits.by), (KINDS, commits.kind))
    ]
    return _lists(commits.start, (*texts, commits.offset, commits.epoch, commits.epoch_end), COMMIT)


def _lists(ends: Any, columns: Iterable[Any], kinds: Mapping[str, Kind]) -> Any:
    pa = arrow()
    arrays = [_array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.ListArray.from_arrays(_array(ends, _SMALL), pa.StructArray.from_arrays(arrays, list(kinds)))


# -- decoding --------------------------------------------------------------------------------------------------------


@cache
def _readers() -> Mapping[str, Any]:
    """Return what reads the texts of topics, of settings, and of what is odd about a partition (``more``)."""
    facts = {name: kind for name, kind in get_type_hints(PartitionFacts).items() if name not in ("topic", "partition")}
    facts |= {"epoch_end": get_type_hints(Planned)["epoch_end"], "disks": DiskPart}
    facts |= {"samples": tuple[Sample, ...] | Unknown, "segment_bases": tuple[int, ...] | Unknown}  # Sequence is slow
    named: Any = TypedDict
    more = with_config(ConfigDict(extra="forbid"))(named("more", facts, total=False))
    return {
        name: TypeAdapter(kind).validator
        for name, kind in {"topic": TopicFacts, "settings": Settings, "more": more}.items()
    }


def from_json(name: str, text: str) -> Any:
    """Return a ``topic``'s facts, ``settings``, or ``more`` facts by name from their JSON.

    Raises:
        ValueError: it is something else.
    """
    try:
        return _readers()[name].validate_json(text)
    except ValidationError:  # half a character and depth, which json.loads accepts
        return _readers()[name].validate_python(json.loads(text))


def rows_of(table: Any) -> Iterator[Row]:
    """Yield the rows of a recheck's table.

    Raises:
        EvidenceError: a value can't be one of evidence.
    """
    column: dict[str, list[Any]] = {
        name: _texts_in(table.column(name)) if kind.type == "string" else listed(table.column(name))
        for name, kind in FACTS.items()
    }
    settings, names = _each(column["settings"], "settings"), column["topic"]
    reads = map(ReadTimes, *(column[f"{name}_ms"] for name in ReadTimes._fields))
    planned = map(Planned, *(column[name] for name in _PLANNED))
    decisions = map(RecordedDecision, *(column[name] for name in _DECISION))
    column["topic"] = _each(column["topic_facts"], "topic")
    column["floor"] = [*map(Floor, column["floor"], column["floor_by"])]
    column["lookups"], column["data_lookups"] = _looked_up(table)
    facts = map(
        PartitionFacts,
        *(column[name] if name in column else repeat(_PLAIN[name]) for name in PartitionFacts._fields),
    )
    rows = map(Row, column["recheck"], facts, settings, column["now_ms"], reads, planned, decisions)
    for name, text, row in zip(names, column["more"], rows, strict=True):
        try:
            yield _complete(row, name, text)
        except (ValidationError, ValueError, TypeError) as error:
            raise EvidenceError(
                f"the evidence of {name}-{row.facts.partition} can't be read: {' '.join(str(error).split())}"
            ) from None


def _complete(row: Row, name: str, text: str | None) -> Row:
    """Return a row with what is odd about it (``more``), if it is of this topic."""
    if name != row.facts.topic.name:
        raise ValueError(f"its facts are of topic {row.facts.topic.name}")
    if text is None:
        return row
    more = from_json("more", text)
    planned, disks = row.planned, more.pop("disks", None)
    if "epoch_end" in more:
        planned = planned._replace(epoch_end=more.pop("epoch_end"))
    return row._replace(facts=row.facts._replace(**more), planned=planned, disks=disks)


def _texts_in(column: Any) -> list[str | None]:
    """Return a coded column's texts, None where there is none; equal texts are one object."""
    texts, which = texts_of(column)
    return cast(list[str | None], np.array([*texts, None], object)[which].tolist())


def listed(column: Any) -> list[Any]:
    """Return an Arrow column's values; for numbers and booleans ``to_pylist`` takes several times as long."""
    if column.type == "string":
        return cast(list[Any], column.to_pylist())
    found: list[Any] = column.fill_null(arrow().scalar(0).cast(column.type)).to_numpy(zero_copy_only=False).tolist()
    for n in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist() if column.null_count else ():
        found[n] = None
    return found


def _by_row(table: Any, name: str) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Yield the structures of each row's list; each row's must be read before the next row's."""
    column = table.column(name).combine_chunks()
    values = column.flatten()
    parts = zip(*(listed(values.field(one)) for one in LISTS[name]), strict=True)
    return (islice(parts, count) for count in np.diff(column.offsets.to_numpy()).tolist())


def _looked_up(table: Any) -> tuple[list[dict[int, LookUp]], list[dict[int, LookUp]]]:
    """Return the look-ups of each row by their time: of any record, and of data."""
    plain: list[dict[int, LookUp]] = []
    of_data: list[dict[int, LookUp]] = []
    for some in _by_row(table, "lookups"):
        of_row: tuple[dict[int, LookUp], ...] = {}, {}
        for at, offset, stamped, record, data in some:
            of_row[bool(data)][at] = LookUp(offset, None, stamped, record)
        plain.append(of_row[0])
        of_data.append(of_row[1])
    return plain, of_data


def commits_of(table: Any) -> Iterator[tuple[Commit, ...]]:
    """Yield what groups had committed on each row of a recheck's table, the lowest first."""
    return (tuple(starmap(Commit, some)) for some in _by_row(table, "commits"))


def _each(texts: Sequence[str], of: str) -> list[Any]:
    """Return what each row's text says; equal texts are read once."""
    if None in texts:
        raise EvidenceError("a row has no topic_facts, or no settings")
    try:
        found = {one: from_json(of, one) for one in dict.fromkeys(texts)}
    except (ValidationError, ValueError, TypeError) as error:
        raise EvidenceError(f"a topic's facts or settings can't be read: {' '.join(str(error).split())}") from None
    return [found[one] for one in texts]


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
    """Return a table as the bytes of its file: small, and with checksums. The same table gives the same bytes."""
    columns, lists = (FACTS, LISTS) if "lookups" in table.column_names else (RESULTS, {})
    paths = dict(columns) | {
        f"{name}.list.element.{one}": kind for name, parts in lists.items() for one, kind in parts.items()
    }
    with arrow().BufferOutputStream() as sink:
        arrow("pyarrow.parquet").write_table(
            table,
            sink,
            row_group_size=ROWS_A_GROUP,
            compression="zstd",
            use_dictionary=[name for name, kind in paths.items() if kind.repeats],
            column_encoding={
                name: "DELTA_BINARY_PACKED" for name, kind in paths.items() if kind.type == "int64" and not kind.repeats
            },
            write_page_checksum=True,
            write_statistics=False,
        )
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
        wanted = wanted.set(wanted.get_field_index(one), pa.field(one, pa.dictionary(pa.int32(), pa.string())))
    try:
        with parquet.ParquetFile(
            pa.BufferReader(content), read_dictionary=coded, page_checksum_verification=True
        ) as file:
            yield file, wanted
    except (OSError, pa.ArrowException, ValueError, KeyError, RecursionError) as error:
        raise EvidenceError(f"{name} is damaged, or not evidence: {parquet_problem(error)}") from None


def _cast(table: Any, wanted: Any) -> Any:
    found = table.select(wanted.names).cast(wanted)
    found.validate(full=True)  # texts are UTF-8
    return found


def groups_of(name: str, content: bytes, columns: Mapping[str, Kind], lists: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a file's row groups, one at a time, with these columns alone.

    Raises:
        EvidenceError: it is no evidence, or damaged.
    """
    with _opened(name, content, columns, lists) as (file, wanted):
        for number in range(file.num_row_groups):
            yield _cast(file.read_row_group(number, columns=wanted.names), wanted)


def part_of(name: str, content: bytes) -> Part:
    """Return a file of evidence, read.

    Raises:
        EvidenceError: it is none, or damaged.
    """
    columns, lists = (RESULTS, ()) if name == RESULTS_NAME else (FACTS, tuple(LISTS))
    with _opened(name, content, columns, lists) as (file, wanted):
        table = file.read()
        head = json.loads((table.schema.metadata or {}).get(KEY.encode(), b"null"))
        table = _cast(table, wanted)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise EvidenceError(f"{name} is not {FORMAT}: its metadata lacks {KEY}")
    return Part(name, head, table)
