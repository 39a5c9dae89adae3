"""Facts and decisions: frozen values that every room shares.

An offset is an ``int`` or it is :class:`Unknown` with its reason. No sentinel (−1, None) stands for a
number anywhere: what a broker answers in sentinels ends in ``brokers/``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union

Action = Literal["trim", "keep", "hold", "skip"]
Rule = Literal["consumed", "event-time", "min-timestamp", "forced-age", "size", "disk-usage"]
GuardCode = Literal["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"]
CleanupPolicy = frozenset[str]
TimestampType = Literal["CreateTime", "LogAppendTime"]

ANCIENT_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z in Unix ms: what is stamped before it was stamped in seconds (G9)."""

INFINITE_MS: Final = -1
"""Kafka's own word for "no time limit" in ``retention.ms``."""


NO_INVENTORY: Final = (
    "granularity: segment needs an inventory: make one with kretain segments scan on each broker, and give it with "
    "--inventory"
)


class TopicPartition(NamedTuple):
    """A partition of a topic, by name and index. A tuple: it is hashed by the million."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """Why something is as it is: the rule, guard or floor behind it, and a sentence for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read. It holds what depends on it, and says why."""

    reasons: tuple[Reason, ...]

    @classmethod
    def because(cls, code: str, text: str) -> Unknown:
        """Return an unknown with one reason."""
        return cls((Reason(code, text),))


T = TypeVar("T")
Maybe = Union[T, Unknown]  # noqa: UP007  (mypy takes no generic alias written with |)


class LookUp(NamedTuple):
    """The answer of ``offset_at(T)``: every record before ``offset`` is older than T (docs/rules.md, Look-ups).

    ``note`` says what a person should know of how it was found, such as that reading stopped early.
    ``timestamp`` is the time (Unix ms) of the record that ends the prefix, where the broker named one; ``record`` is
    that record's own offset, where it was read.
    """

    offset: int
    note: Reason | None = None
    timestamp: int | None = None
    record: int | None = None


class EventPrefix(NamedTuple):
    """Every record before ``offset`` has an event time older than R2's cutoff, read out of the records (R2).

    ``note`` and ``timestamp`` are as a :class:`LookUp`'s. ``ancient`` is the offset of the first record before it whose
    event time lies before 2000, and ``ancient_ms`` that time (G9); None where there is none.
    """

    offset: int
    note: Reason | None = None
    timestamp: int | None = None
    ancient: int | None = None
    ancient_ms: int | None = None


class EventMax(NamedTuple):
    """The largest event time of a partition's data, ever (R2), in Unix ms, and the record's offset.

    Where it is not ``exact`` it is a safe lower bound: the largest that could be seen.
    """

    time_ms: int
    offset: int | None = None
    exact: bool = True

    @property
    def rank(self) -> tuple[int, int]:
        """What two are compared by: of equal times, the later record's is taken."""
        return self.time_ms, -1 if self.offset is None else self.offset


class Watermark(NamedTuple):
    """From ``percent`` of a disk on, times count ``factor`` of what they are, but no less than the minimum (R7)."""

    percent: float
    factor: float
    minimum_ms: int


class Usage(NamedTuple):
    """The highest watermark reached on any disk that holds a replica of a partition (R7)."""

    disk: str
    percent: float
    mark: Watermark


class Tail(NamedTuple):
    """The smallest offset whose tail fits (R5); ``exact`` where ``by`` an inventory, or by what was read."""

    offset: int
    exact: bool
    by: str = "the inventory"


class Sample(NamedTuple):
    """At our wall clock ``wall_ms`` (Unix ms) the high watermark was ``high_watermark``.

    Every offset below it was written at or before then (G3).
    """

    wall_ms: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Floor:
    """The smallest committed offset over every consumer that counts (F1), and whose it is.

    ``by`` is the consumer as ``kind:name`` (``group:billing``). ``notes`` say what is odd but known.
    """

    offset: int
    by: str
    notes: tuple[Reason, ...] = ()


# Made once: they stand in every fact that was not read.
_NO_TIMESTAMP_TYPE: Final = Unknown.because("topic-settings", "message.timestamp.type was not read")
NO_EVENT_TIMES: Final = Unknown.because("R2", "event times were not read")
NO_SIZE: Final = Unknown.because("size", "not read")
TIERED_SIZE: Final = Unknown.because("size", "it has remote storage, and brokers name the size of what is local alone")
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_NO_BASES: Final = Unknown.because("granularity", NO_INVENTORY)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What is true of a whole topic. ``retention_ms`` is the live ``retention.ms``, −1 for infinite.

    ``timestamp_type`` is whose time the broker stamps records with (``message.timestamp.type``). ``tiered`` says that
    it has remote storage.
    """

    name: str
    topic_id: Maybe[str]
    internal: bool
    cleanup_policy: Maybe[CleanupPolicy]
    retention_ms: Maybe[int]
    timestamp_type: Maybe[TimestampType] = _NO_TIMESTAMP_TYPE
    tiered: bool = False


class PartitionFacts(NamedTuple):
    """Everything :func:`~retention_cli.decide.decision.decide` may know of one partition.

    A tuple: made in a sixth of the time.

    ``log_start`` is S, ``high_watermark`` H, ``last_stable_offset`` L. ``lookups`` maps a time in Unix
    ms to ``offset_at`` of it; ``data_lookups`` does so for R2 and R3, where the answer must be a data record and
    no transaction marker. ``newest`` is maxEventTime, None where the partition holds no data record and none is
    remembered. ``event_prefix`` is R2's bound where event times are read out of records. ``samples`` are the
    ledger's, oldest first. ``stamped_below`` is G3's: below it, timestamps are producers', also where the topic is
    LogAppendTime by now. ``clock`` is unknown where ours and the brokers' differ (G8). ``size_bytes`` is the
    leader replica's size on disk. ``usage`` is R7's, None where no watermark is reached; ``tails`` are R5's, by the
    policy's key. ``segment_bases`` are the base offsets of the leader's segments, sorted, by an inventory.
    ``leader_epoch`` is the one under which all of this was read, None where it was not told.
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
        """Whether it is known to hold no record (S = H)."""
        return not isinstance(self.log_start, Unknown) and self.log_start == self.high_watermark


class Decision(NamedTuple):
    """What is to happen to one partition, and why (docs/rules.md, Deciding). A tuple, as facts are.

    ``trim_to`` is the new log start offset, None unless ``action`` is trim. ``records`` counts the
    offsets that go, ``unconsumed`` those of them that some counting consumer has not read, ``size_bytes``
    what they take on the leader, None where that can't be told; ``size_exact`` where an inventory says so to the byte.
    ``leader_epoch`` says of which life of the log all this is (M1).
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
    rule: Rule | None
    limited_by: GuardCode | None
    reasons: tuple[Reason, ...]
    size_exact: bool = False
    leader_epoch: int | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition's name."""
        return TopicPartition(self.topic, self.partition)


def known(value: Maybe[T]) -> T | None:
    """Return the value, or None where it is unknown: for output, never for arithmetic."""
    return None if isinstance(value, Unknown) else value
