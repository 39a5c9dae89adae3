"""A topic's effective settings: what rules and guards use, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from retention_cli.core.model import Unknown, Watermark
from retention_cli.core.printable import shown
from retention_cli.core.units import UnitError

DEFAULT_SCAN_RECORDS: Final = 10_000
DEFAULT_IGNORED_GROUPS: Final = ("console-consumer-*",)
DEFAULT_MAX_AHEAD_MS: Final = 3_600_000
DEFAULT_REMEMBER_MS: Final = 30 * 86_400_000
DEFAULT_AUDIT_FILE_BYTES: Final = 64 << 20
DEFAULT_MAX_AGE_MS: Final = 3_600_000
DEFAULT_SOURCE_TIMEOUT_MS: Final = 10_000
MAX_SOURCE_TIMEOUT_MS: Final = 30_000
"""A recheck, which reads sources again, may be at most this old when a delete is sent."""
TRIGGER_FLAGS: Final = ("--consumed-after", "--event-time", "--before", "--older-than")
"""The one-off flags that ask for a bound (R1 to R4), in the rules' order."""
TRIGGER_KEYS: Final = frozenset(
    {
        "retention.commitoffset.enable",
        "retention.commitoffset.ms",
        "retention.commitoffset.minutes",
        "retention.commitoffset.hours",
        "retention.max.eventtime.ms",
        "log.retention.min.timestamp",
        "retention.ms",
        "retention.bytes",
        "retention.topic.bytes",
    }
)
"""An entry's keys that ask for a bound (R1 to R5): off if a flag asks for one. Those of R6 and R7 are in ``disks``. An
entry's other keys limit bounds or say how to find them, and stay."""


EVENT_SOURCES: Final = "timestamp, header:NAME, json:/pointer, avro:/field or protobuf:field"
_FIELDS: Final = re.compile(r"/?\w+(/\w+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where a record's event time is (``retention.eventtime.source``).

    ``name`` is the header's name, or the JSON pointer (RFC 6901) into the value; empty for ``timestamp``. Avro and
    Protobuf values are read by the schema registry's schemas.
    """

    kind: Literal["timestamp", "header", "json", "avro", "protobuf"]
    name: str = ""

    def __str__(self) -> str:
        return self.kind if self.kind == "timestamp" else f"{self.kind}:{self.name}"


def event_source(text: str) -> EventSource:
    """Parse ``timestamp``, ``header:NAME``, ``json:/pointer``, ``avro:/pointer`` or ``protobuf:field``.

    Raises:
        UnitError: it is none of them.
    """
    match text.partition(":"):
        case "timestamp", "", _:
            return EventSource("timestamp")
        case "header", _, name if name:
            return EventSource("header", name)
        case ("json" | "avro") as kind, ":", name if name == "" or name.startswith("/"):
            return EventSource("json" if kind == "json" else "avro", name)
        case "protobuf", _, name if _FIELDS.fullmatch(name):
            return EventSource("protobuf", f"/{name.removeprefix('/')}")
    raise UnitError(f"{shown(text)} is not {EVENT_SOURCES}")


@dataclass(frozen=True, slots=True)
class UntilConsumed:
    """Whose unread records the topic's own retention must spare (P1), and how far it may be raised for that.

    ``max_ms`` is the largest ``retention.ms``, ``max_bytes`` the most that the topic may keep, of one replica each.
    """

    groups: tuple[str, ...]
    max_ms: int
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """One topic's settings after all entries and flags. Times are in ms; None means not set.

    ``consumed_after_ms`` is R1's T and ``forced_age_ms`` R4's A. ``forced_age_guarded`` says that A came
    from a one-off flag, which G2 guards. ``event_time_ms`` is R2's E and ``event_source`` where event times are:
    None means the record's own timestamp, unless the broker overwrites it. ``min_timestamp_ms`` is R3's M.
    ``min_wallclock_ms`` is G3's W, ``max_ahead_ms`` how far ahead of now G4 lets maxEventTime be.
    ``archive`` is the URL that records are written to before they are trimmed.
    ``named_in_full`` says that an entry's pattern is the topic's very name (G5). ``unsettled`` says why live
    settings are unknown: the topic is then held. ``max_bytes`` and ``max_topic_bytes`` are R5's.
    ``of_audit``: the audit log is copied to this topic (G5).
    ``whole_segments`` rounds bounds down to a segment's base offset (``granularity: segment``).
    ``watch_first_ms`` is how long groups must have been watched before R1 trims (F10).
    """

    consumed_after_ms: int | None = None
    watch_first_ms: int | None = None
    forced_age_ms: int | None = None
    forced_age_guarded: bool = False
    event_time_ms: int | None = None
    event_source: EventSource | None = None
    ignore_future: bool = False
    skip_unreadable: bool = False
    min_timestamp_ms: int | None = None
    allow_empty: bool = False
    min_wallclock_ms: int | None = None
    max_ahead_ms: int = DEFAULT_MAX_AHEAD_MS
    unconsumed: Literal["hold", "trim"] = "hold"
    trim_compacted: bool = False
    allow_ancient: bool = False
    archive: str | None = None
    hold: str | None = None
    named_in_full: bool = False
    require_groups: tuple[str, ...] = ()
    scan_records: int = DEFAULT_SCAN_RECORDS
    max_bytes: int | None = None
    max_topic_bytes: int | None = None
    whole_segments: bool = False
    trim_tiered: bool = False
    unsettled: Unknown | None = None
    of_audit: bool = False
    until_consumed: UntilConsumed | None = None


SourceKind = Literal["file", "command", "zookeeper", "checkpoint", "replica"]
SOURCE_KINDS: Final[tuple[SourceKind, ...]] = get_args(SourceKind)


@dataclass(frozen=True, slots=True)
class FloorSource:
    """Consumers outside Kafka's groups (F7), and where their positions are.

    ``topics`` are the patterns of what they may read if that is unknown, None for every managed topic. ``place`` is
    the path or URL of a file or a checkpoint; for a command the folder that it runs in; for ZooKeeper its hosts and
    chroot, of which ``groups`` are read that are not ``ignored``; for a replica the other cluster's context, with
    what MirrorMaker 2 calls this one (``alias``) and its copies, and its topics. What is older than ``max_age_ms`` is
    unknown.
    """

    kind: SourceKind
    name: str
    place: str = ""
    command: tuple[str, ...] = ()
    topics: tuple[str, ...] | None = None
    max_age_ms: int | None = DEFAULT_MAX_AGE_MS
    timeout_ms: int = DEFAULT_SOURCE_TIMEOUT_MS
    groups: tuple[str, ...] = ("*",)
    ignored: tuple[str, ...] = ()
    auth_file: str = ""
    remote_topics: str = ""
    alias: str = ""
    offset_syncs: str = ""
    connect_offsets: str = ""
    syncs_at: Literal["source", "target"] = "source"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Which consumers count (F1–F7): patterns for ignore and latest, names for require, sources outside Kafka's groups.

    ``remember_ms`` is how long a consumer that is gone still counts (F6), ``share`` whether share groups count at all.
    ``by_commits`` are patterns of groups whose members are not asked what they read (F3), ``stale_epochs`` of those
    whose commits' leader epochs say nothing (F5). ``offsets_hidden``: the provider hides the offsets topic (F9).
    ``start`` has how far back (ms) groups start where they have no commit (F2), by name; None: unknown.
    ``scope`` is the prefix of the groups that this user may describe, None if it must be all groups (F8).
    ``watch_first_ms`` is how long groups must have been watched before R1 trims (F10), None if not at all.
    """

    ignore: tuple[str, ...] = DEFAULT_IGNORED_GROUPS
    require: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()
    remember_ms: int = DEFAULT_REMEMBER_MS
    sources: tuple[FloorSource, ...] = ()
    share: Literal["count", "ignore"] = "count"
    by_commits: tuple[str, ...] = ()
    stale_epochs: tuple[str, ...] = ()
    offsets_hidden: bool = False
    scope: str | None = None
    start: tuple[tuple[str, int | None], ...] = ()
    watch_first_ms: int | None = None

    @property
    def watched(self) -> tuple[str, tuple[str, ...]]:
        """The groups that kretain sees by these rules (F10): the prefix of their names, and the patterns left out."""
        shares = ("\x01share",) if self.share == "ignore" else ()
        return self.scope or "", (*sorted({*self.ignore}), *shares)


@dataclass(frozen=True, slots=True)
class Limits:
    """A plan past one of these is refused (G6). None means no limit."""

    max_records: int | None = None
    max_bytes: int | None = None
    max_percent: float | None = None


@dataclass(frozen=True, slots=True)
class ApproveRules:
    """The policy's rules for approvals by a second person.

    ``keys`` are those who may approve, ``requesters`` those who may also sign a plan as theirs; if there are any, a
    plan needs such a signature. A trim above one of the amounts needs an approval; None: no such amount. Files are
    relative to ``folder``.
    """

    keys: tuple[str, ...] = ()
    requesters: tuple[str, ...] = ()
    max_records: int | None = None
    max_bytes: int | None = None
    max_unconsumed: int | None = None
    folder: Path = field(default_factory=Path)


@dataclass(frozen=True, slots=True)
class AuditRules:
    """The policy's rules for the audit log.

    ``max_bytes`` is from which size on a file is closed when the next run begins, ``topic`` the topic that lines are
    copied to. ``evidence`` is the URL that evidence is written to, None for next to the log, ``none`` for nowhere.
    ``sign`` is the private key that signs each run.
    """

    max_bytes: int = DEFAULT_AUDIT_FILE_BYTES
    topic: str | None = None
    evidence: str | None = None
    sign: Path | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """What a GiB costs a month, in a currency ('' if none is named); ``per_replica``: each replica costs that."""

    per_gib_month: float
    per_replica: bool = False
    currency: str = ""


@dataclass(frozen=True, slots=True)
class DiskRules:
    """The policy's rules for disks (R6 and R7).

    ``percent`` is R6's ceiling, None where it is off. ``capacity`` and ``reserved`` are bytes by ``BROKER:DIR``, by
    ``DIR`` or by ``*`` for all. ``devices`` are the groups of dirs that share a device, in the same notation.
    ``inventory`` are paths and globs, from the policy file's folder.
    """

    percent: float | None = None
    capacity: Mapping[str, int] = field(default_factory=dict)
    inventory: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[frozenset[str], ...] = ()
    shared: bool = False
    watermarks: tuple[Watermark, ...] = ()


@dataclass(frozen=True, slots=True)
class OneOff:
    """Rules given as flags, for this run only. ``patterns`` are the TOPIC arguments.

    They override a file's entries for the topics they match; without patterns, for all that it matches. If one of them
    is a trigger, the file's own triggers are off for every topic: a flag never trims what it does not name.
    """

    patterns: tuple[str, ...] = ()
    consumed_after_ms: int | None = None
    older_than_ms: int | None = None
    event_time_ms: int | None = None
    before_ms: int | None = None
    unconsumed: Literal["hold", "trim"] | None = None

    @property
    def any_rule(self) -> bool:
        """Whether any flag is set."""
        return self.any_trigger or self.unconsumed is not None

    @property
    def any_trigger(self) -> bool:
        """Whether any flag turns on a rule that may ask for a bound."""
        return not self.flags().keys().isdisjoint(TRIGGER_FLAGS)

    def origins(self, topic: str) -> dict[str, Origin]:
        """Return the keys that the flags set for a topic that they apply to."""
        given = {
            "retention.commitoffset.enable": (None if self.consumed_after_ms is None else True, "--consumed-after"),
            "retention.commitoffset.ms": (self.consumed_after_ms, "--consumed-after"),
            "retention.max.eventtime.ms": (self.event_time_ms, "--event-time"),
            "log.retention.min.timestamp": (self.before_ms, "--before"),
            "retention.ms": (self.older_than_ms, "--older-than"),
            "unconsumed": (self.unconsumed, "--unconsumed"),
            "match": (topic if self.any_trigger and topic in self.patterns else None, "TOPIC"),
        }
        return {key: Origin(value, place) for key, (value, place) in given.items() if value is not None}

    def flags(self) -> dict[str, int | str]:
        """Return the flags as a plan records them: their names, and values in ms or words."""
        given = {
            "--consumed-after": self.consumed_after_ms,
            "--event-time": self.event_time_ms,
            "--before": self.before_ms,
            "--older-than": self.older_than_ms,
            "--unconsumed": self.unconsumed,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: ``kretain.yaml:7``, ``--older-than`` or ``default``."""

    value: object
    place: str
