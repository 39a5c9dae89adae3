"""Facts, records and decisions about raised settings, as values (docs/rules.md, P1 to P6). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from retention_cli.core.model import Maybe, Reason
from retention_cli.policy.settings import UntilConsumed

Setting = Literal["retention.ms", "retention.bytes"]
SETTINGS: Final[tuple[Setting, ...]] = ("retention.ms", "retention.bytes")
State = Literal["changing", "raised", "restored", "released", "unreadable"]
Action = Literal["raise", "lower", "restore", "keep", "none", "release"]
Outcome = Literal["planned", "done", "failed"]
CHANGES: Final = frozenset({"raise", "lower", "restore"})


@dataclass(frozen=True, slots=True)
class Record:
    """What kretain did to one setting of a topic: the message in ``_kretain_protected``, and the ledger's copy.

    ``original`` is the topic's own value before kretain raised it, None if it had none, and ``limit`` what that came to
    then (None: no limit). ``value`` is what kretain set last, ``before`` what it replaced. ``changing`` is written
    before the request, so either may be live; ``raised`` and ``restored`` after it was read back. ``released``: another
    client set ``value``, so kretain leaves the setting alone; ``unreadable`` stands for a record that is not valid.
    ``after`` is the offset of the record that it goes on from, None for the first one. One that was put back is
    ``again`` the record of that offset, and ``after`` is the offset of the setting's last message.
    """

    topic: str
    topic_id: str
    setting: Setting
    state: State
    original: str | None
    limit: int | None
    value: str | None
    before: str | None
    run: str
    at_ms: int
    by: str
    after: int | None = None
    again: int | None = None

    @property
    def key(self) -> str:
        """The key of its message; a topic's name has no slash."""
        return f"{self.topic}/{self.setting}"


class Live(NamedTuple):
    """A setting now: the topic's own value, None if it has none, what counts, and what counted without its own value.

    The last two are limits, None if there is none.
    """

    own: str | None
    limit: int | None
    default: Maybe[int | None]


@dataclass(frozen=True, slots=True)
class Part:
    """What one required group has not read of a partition.

    ``age_ms`` is how old the oldest unread record is by its timestamp, ``tail_bytes`` what lies from there to the end,
    in one replica. ``size_bytes`` is of the whole replica. ``note`` says what was assumed of an unknown position.
    """

    number: int
    group: str
    age_ms: Maybe[int]
    tail_bytes: Maybe[int]
    size_bytes: Maybe[int]
    note: Reason | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that asks for protection. ``unread`` has a part per partition with unread records.

    ``unknown`` says of which partitions nothing is known. ``size_bytes`` is of one replica of each partition. ``disks``
    has the number of its replicas by disk. ``skip`` is why kretain never touches it.
    """

    topic: str
    topic_id: str
    rule: UntilConsumed
    live: Mapping[Setting, Live] = field(default_factory=dict)
    check_ms: int = 0
    unread: Sequence[Part] = ()
    unknown: Sequence[Reason] = ()
    size_bytes: Maybe[int] = 0
    partitions: int = 1
    disks: Mapping[str, int] = field(default_factory=dict)
    skip: Reason | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """How often protect runs (ms), and whether it may lower what it has raised."""

    every_ms: int
    lowers: bool = True

    def margin_ms(self, check_ms: int) -> int:
        """Return how long before a loss kretain acts: three passes, and a check of the brokers (P2)."""
        return 3 * self.every_ms + check_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """One setting of a topic: what to do, why, and what became of it.

    ``own`` is the topic's own value as it was read, None if it has none. ``old`` and ``new`` are limits (None: none),
    ``original`` what the setting is restored to. ``left_ms`` is how long the oldest unread record has under the live
    value, None if nothing ends it. ``extra_bytes`` is about how much more ``new`` keeps than the original does, one
    replica of each partition.
    """

    topic: str
    topic_id: str
    setting: Setting
    action: Action
    own: str | None
    old: int | None
    new: int | None
    original: int | None
    group: str | None = None
    partition: int | None = None
    left_ms: int | None = None
    extra_bytes: int | None = None
    reasons: Sequence[Reason] = ()
    outcome: Outcome | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Protection:
    """All settings of the topics that ask for protection, and notes."""

    cluster_id: str
    bootstrap: str
    rows: Sequence[Decision]
    notes: Sequence[Reason] = ()

    @property
    def changes(self) -> list[Decision]:
        """The rows with a change, or with a setting to release."""
        return [one for one in self.rows if one.action in CHANGES or one.action == "release"]

    @property
    def failed(self) -> list[Decision]:
        """The changes that failed."""
        return [one for one in self.rows if one.outcome == "failed"]

    @property
    def raised(self) -> int:
        """How many settings are above their originals now."""
        ends = (
            (one.old if one.outcome == "failed" else one.new, one.original)
            for one in self.rows
            if one.action in ("raise", "lower", "restore", "keep")
        )
        return sum(now is not None and was is not None and now > was for now, was in ends)
