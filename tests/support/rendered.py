"""Values of any type that hints describe, the same for the same seed: what the golden files print."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from retention_cli.advise.advice import Advice
from retention_cli.advise.facts import Window
from retention_cli.audit.log import AuditLog, Run
from retention_cli.core.model import Code, Reason, TopicPartition
from retention_cli.disks.disk import DiskOutcome, Space
from retention_cli.disks.inventory.format import Inventory
from retention_cli.forecast.value import Span
from retention_cli.policy.settings import Settings
from retention_cli.profile.hours import PartitionHours, Row
from retention_cli.reports.explain import Explained
from retention_cli.trim.report import TrimRow

_LATER = {"DiskOutcome": DiskOutcome, "Space": Space, "Policy": NoneType}
"""What modules import for the type checker alone."""
_NUMBERS = (0, 1, 2, 7, 1_234, 86_400_000, 1_234_567_890, 5 << 30, 1_763_900_000_123)
_WORDS = (
    "orders",
    "billing-eu",
    "group:delays",
    "a|b",
    "=SUM(1)",
    "esc\x1b[31mred\u202e",
    "naïve → größe",
    "orders.by-customer.eu-central-1.with-a-name-that-does-not-fit",
    "__internal",
    "2026-11-01T00:00:00Z",
)


def made(hint: Any, seed: str, name: str = "") -> Any:
    """Return a value of a type; each part depends on the seed and its own place alone."""
    pick = random.Random(f"{seed}/{name}")
    many = range(pick.choice((0, 45) if seed.startswith("big") and name.count(".") <= 1 else (0, 1, 2, 2, 3)))
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _SPECIAL:
        return _SPECIAL[hint](pick, f"{seed}/{name}")
    if origin in (Union, UnionType):
        return made(pick.choice(parts), seed, f"{name}|")
    if origin is Literal:
        return pick.choice(parts)
    if origin is tuple and (len(parts) != 2 or parts[1] is not ...):
        return tuple(made(one, seed, f"{name}.{place}") for place, one in enumerate(parts))
    if origin in (tuple, list, Sequence, frozenset, set):
        kind = {list: list, frozenset: frozenset, set: set}.get(origin, tuple)
        return kind(made(parts[0], seed, f"{name}.{place}") for place in many)
    if origin in (dict, Mapping):
        return {made(parts[0], seed, f"{name}.k{n}"): made(parts[1], seed, f"{name}.v{n}") for n in many}
    hints = get_type_hints(hint, localns=_LATER) if isinstance(hint, type) else {}
    dataclass = dataclasses.is_dataclass(hint)
    names: Any = [one.name for one in dataclasses.fields(hint)] if dataclass else hint._fields
    return hint(**{one: made(hints[one], seed, f"{name}.{place}") for place, one in enumerate(names)})


def _run(pick: random.Random, seed: str) -> Run:
    places = [
        {"topic": "orders", "partition": n, "log_start": n, "target": 5, "records": 7, "bytes": 9} for n in (0, 1)
    ]
    told = made(Literal["trimmed", "unchanged", "held", "failed"], seed, "outcome")
    results = [{"topic": "orders", "partition": 0, "outcome": told, "log_start": 5, "reason": made(str | None, seed)}]
    at = f"2026-11-{pick.randint(1, 9):02}T00:00:00Z"
    cluster, user = {"id": made(Literal["c1", "c2"], seed)}, made(Literal["ann", "b|b"], seed)
    begun = {"at": at, "cluster": cluster, "user": user, "host": "h", "policy": {"source": "policy.yaml"}}
    end = {"exit": pick.choice((0, 4)), "totals": {told: 1, "failed": pick.choice((0, 0, 2))}}
    return Run(
        f"run-{pick.randint(0, 999)}",
        {**begun, "planned": {"partitions": 2}},
        pick.choice(({}, {1: {"batch": 1, "at": at, "partitions": places}})),
        pick.choice(({}, {1: {"partitions": results}})),
        pick.choice((None, end)),
    )


def _advice(pick: random.Random, seed: str) -> Advice:
    fields = {name: made(hint, seed, name) for name, hint in get_type_hints(Advice).items()}
    changes = {"segment.ms": 60_000, "retention.bytes": 9_000, "message.timestamp.after.max.ms": 7_000}
    some = {key: value for key, value in changes.items() if pick.random() < 0.6}
    return Advice(**{**fields, "changes": some, "policy_entry": pick.choice(({}, {"retention.ms": 3_600_000}))})


def _explained(_pick: random.Random, seed: str) -> Explained:
    fields = {name: made(hint, seed, name) for name, hint in get_type_hints(Explained).items()}
    decision, full = fields["decision"], (Reason("R5", "it is full"),)
    some = decision._replace(
        trim_to=decision.trim_to or 5, min_commit=decision.min_commit or 7, reasons=decision.reasons or full
    )
    return Explained(**{**fields, "decision": some if decision.action == "trim" else decision})


def _hours(pick: random.Random, seed: str) -> PartitionHours:
    frame = made(get_type_hints(PartitionHours)["frame"], seed, "frame")
    keys = [460_000, 460_003, *pick.sample((-3, -2, -1, 480_000), 2)]
    rows = {key: made(Row, seed, str(key)) for key in sorted(keys)}
    return PartitionHours(frame, 0, 10, {} if pick.random() < 0.2 else rows, exact=pick.random() < 0.5)


def _trim_row(_pick: random.Random, place: str) -> TrimRow:
    seed, _, name = place.partition("/")
    hints = {"topic": str, "partition": int, **get_type_hints(TrimRow)}
    del hints["tp"]
    parts = [made(hint, seed, f"{name}.{number}") for number, hint in enumerate(hints.values())]
    return TrimRow(TopicPartition(*parts[:2]), *parts[2:])


def _inventory(_pick: random.Random, seed: str) -> Any:
    from retention_cli.disks.inventory.format import InventoryFile, schema
    from retention_cli.disks.inventory.log_dirs import LogDir

    dirs = tuple(made(LogDir, seed, str(n)) for n in range(2))
    file = InventoryFile("b.parquet", 3, made(str | None, seed), 1_763_900_000_123, dirs)
    return Inventory((file,), schema().empty_table(), made(dict[tuple[int, str, int], str], seed, "incomplete"))


_SPECIAL: dict[Any, Any] = {
    Code: lambda pick, _: Code(pick.choice(("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"))),
    str: lambda pick, _: pick.choice(_WORDS),
    int: lambda pick, _: pick.choice(_NUMBERS),
    float: lambda pick, _: pick.choice((0.25, 12.5, 99.96, 3_600_000.0, 1e9)),
    bool: lambda pick, _: pick.random() < 0.5,
    NoneType: lambda *_: None,
    None: lambda *_: None,
    object: lambda pick, _: pick.choice(("text", 7, True, None, ["a", "b"])),
    Any: lambda pick, _: pick.choice(("text", 7, True, None, ["a", "b"])),
    BaseException: lambda *_: None,
    Exception: lambda *_: None,
    Path: lambda *_: Path("/etc/kretain.yaml"),
    dt.datetime: lambda *_: dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    Reason: lambda pick, _: Reason(pick.choice(("F5", "G7", "R6", "gone")), f"it is so: {pick.choice(_WORDS)}"),
    Span: lambda pick, _: Span(*sorted(pick.choices((0.0, 5e3, 9e6, 9.2e6, 4e8, 1e12, float("inf")), k=2))),
    Window: lambda pick, _: Window(pick.choice((0, 5, 7_200)), 3_600_000),
    AuditLog: lambda *_: AuditLog(Path("/state/c1")),
    Settings: lambda pick, _: Settings(3_600_000, pick.choice((None, 86_400_000)), event_time_ms=7_000),
    Advice: _advice,
    Explained: _explained,
    Run: _run,
    TrimRow: _trim_row,
    PartitionHours: _hours,
    Inventory: _inventory,
}
