"""What a topic's retention settings should be while required groups lag, and were (docs/rules.md, P1 to P6). Pure.

Losing unread records is worse than keeping too many, within the policy's maxima and the disks' ceiling. So an unknown
position counts as nothing read, and what is unknown never lowers a setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.units import format_bytes, format_duration
from retention_cli.policy.settings import UntilConsumed

Setting = Literal["retention.ms", "retention.bytes"]
SETTINGS: Final[tuple[Setting, ...]] = ("retention.ms", "retention.bytes")
State = Literal["changing", "raised", "restored", "released", "unreadable"]
Action = Literal["raise", "lower", "restore", "keep", "none", "release"]
Outcome = Literal["planned", "done", "failed"]
CHANGES: Final = frozenset({"raise", "lower", "restore"})
_STEP: Final = 20
"""A value is raised by a twentieth of the original at least, so that a long pause does not need a change per pass."""
_SOON_MS: Final = 60_000
"""Rates are measured over the age of the oldest unread record, and over a minute at least: one burst is no rate."""
_UNEVEN: Final = 1.25
"""How much more than their share of a log the unread bytes may be, as records differ in size."""


@dataclass(frozen=True, slots=True)
class Record:
    """What kretain did to one setting of a topic: the message in ``_kretain_protected``, and the ledger's copy.

    ``original`` is the topic's own value before kretain raised it, None if it had none, and ``limit`` what that came to
    then (None: no limit). ``value`` is what kretain set last, ``before`` what it replaced. ``changing`` is written
    before the request, so either may be live; ``raised`` and ``restored`` after it was read back. ``released``: another
    client set ``value``, so kretain leaves the setting alone; ``unreadable`` stands for a record that is not valid.
    ``after`` is the offset of the record that it continues, None for the first one. One that was put back is
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

    The last two are limits, None if there is none. While brokers' defaults differ, the least counts, and ``above`` has
    the others.
    """

    own: str | None
    limit: int | None
    default: Maybe[int | None]
    above: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    """What one required group has not read of a partition: from ``offset`` on, of the log's ``span`` (end exclusive).

    ``note`` says what was assumed of an unknown position. ``age_ms`` is how old the oldest unread record is by its
    timestamp, ``size_bytes`` the size of the replica.
    """

    group: str
    offset: int
    span: tuple[int, int]
    note: Reason | None = None
    age_ms: Maybe[int] = 0
    size_bytes: Maybe[int] = 0

    @property
    def tail_bytes(self) -> Maybe[int]:
        """About how many bytes lie from the oldest unread record to the end, in one replica."""
        start, end = self.span
        share = (end - self.offset) / max(1, end - start)
        return self.size_bytes if isinstance(self.size_bytes, Unknown) else round(self.size_bytes * share)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that asks for protection. ``unread`` has the partitions with unread records.

    ``unknown`` says which partitions are unknown. ``size_bytes`` is of one replica of each partition. ``disks`` has the
    number of its replicas by disk. ``skip`` is why kretain never touches it.
    """

    topic: str
    topic_id: str
    rule: UntilConsumed
    live: Mapping[Setting, Live] = field(default_factory=dict)
    check_ms: int = 0
    unread: Mapping[int, Unread] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class Decision:
    """One setting of a topic: what to do, why, and the outcome.

    ``record`` is what kretain did to it last; if nothing, as if it had just restored it. ``own`` is the topic's own
    value as it was read, None if it has none. ``old`` and ``new`` are limits (None: none), ``original`` is what the
    setting is restored to. ``left_ms`` is how long the oldest unread record has under the live value, None if nothing
    ends it. ``extra_bytes`` is about how much more ``new`` keeps than the original does, one replica of each partition.
    """

    topic: str
    topic_id: str
    setting: Setting
    action: Action
    own: str | None
    old: int | None
    new: int | None
    original: int | None
    record: Record
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


class Needed(NamedTuple):
    """What a setting must be now to spare the oldest unread record, and by how much that grows in a millisecond."""

    partition: int
    now: float
    rate: float

    def after(self, time_ms: int) -> float:
        """Return what it must be after a time."""
        return self.now + time_ms * self.rate


@dataclass(slots=True)
class Rooms:
    """The bytes left below the ceiling, by disk, as decisions use them up; unknown where a disk can't be read."""

    left: dict[str, Maybe[int]]
    ceiling: bool

    def room(self, disks: Mapping[str, int]) -> tuple[float, str]:
        """Return the bytes that each replica of a topic has on its fullest disk, and that disk.

        An unknown disk has no room if the policy has a ceiling, and any otherwise.
        """
        unknown = 0.0 if self.ceiling else math.inf
        rooms = ((self.left.get(name), replicas, name) for name, replicas in disks.items())
        each = ((left / replicas if isinstance(left, int) else unknown, name) for left, replicas, name in rooms)
        return min(each, default=(math.inf, ""))

    def use(self, disks: Mapping[str, int], each: float) -> None:
        """Take what each replica will keep more. What it will keep less makes up for an excess, and is no room yet."""
        for name, replicas in disks.items():
            if isinstance(left := self.left.get(name), int):
                most = left if each > 0 else max(left, 0)
                self.left[name] = min(most, left - round(each * replicas))


def decide_all(
    topics: Sequence[TopicFacts], records: Mapping[tuple[str, Setting], Record], terms: Terms, rooms: Rooms
) -> list[Decision]:
    """Return the decision about each setting. Topics that share a disk share its room, in the order given.

    Times come first: how many bytes a partition grows by is the less certain estimate, and must not take their room.
    """
    made = [decide(one, key, records.get((one.topic, key)), terms, rooms) for key in SETTINGS for one in topics]
    planned = (replace(one, outcome="planned") if one.action in CHANGES else one for one in made)
    return sorted(planned, key=lambda one: one.topic)


def decide(facts: TopicFacts, setting: Setting, record: Record | None, terms: Terms, rooms: Rooms) -> Decision:
    """Return the decision about one setting of a topic."""
    live = facts.live[setting]
    place = facts.topic, facts.topic_id, setting
    known = record or Record(*place, "restored", live.own, live.limit, live.own, None, "", 0, "")
    original = live.default if record is not None and record.original is None else known.limit
    if isinstance(original, Unknown):  # that is no reason to lose what is unread
        terms, facts = replace(terms, lowers=False), replace(facts, unknown=(*facts.unknown, *original.reasons))
        original = known.limit
    action: Action = "none" if live.own == known.original else "keep"  # none, too, if an open change was not made
    base = Decision(*place, action, live.own, live.limit, live.limit, original, known)
    if known.state in ("unreadable", "released") or live.own not in expected(known):
        return _not_ours(base, known, live)
    if facts.skip is not None:
        return replace(base, reasons=(facts.skip,))
    if live.limit is None:
        return base
    if original is None:
        return replace(base, action="restore", new=None)
    return _bounded(base, facts, terms, rooms)


def current(records: Mapping[tuple[str, Setting], Record], ids: Mapping[str, str]) -> dict[tuple[str, Setting], Record]:
    """Return the records of settings that may not be their originals now, of topics with these ids."""
    return {
        key: one
        for key, one in records.items()
        if one.state == "unreadable" or (one.state != "restored" and one.topic_id == ids.get(one.topic))
    }


def expected(record: Record) -> tuple[str | None, ...]:
    """Return the topic's own values that kretain may have left. After a crash either may be live (P5)."""
    return (record.before, record.value) if record.state == "changing" else (record.value,)


def _not_ours(base: Decision, record: Record, live: Live) -> Decision:
    action: Action = "none"
    match record.state:
        case "unreadable":
            text = (
                f"the record of {record.key} in _kretain_protected can't be read: kretain leaves it alone until "
                "kretain protect --resume"
            )
        case "released":
            text = f"another client set it: kretain leaves it alone until kretain protect --resume {base.topic}"
        case _:
            action, there = "release", "removed it" if live.own is None else f"set it to {live.own}"
            text = (
                f"another client {there}, so that counts (kretain had set {record.value}, the original was "
                f"{'the default' if record.original is None else record.original}): kretain protect --resume "
                f"{base.topic} lets kretain raise it again"
            )
    return replace(base, action=action, reasons=(Reason("protect", text),))


def _needed(setting: Setting, partition: int, one: Unread) -> Needed:
    age = math.inf if isinstance(one.age_ms, Unknown) else float(max(0, one.age_ms))
    if setting == "retention.ms":
        return Needed(partition, age, 1.0)
    if isinstance(one.tail_bytes, Unknown):
        return Needed(partition, math.inf, 1.0)
    tail = one.tail_bytes * _UNEVEN
    return Needed(partition, tail, tail / max(_SOON_MS, age))


def _bounded(base: Decision, facts: TopicFacts, terms: Terms, rooms: Rooms) -> Decision:
    live, original = base.old or 0, base.original or 0
    margin = 3 * terms.every_ms + facts.check_ms  # how long before a loss kretain acts (P2)
    needs = [_needed(base.setting, number, one) for number, one in facts.unread.items()]
    first = max(needs, key=lambda one: (one.after(margin), -one.partition), default=None)
    raised = base.action == "keep"
    reasons = [*facts.unknown, *dict.fromkeys(one.note for one in facts.unread.values() if one.note is not None)]
    wanted: float = live
    if first is not None and first.after(margin) > live:
        wanted = max(first.after(2 * margin), first.after(margin) + original / _STEP)
    elif raised and not facts.unknown and all(one.after(2 * margin) <= original for one in needs):
        wanted = original
    if wanted == math.inf and base.setting == "retention.bytes" and facts.rule.max_bytes is None:
        wanted = live
        reasons.append(
            Reason("protect", "sizes on disk are unknown, so retention.bytes is not raised without max.bytes")
        )
    each = _bytes_each(base.setting, facts)
    most, why = min(_caps(base.setting, facts, live, each, rooms), key=lambda one: one[0])
    if first is not None:
        if first.after(margin) > most:
            reasons.append(Reason("protect", why))
        left_ms = int(max(0.0, (live - first.now) / first.rate)) if first.rate else None  # None: nothing grows
        base = replace(base, group=facts.unread[first.partition].group, partition=first.partition, left_ms=left_ms)
    new = int(min(max(original, min(wanted, most)), 2**63 - 1))
    if new > live and (above := facts.live[base.setting].above):
        new = _not_below(above, new, live, most)
        if new == live:
            reasons.append(
                Reason(
                    "protect",
                    f"brokers have different defaults of {base.setting}, and one keeps more than kretain may set: set "
                    f"it for topic {base.topic}, or make them equal",
                )
            )
    if new < live and not (raised and terms.lowers):
        new = live
    if new != live:
        rooms.use(facts.disks, 0.0 if math.isinf(each) else each * (new - live))
    return replace(
        base,
        action=_action(base.action, new, live, original, terms),
        new=new,
        extra_bytes=None if math.isinf(each) else round(each * (new - original) * facts.partitions),
        reasons=tuple(reasons),
    )


def _action(base: Action, new: int, live: int, original: int, terms: Terms) -> Action:
    """Return what a new value means; ``base`` is ``keep`` if kretain has raised the setting."""
    if base == "keep" and new == original and (new > live or terms.lowers):
        return "restore"
    return base if new == live else "raise" if new > live else "lower"


def _not_below(above: Sequence[int | None], new: int, live: int, most: float) -> int:
    """Return a new value that is not less than any broker's default, ``live`` if there is none (P4)."""
    largest = max((one for one in above if one is not None), default=0)
    return live if None in above or largest > most else max(new, largest)


def _caps(setting: Setting, facts: TopicFacts, live: int, each: float, rooms: Rooms) -> Iterable[tuple[float, str]]:
    """Yield how large a setting may be by each bound, and what to say where that is too small (P3, P4)."""
    most_ms, most_bytes = facts.rule.max_ms, facts.rule.max_bytes
    if setting == "retention.ms":
        yield most_ms, f"max: {format_duration(most_ms)} is too short to keep all unread records"

    def at(room: float) -> float:
        if not each:
            return live if room == 0 else math.copysign(math.inf, room)
        return math.inf if math.isinf(room) else live + room / each

    if most_bytes is not None:
        size = live * facts.partitions if setting == "retention.bytes" else facts.size_bytes
        left = 0.0 if isinstance(size, Unknown) else (most_bytes - size) / facts.partitions
        yield at(left), f"max.bytes: {format_bytes(most_bytes)} leaves no room to keep all unread records"
    room, disk = rooms.room(facts.disks)
    what = "its ceiling (R6)" if rooms.ceiling else "its end"
    yield at(room), f"{disk} is too close to {what}: what is unread may be deleted"


def _bytes_each(setting: Setting, facts: TopicFacts) -> float:
    """Return how many bytes one more unit of a setting keeps, in one replica of one partition; infinite if unknown."""
    if setting == "retention.bytes":
        return 1.0
    size = facts.size_bytes
    if isinstance(size, Unknown):
        return math.inf
    seen = [
        (one.tail_bytes / max(_SOON_MS, one.age_ms), one.size_bytes)
        for one in facts.unread.values()
        if isinstance(one.age_ms, int) and isinstance(one.tail_bytes, int) and isinstance(one.size_bytes, int)
    ]
    rate, sizes = sum(each for each, _ in seen), sum(size for _, size in seen)
    if not sizes and any(isinstance(one.age_ms, Unknown) for one in facts.unread.values()):  # as if it were full
        rate, sizes = size / max(_SOON_MS, facts.live[setting].limit or 0), size
    return rate * (size / sizes if sizes else 1.0) / max(1, facts.partitions)
