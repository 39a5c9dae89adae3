"""Read what lies at a path or at a URL of pyarrow's file systems, and parse positions; an error is the source's (F3).

Positions are JSON with a time, or CSV as Kafka's own tool exports it. An invalid row makes the complete source
unreadable. It is never skipped: its consumer would not count there.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from retention_cli.core.extras import MissingPartError, arrow
from retention_cli.core.file_problems import store_problem
from retention_cli.core.filesystems import FilesystemError, connect
from retention_cli.core.json_values import JsonContentError, parse_json
from retention_cli.core.printable import shown
from retention_cli.core.units import UnitError, format_age, parse_time_ms
from retention_cli.observe.floors.sources.interface import MAX_OFFSET, MAX_PARTITION, Position, SourceError


class Storage:
    """A file system, and a place in it.

    Raises:
        SourceError: each method, where the place can't be read.
    """

    def __init__(self, url: str) -> None:
        """Connect to where a URL or a local path leads."""
        self.url = url
        self.shown = url.partition("?")[0]
        with self._as_source_error():
            self._filesystem, self._base = connect(url)

    def read(self, name: str, limit: int) -> tuple[bytes, int | None] | None:
        """Return a file's bytes, at most ``limit`` and one, and when it was written (Unix ms).

        ``name`` is its path below the place, "" for the place itself. None where there is no such file.
        """
        path = f"{self._base}/{name}" if name else self._base
        with self._as_source_error():
            if not (info := self._filesystem.get_file_info(path)).is_file:
                return None
            with self._filesystem.open_input_stream(path, compression=None) as stream:
                content = bytes(stream.read(limit + 1))
        return content, None if info.mtime_ns is None else info.mtime_ns // 1_000_000

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder below the place; none where there is no such folder."""
        with self._as_source_error():
            selector = arrow("pyarrow.fs").FileSelector(f"{self._base}/{folder}", allow_not_found=True)
            return [info.base_name for info in self._filesystem.get_file_info(selector)]

    @contextmanager
    def _as_source_error(self) -> Iterator[Any]:
        try:
            yield
        except (FilesystemError, MissingPartError) as error:
            raise SourceError(f"{self.shown}: {error}") from None
        except OSError as error:
            raise SourceError(f"{self.shown}: {store_problem(error).replace(self.url, self.shown)}") from None


MAX_BYTES: Final = 64 << 20
"""The limit of a source's content: some million positions."""
_HEADER: Final = ["topic", "partition", "offset"]
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_NEARLY: Final = re.compile(r"[-+ 0-9.eE]{0,24}|True|False|None")


def read_positions(content: bytes) -> tuple[int | None, dict[str, list[Position]]]:
    """Return the time of the positions (Unix ms; None for CSV, which has none), and the positions by topic.

    JSON is ``{"at": …, "positions": [{"topic": …, "partition": …, "offset": …}]}``, ``at`` in ISO 8601 or Unix ms. CSV
    has a line ``topic,partition,offset`` for each, as ``kafka-consumer-groups.sh --export`` writes them.

    Raises:
        SourceError: it is neither, or holds no positions, an invalid one, or two of a partition.
    """
    if len(content) > MAX_BYTES:
        raise SourceError(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError("it is not UTF-8 text") from None
    if not text.strip():
        raise SourceError("it is empty: was it cut short?")
    at_ms, rows = _from_json(text) if text.lstrip()[0] in "{[" else (None, _from_csv(text))
    found: dict[str, dict[int, int]] = {}
    for place, topic, partition, offset in rows:
        here = found.setdefault(topic, {})
        if partition in here:
            raise SourceError(f"{place}: {shown(topic)}, partition {partition}, appears twice")
        here[partition] = offset
    if not found:
        raise SourceError("it holds no positions")
    return at_ms, {topic: sorted(here.items()) for topic, here in found.items()}


def check_age(at_ms: int, now_ms: int, max_age_ms: int | None, ahead_ms: int = 60_000) -> None:
    """Refuse positions that are too old (``max_age_ms`` None: none is), or in the future.

    Raises:
        SourceError: they are older than ``max_age_ms``, or more than ``ahead_ms`` ahead of now.
    """
    if max_age_ms is not None and now_ms - at_ms > max_age_ms:
        age, limit = format_age(now_ms - at_ms), format_age(max_age_ms)
        raise SourceError(f"its positions are {age} old (max.age: {limit}): export them again")
    if at_ms - now_ms > ahead_ms:
        raise SourceError(
            f"its positions are dated {format_age(at_ms - now_ms)} ahead of this clock: check both clocks"
        )


def parse(text: str, first_line: int = 1) -> Any:
    """Return what a JSON text holds; ``first_line`` is the text's own, for errors.

    Raises:
        SourceError: it is not JSON, is nested too deeply, or an object has a key twice.
    """
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise SourceError(f"line {error.lineno + first_line - 1}: it is not JSON, or was cut short") from None
    except (ValueError, RecursionError) as error:
        twice = isinstance(error, JsonContentError) and error.twice
        raise SourceError("it has a key twice" if twice else "it is not readable JSON") from None


_Row = tuple[str, str, int, int]


def _from_json(text: str) -> tuple[int, Iterable[_Row]]:
    if not isinstance(data := parse(text), dict) or set(data) != {"at", "positions"}:
        raise SourceError('it is not {"at": …, "positions": […]}')
    if not isinstance(data["positions"], list):
        raise SourceError('"positions" is not a list')
    return _moment(data["at"]), (_json_row(number, row) for number, row in enumerate(data["positions"], 1))


def _json_row(number: int, row: Any) -> _Row:
    place = f"position {number}"
    if not isinstance(row, dict) or set(row) != {*_HEADER} or not isinstance(row["topic"], str) or not row["topic"]:
        raise SourceError(f'{place} is not {{"topic": …, "partition": …, "offset": …}}')
    for key, most in (("partition", MAX_PARTITION), ("offset", MAX_OFFSET)):
        if type(row[key]) is not int or not 0 <= row[key] <= most:
            raise SourceError(f"{place}: {key} {_quoted(row[key])} is not a whole number from 0")
    return place, row["topic"], row["partition"], row["offset"]


def _moment(at: Any) -> int:
    with suppress(UnitError):
        if isinstance(at, str):
            return parse_time_ms(at)
    if type(at) is int and 0 < at <= MAX_OFFSET:
        return at
    raise SourceError('"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms')


def _quoted(value: Any) -> str:
    """Return a value, for display, if it looks like a number; anything else may be a misplaced secret."""
    return shown(value) if _NEARLY.fullmatch(str(value)) else "something else"


def _from_csv(text: str) -> list[_Row]:
    if not text.endswith("\n"):
        raise SourceError("its last line has no end: was it cut short?")
    found: list[_Row] = []
    try:
        for row in (reader := csv.reader(io.StringIO(text), strict=True)):
            place = f"line {reader.line_num}"
            if not row or (not found and row == _HEADER):
                continue
            if len(row) != len(_HEADER) or not row[0]:
                raise SourceError(f"{place} is not topic,partition,offset")
            partition, offset = (_number(place, *cell) for cell in zip(_HEADER[1:], row[1:], strict=True))
            if partition > MAX_PARTITION or offset > MAX_OFFSET:
                raise SourceError(f"{place}: a number is larger than Kafka allows")
            found.append((place, row[0], partition, offset))
    except csv.Error:
        raise SourceError("it is not CSV: a quote is not closed, or it is not text") from None
    return found


def _number(place: str, key: str, cell: str) -> int:
    if _NUMBER.fullmatch(cell) is None:
        raise SourceError(f"{place}: {key} {_quoted(cell)} is not a whole number from 0")
    return int(cell)
