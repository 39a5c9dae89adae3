"""A forecast, as values: rates in offsets per ms, amounts as spans, what can't be told as unknown with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from retention_cli.core.codes import Code
from retention_cli.core.model import Maybe, Reason
from retention_cli.disks.disk import Disk
from retention_cli.forecast.rates import Rate, Span
from retention_cli.memory.disk import Growth
from retention_cli.policy.settings import Prices

Cause = Literal[Code.R2, Code.R4, Code.R5, Code.R6, "retention.ms", "retention.bytes", "gone"]
"""What takes the record first; ``gone``: the group stands below the log start offset."""


class Loss(NamedTuple):
    """When a group loses records, and to what.

    ``if_stopped_ms`` is how long until its oldest unread record goes, if it reads nothing from now on: a low of 0 may
    mean now, and a high without end that nothing says by when. ``at_its_rate_ms`` is the same if it goes on reading as
    fast as it was seen to; without end if it keeps up. ``age_known`` is false if the record is older than the
    ledger's samples, and not due for certain: a low of 0 is then only the least that can be said.
    """

    cause: Cause
    if_stopped_ms: Span
    at_its_rate_ms: Maybe[Span]
    age_known: bool = True

    @property
    def sure(self) -> bool:
        """Whether the low of ``if_stopped_ms`` is measured, and not for want of samples."""
        return self.age_known or self.if_stopped_ms.low > 0


class Amounts(NamedTuple):
    """Records, and the bytes that they take in one replica of each partition."""

    records: Maybe[Span]
    size_bytes: Maybe[Span]


@dataclass(frozen=True, slots=True)
class TopicForecast:
    """A topic: what it has now, what brokers alone keep of it in steady state, and what the policy keeps.

    ``by`` are the rules whose word that is, joined by commas; ``brokers`` where no rule keeps less than they do.
    ``reasons`` are why something is unknown, or which rules can't act now.
    """

    name: str
    partitions: int
    now: Amounts
    rate: Maybe[Rate]
    alone: Amounts
    policy: Amounts
    by: str
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """A group on a topic: its lag over all partitions, and the loss on the partition where it comes first.

    ``unread_ms`` is how long ago the oldest record that it has yet to read there was written.
    """

    group: str
    topic: str
    partition: int
    lag: int
    unread_ms: Span
    loss: Maybe[Loss]


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """A disk: how long until it is full if brokers alone delete, and if the policy trims, too (ms).

    ``growth`` is as measured by the ledger's looks, with whatever was trimmed meanwhile. ``ceiling`` is how long the
    policy's other rules keep it below R6's ceiling, None if there is none. ``still_bytes`` of its used bytes are taken
    to stay as they are: other users' of the disk, topics that the policy does not manage, and compacted ones.
    """

    disk: Disk
    percent: float | None
    growth: Maybe[Growth]
    alone: Maybe[Span]
    policy: Maybe[Span]
    ceiling: Maybe[Span] | None
    still_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over the topics of which all is known and has an end; the others are counted.

    ``saved`` is how much less the policy keeps than brokers alone. ``endless`` topics grow without end if brokers alone
    delete, ``growing`` under the policy, too. ``ended`` is what the policy keeps of those that would grow without it
    alone.
    """

    topics: int
    known: int
    unknown: int
    endless: int
    growing: int
    now: Amounts
    alone: Amounts
    policy: Amounts
    saved: Amounts
    ended: Amounts


class Bill(NamedTuple):
    """Money: what is there now costs a month, what trims have saved so far, and a month what the policy saves.

    ``unread`` is what the policy would also save a month if no consumer were behind. Past savings are a bound: the
    high is at most what they were.
    """

    now: Maybe[Span]
    so_far: Maybe[Span]
    saves: Maybe[Span]
    unread: Maybe[Span]


@dataclass(frozen=True, slots=True)
class TopicBill:
    """A topic's money, its labels, and by consumer what a month it costs that this consumer is behind."""

    topic: str
    labels: Mapping[str, str]
    bill: Bill
    by_consumer: Mapping[str, Maybe[Span]]


@dataclass(frozen=True, slots=True)
class Bills:
    """All topics' money, and its prices."""

    prices: Prices
    topics: Sequence[TopicBill]


@dataclass(frozen=True, slots=True)
class Forecast:
    """All of it, for one policy. Trims are ``every_ms`` apart; rates were measured over at least ``least_ms``.

    ``bills`` is what it comes to in money, None without prices.
    """

    created_at_ms: int
    cluster_id: str
    bootstrap: str
    policy_source: str
    policy_digest: str
    every_ms: int
    least_ms: int
    topics: Sequence[TopicForecast]
    groups: Sequence[GroupForecast]
    disks: Sequence[DiskForecast]
    totals: Totals
    notes: Sequence[Reason] = ()
    bills: Bills | None = None
