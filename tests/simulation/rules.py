"""What a policy asks for, as the truth judges it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from tests.simulation.kafka import HOUR


@dataclass(frozen=True)
class Rules:
    """What the policy wants of the managed topics; ages in hours, None where a rule is off.

    With ``outside`` the last of the consumers keeps its positions in a file (F7). ``explicit``: the policy says that event
    times are the timestamps, also where brokers set these. ``latest`` groups start at the end (F2), ``stale`` ones always
    name an old leader epoch (F5). ``require`` groups must have committed (F4); with ``hidden`` the offsets topic may be
    (F9), with ``scope`` the user sees the groups of a prefix alone, and the last group has another name (F8). ``start`` has
    the hours by which groups start back that have no commit (F2). ``avro``: event times are read by schemas that may be
    missing, and records without one are passed over. ``watch_h``: groups must have been watched for so long (F10).
    """

    consumed_h: int | None = None
    forced_h: int | None = None
    event_h: int | None = None
    header: bool = False
    json: bool = False
    avro: bool = False
    minimum_ms: int | None = None
    live: bool = False
    wallclock_h: int | None = None
    unconsumed: Literal["hold", "trim"] = "hold"
    outside: bool = False
    explicit: bool = False
    latest: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    hidden: bool = False
    scope: str | None = None
    start: dict[str, int] = field(default_factory=dict, hash=False)
    watch_h: int | None = None

    @property
    def source(self) -> str:
        return "header" if self.header else "timestamp" if self.explicit else "default"

    def groups(self) -> list[str]:
        told = {
            "latest": list(self.latest),
            "stale.epochs": list(self.stale),
            "require": list(self.require),
            "offsets.topic": "hidden" if self.hidden else None,
            "watch.first": None if self.watch_h is None else f"{self.watch_h}h",
            "start": {name: f"{hours}h" for name, hours in self.start.items()},
            "scope": None if self.scope is None else f"{self.scope}*",
        }
        return [f"{key}: {json.dumps(value)}" for key, value in told.items() if value]

    def entry(self) -> list[str]:
        lines = []
        if self.consumed_h is not None:
            lines += ["retention.commitoffset.enable: true", f"retention.commitoffset.hours: {self.consumed_h}"]
        if self.forced_h is not None:
            lines.append(f"retention.ms: {self.forced_h * HOUR}")
        if self.event_h is not None:
            lines.append(f"retention.max.eventtime.ms: {self.event_h * HOUR}")
        if self.header:
            place = "avro:/et" if self.avro else "json:/et" if self.json else "header:et"
            lines.append(f"retention.eventtime.source: {place}")
            if self.avro:
                lines.append("on.unreadable: skip")
        elif self.explicit:
            lines.append("retention.eventtime.source: timestamp")
        if self.live:
            lines.append("log.retention.min.timestamp: cluster")
        if self.minimum_ms is not None:
            lines.append(f"log.retention.min.timestamp: {self.minimum_ms}")
        if self.wallclock_h is not None:
            lines.append(f"retention.min.wallclock.ms: {self.wallclock_h * HOUR}")
        return [*lines, f"unconsumed: {self.unconsumed}"]
