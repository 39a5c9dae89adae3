"""Read the positions in a file: local, at a URL of pyarrow's file systems, or over HTTP (F7)."""

from __future__ import annotations

import email.utils
from http import HTTPStatus
from pathlib import Path
from typing import Any

from retention_cli.core.files import read_file
from retention_cli.observe.floors.sources.interface import Consumer, Consumers, Reach, SourceError
from retention_cli.observe.floors.sources.stored import MAX_BYTES, Storage, check_age, read_positions
from retention_cli.policy.settings import FloorSource


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Return the file's positions, no older than the policy allows.

    Args:
        source: ``place`` is a path or a URL.
        reach: for our wall clock.

    Raises:
        SourceError: it can't be read, holds no positions that can be used, or is too old.
    """
    place = source.place
    if place.startswith(("http://", "https://")):
        content, written_ms = _over_http(place, source.timeout_ms / 1000)
    elif "://" in place:
        storage = Storage(place)
        if (found := storage.read("", MAX_BYTES)) is None:
            raise SourceError(f"{storage.shown}: there is no such file")
        content, written_ms = found
    else:
        content, written_ms = _local(Path(place))
    at_ms, positions = read_positions(content)
    if (moment := written_ms if at_ms is None else at_ms) is None:
        raise SourceError('nothing says how old it is: write JSON with "at"')
    check_age(moment, reach.reader.clock.wall_ms(), source.max_age_ms)
    return {source.name: Consumer(positions)}


def _local(path: Path) -> tuple[bytes, int]:
    try:
        before = path.stat()
        content = read_file(path, MAX_BYTES)
        after = path.stat()
    except OSError as error:
        raise SourceError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if (before.st_mtime_ns, before.st_ino, before.st_size) != (after.st_mtime_ns, after.st_ino, after.st_size):
        raise SourceError(f"{path}: it was written while it was read: write it elsewhere, and rename it")
    return content, before.st_mtime_ns // 1_000_000


def _over_http(url: str, timeout_s: float) -> tuple[bytes, int | None]:
    from retention_cli.core.http import HttpError, ask

    shown = url.partition("?")[0]
    try:
        answer = ask(url, timeout_s=timeout_s, most_bytes=MAX_BYTES)
    except HttpError as error:
        raise SourceError(f"{shown}: {error}") from None
    if answer.status != HTTPStatus.OK:
        raise SourceError(f"{shown}: HTTP {answer.status}")
    return answer.body, _moment_of(answer.headers)


def _moment_of(headers: Any) -> int | None:
    try:
        return int(email.utils.parsedate_to_datetime(headers["Last-Modified"]).timestamp() * 1000)
    except (TypeError, ValueError):
        return None
