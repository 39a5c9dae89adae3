"""Facts and decisions: frozen values that every package shares.

An offset is an ``int``, or :class:`Unknown` with its reason. No sentinel (−1, None) stands for a number anywhere:
brokers' sentinels don't leave ``brokers/``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, ParamSpec, Self, TypeVar, Union

Action = Literal["trim", "keep", "hold", "skip"]
CleanupPolicy = frozenset[str]
TimestampType = Literal["CreateTime", "LogAppendTime"]

ANCIENT_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z in Unix ms: an earlier timestamp was probably written in seconds (G9)."""

INFINITE_MS: Final = -1
"""Kafka's value for "no time limit" in ``retention.ms``."""


NO_INVENTORY: Final = (
    "granularity: segment needs an inventory: make one with kretain segments scan on each broker, and give it with "
    "--inventory"
)


RuleName = Literal["consumed", "event-time", "min-timestamp", "forced-age", "size", "disk-usage"]
"""What a plan's ``rule`` says."""


class Code(StrEnum):
    """A code of docs/rules.md, as reasons and plans have it.

    ``rule`` is the rule's other name; guards, floors and R7 (R1 or R4 with shorter times) have none.
    """

    rule: RuleName | None

    def __new__(cls, code: str, rule: RuleName | None = None) -> Self:
        """Return the member; it is the code as text."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.rule = rule
        return member

    R1 = "R1", "consumed"
    R2 = "R2", "event-time"
    R3 = "R3", "min-timestamp"
    R4 = "R4", "forced-age"
    R5 = "R5", "size"
    R6 = "R6", "disk-usage"
    R7 = "R7"
    G1 = "G1"
    G2 = "G2"
    G3 = "G3"
    G4 = "G4"
    G5 = "G5"
    G6 = "G6"
    G7 = "G7"
    G8 = "G8"
    G9 = "G9"
    F1 = "F1"
    F2 = "F2"
    F3 = "F3"
    F4 = "F4"
    F5 = "F5"
    F6 = "F6"
    F7 = "F7"
    F8 = "F8"
    F9 = "F9"
    F10 = "F10"
    M4 = "M4"


class TopicPartition(NamedTuple):
    """A partition of a topic, by name and index. A tuple, as millions are hashed."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """A reason: ``code`` is the rule, guard or other cause, ``text`` a sentence for display."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read, and why. All that depends on it is held."""

    reasons: tuple[Reason, ...]

    @classmethod
    def because(cls, code: str, text: str) -> Unknown:
        """Return an unknown with one reason."""
        return cls((Reason(code, text),))


P = ParamSpec("P")
T = TypeVar("T")
Maybe = Union[T, Unknown]  # noqa: UP007  (mypy takes no generic alias written with |)


class LookUp(NamedTuple):
    """The answer of ``offset_at(T)``: every record before ``offset`` is older than T (docs/rules.md, Look-ups).

    ``note`` is a remark on how it was found, such as that reading stopped early. ``timestamp`` is the time (Unix ms)
    of the record that ends the prefix, if the broker returned one; ``record`` is that record's own offset, if it was
    read.
    """

    offset: int
    note: Reason | None = None
    timestamp: int | None = None
    record: int | None = None


class EventPrefix(NamedTuple):
    """Every record before ``offset`` has an event time older than R2's cutoff, as read from the records (R2).

    ``note`` and ``timestamp`` are as in :class:`LookUp`. ``ancient`` is the offset of the first record before
    ``offset`` whose event time is before 2000, and ``ancient_ms`` that time (G9); None if there is none.
    """

    offset: int
    note: Reason | None = None
    timestamp: int | None = None
    ancient: int | None = None
    ancient_ms: int | None = None


class EventMax(NamedTuple):
    """The newest event time that a partition's data ever had (R2), in Unix ms, and the record's offset.

    If it is not ``exact``, it is a safe lower bound: the largest that could be read.
    """

    time_ms: int
    offset: int | None = None
    exact: bool = True

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key: of equal times, the later record's is larger."""
        return self.time_ms, -1 if self.offset is None else self.offset


class Watermark(NamedTuple):
    """From ``percent`` of disk usage on, times are multiplied by ``factor``, but stay at least ``minimum_ms`` (R7)."""

    percent: float
    factor: float
    minimum_ms: int


class Usage(NamedTuple):
    """The highest watermark reached on any disk with a replica of a partition (R7)."""

    disk: str
    percent: float
    mark: Watermark


class Tail(NamedTuple):
    """The smallest offset whose tail fits (R5); ``exact``: it is by an inventory."""

    offset: int
    exact: bool


class Sample(NamedTuple):
    """The high watermark at this machine's time ``wall_ms`` (Unix ms).

    Every offset below it was written at or before then (G3).
    """

    wall_ms: int
    high_watermark: int


class Floor(NamedTuple):
    """The smallest committed offset over every consumer that counts (F1), and the consumer.

    ``by`` is the consumer as ``kind:name`` (``group:billing``). ``notes`` are known oddities.
    """

    offset: int
    by: str
    notes: tuple[Reason, ...] = ()


# Made once, as they are the value of every fact that was not read.
_NO_TIMESTAMP_TYPE: Final = Unknown.because("topic-settings", "message.timestamp.type was not read")
NO_EVENT_TIMES: Final = Unknown.because(Code.R2, "event times were not read")
NO_SIZE: Final = Unknown.because("size", "not read")
_DISKLESS_SIZE: Final = Unknown.because(
    "size", "it is diskless: brokers do not report how much of it is in object storage"
)
_TIERED_SIZE: Final = Unknown.because("size", "it has remote storage: brokers report only the size of the local part")
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_NO_BASES: Final = Unknown.because("granularity", NO_INVENTORY)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts of a topic. ``retention_ms`` is the live ``retention.ms``, −1 for infinite.

    ``timestamp_type`` is ``message.timestamp.type``. ``tiered``: the topic has remote storage
    (KIP-405). ``diskless``: its records are in object storage, on no broker's disk (KIP-1150).
    """

    name: str
    topic_id: Maybe[str]
    internal: bool
    cleanup_policy: Maybe[CleanupPolicy]
    retention_ms: Maybe[int]
    timestamp_type: Maybe[TimestampType] = _NO_TIMESTAMP_TYPE
    tiered: bool = False
    diskless: bool = False

    @property
    def on_disks(self) -> bool:
        """Whether all of its records are on brokers' disks."""
        return not (self.tiered or self.diskless)

    @property
    def unsized(self) -> Unknown | None:
        """Why brokers do not know how large the topic is; None if all of it is on their disks."""
        return _DISKLESS_SIZE if self.diskless else _TIERED_SIZE if self.tiered else None


class PartitionFacts(NamedTuple):
    """All facts that :func:`~retention_cli.decide.decision.decide` uses for one partition.

    It is a tuple, which is made in a sixth of the time.

    ``log_start`` is S, ``high_watermark`` H, ``last_stable_offset`` L. ``lookups`` maps a time in Unix
    ms to ``offset_at`` of it; ``data_lookups`` does so for R2 and R3, where the answer must be a data record and
    not a transaction marker. ``newest`` is maxEventTime, None if the partition has no data record and none is
    remembered. ``event_prefix`` is R2's bound if event times are read from records. ``samples`` are the ledger's,
    oldest first. ``stamped_below`` is for G3: below it, timestamps are producers', even if the topic is LogAppendTime
    now. ``clock`` is unknown if this machine's clock and the brokers' differ (G8). ``watched_since_ms`` is since when
    kretain has watched the cluster's groups (F10), None if not before now. ``size_bytes`` is the leader replica's size
    on disk. ``usage`` is for R7, None if no watermark is reached; ``tails`` are R5's bounds, by the policy's key.
    ``segment_bases`` are the base offsets of the leader's segments from an inventory, sorted. ``leader_epoch`` is the
    one in which all of this was read, None if unknown.
    """

    topic: TopicFacts
    partition: int
    log_start: Maybe[int]
    high_watermark: Maybe[int]
    last_stable_offset: Maybe[int]
    floor: Maybe[Floor]
    lookups: Mapping[int, Maybe[LookUp]] = _NOTHING
    data_lookups: Mapping[int, Maybe[LookUp]] = _NOTHING
    newest: Maybe[EventMax | None] = NO_EVENT_TIMES
    event_prefix: Maybe[EventPrefix] = NO_EVENT_TIMES
    samples: Maybe[Sequence[Sample]] = ()
    stamped_below: Maybe[int] = 0
    clock: Unknown | None = None
    watched_since_ms: int | None = None
    size_bytes: Maybe[int] = NO_SIZE
    usage: Maybe[Usage | None] = None
    tails: Mapping[str, Maybe[Tail]] = _NOTHING
    segment_bases: Maybe[Sequence[int]] = _NO_BASES
    has_leader: bool = True
    leader_epoch: int | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition's name."""
        return TopicPartition(self.topic.name, self.partition)

    @property
    def empty(self) -> bool:
        """Whether the partition is known to have no record (S = H)."""
        return not isinstance(self.log_start, Unknown) and self.log_start == self.high_watermark


class Decision(NamedTuple):
    """The decision for one partition, and why (docs/rules.md, Deciding). A tuple, as facts are.

    ``trim_to`` is the new log start offset, None unless ``action`` is trim. ``records`` counts the trimmed offsets,
    ``unconsumed`` those of them that at least one counting consumer has not read, ``size_bytes`` their bytes on the
    leader, None if unknown; ``size_exact``: the size is from an inventory, exact to the byte. ``leader_epoch``
    identifies the log that all of this is about (M1).
    """

    topic: str
    topic_id: str | None
    partition: int
    action: Action
    log_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    min_commit: int | None
    min_commit_by: str | None
    trim_to: int | None
    records: int
    size_bytes: int | None
    unconsumed: int
    rule: RuleName | None
    limited_by: Code | None
    reasons: tuple[Reason, ...]
    size_exact: bool = False
    leader_epoch: int | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition's name."""
        return TopicPartition(self.topic, self.partition)


def known(value: Maybe[T]) -> T | None:
    """Return the value, None if it is unknown: for output, never for arithmetic."""
    return None if isinstance(value, Unknown) else value


class _NotKnownError(Exception):
    """Ends a calculation, and carries the unknown fact; never leaves :func:`or_unknown`."""


def certain(value: Maybe[T]) -> T:
    """Return a known fact; end the calculation if it is unknown. Only for use within :func:`or_unknown`."""
    if isinstance(value, Unknown):
        raise _NotKnownError(value)
    return value


def or_unknown(calculation: Callable[P, T]) -> Callable[P, Maybe[T]]:
    """Make a calculation return unknown if it meets an unknown fact."""

    @functools.wraps(calculation)
    def calculate(*args: P.args, **kwargs: P.kwargs) -> Maybe[T]:
        try:
            return calculation(*args, **kwargs)
        except _NotKnownError as met:
            found: Unknown = met.args[0]
            return found

    return calculate
