"""The demo's records: a year of invented flights by carrier, and of hourly weather by airport. Always the same ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FLIGHTS: Final = 100_000
AIRPORTS: Final = ("EWR", "JFK", "LGA")
WEATHER: Final = 365 * 24 * len(AIRPORTS)
_CARRIERS: Final = {"UA": 58, "B6": 54, "EV": 54, "DL": 48, "AA": 32, "MQ": 26, "US": 20, "9E": 18, "WN": 12, "VX": 5}
"""Carriers, and how often each of them flies."""
_START_MS: Final = 1_356_998_400_000
"""2013-01-01, in Unix ms."""
_HOUR_MS: Final = 3_600_000
_YEAR_MS: Final = 365 * 24 * _HOUR_MS


class Record(NamedTuple):
    """A record to produce: key, JSON value and event time in Unix ms."""

    key: str
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Record]:
    """Yield flights, keyed by carrier, in the order of their schedule; the event time is the departure."""
    chance = random.Random(2013)  # noqa: S311  (the same data each time)
    carriers = chance.choices(list(_CARRIERS), list(_CARRIERS.values()), k=FLIGHTS)
    for number, carrier in enumerate(carriers):
        delay_minutes = int(chance.expovariate(1 / 15)) - 8
        origin = AIRPORTS[number % len(AIRPORTS)]
        value = {"carrier": carrier, "flight": 1000 + number % 5000, "origin": origin, "dep_delay": delay_minutes}
        yield _record(carrier, value, _START_MS + number * _YEAR_MS // FLIGHTS + delay_minutes * 60_000)


def weather() -> Iterator[Record]:
    """Yield every hour's weather at the airports, keyed by airport."""
    chance = random.Random(365)  # noqa: S311  (the same data each time)
    for number in range(WEATHER):
        hour, airport = divmod(number, len(AIRPORTS))
        value = {"origin": AIRPORTS[airport], "temp": chance.randint(-10, 35), "wind_speed": chance.randint(0, 40)}
        yield _record(AIRPORTS[airport], value, _START_MS + hour * _HOUR_MS)


def _record(key: str, value: Mapping[str, object], timestamp_ms: int) -> Record:
    return Record(key, json.dumps(value).encode(), timestamp_ms)
