"""Decide what a topic's retention settings should be while required groups lag (docs/rules.md, P1 to P6). Pure.

Losing unread records is worse than keeping too many, within the policy's maxima and the disks' ceiling. So an unknown
position counts as nothing read, and what is unknown never lowers a setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.units import format_bytes, format_duration
from retention_cli.protect.value import CHANGES, SETTINGS, Decision, Live, Part, Record, Setting, Terms, TopicFacts

_STEP: Final = 20
"""A value is raised by a twentieth of the original at least, so that a long pause does not take a change a pass."""
_SOON_MS: Final = 60_000
"""Rates are measured over the age of the oldest unread record, and over a minute at least: one burst is no rate."""
_UNEVEN: Final = 1.25
"""By so much the unread bytes may be more than their share of a log, where records differ in size."""


class Needed(NamedTuple):
    """What a setting must be now to spare the oldest unread record, and by how much that grows in a millisecond."""

    part: Part
    now: float
    rate: float

    def after(self, time_ms: int) -> float:
        """Return what it must be after a time."""
        return self.now + time_ms * self.rate

    def left_ms(self, limit: int) -> int | None:
        """Return how long a limit spares the record, None if nothing grows."""
        return int(max(0.0, (limit - self.now) / self.rate)) if self.rate else None


@dataclass(slots=True)
class Rooms:
    """The bytes left below the ceiling, by disk, as decisions use them up; unknown where a disk can't be read."""

    left: dict[str, Maybe[int]]
    ceiling: bool

    def room(self, disks: Mapping[str, int]) -> tuple[float, str]:
        """Return the bytes that each replica of a topic has on its fullest disk, and that disk.

        An unknown disk has no room if the policy has a ceiling, and any otherwise.
        """
        rooms = []
        for name, replicas in disks.items():
            left = self.left.get(name, Unknown(()))
            unknown = 0.0 if self.ceiling else math.inf
            rooms.append((unknown if isinstance(left, Unknown) else left / replicas, name))
        return min(rooms, default=(math.inf, ""))

    def use(self, disks: Mapping[str, int], each: float) -> None:
        """Take what each replica will keep more. What it will keep less makes up for an excess, and is no room yet."""
        for name, replicas in disks.items():
            left = self.left.get(name)
            if isinstance(left, int):
                most = left if each > 0 else max(left, 0)
                self.left[name] = min(most, left - round(each * replicas))


def decide_all(
    topics: Sequence[TopicFacts], records: Mapping[tuple[str, Setting], Record], terms: Terms, rooms: Rooms
) -> list[Decision]:
    """Return the decision about each setting. Topics that share a disk share its room, in the order given.

    Times come first: how many bytes a partition grows by is the less certain estimate, and must not take their room.
    """
    made = [decide(one, key, records.get((one.topic, key)), terms, rooms) for key in SETTINGS for one in topics]
    made = [replace(one, outcome="planned") if one.action in CHANGES else one for one in made]
    return sorted(made, key=lambda one: (one.topic, SETTINGS.index(one.setting)))


def decide(facts: TopicFacts, setting: Setting, record: Record | None, terms: Terms, rooms: Rooms) -> Decision:
    """Return the decision about one setting of a topic."""
    live = facts.live[setting]
    original = live.limit if record is None else live.default if record.original is None else record.limit
    if isinstance(original, Unknown):  # that is no reason to lose what is unread
        terms, facts = replace(terms, lowers=False), replace(facts, unknown=(*facts.unknown, *original.reasons))
        original = live.limit if record is None else record.limit
    base = Decision(facts.topic, facts.topic_id, setting, "none", live.own, live.limit, live.limit, original)
    if record is not None:
        if record.state == "unreadable":
            text = f"what _kretain_protected says of {record.key} can't be read: kretain leaves it alone until "
            return replace(base, reasons=(Reason("protect", f"{text}kretain protect --resume"),))
        if record.state == "released" or live.own not in expected(record):
            return _not_ours(base, record, live)
        if live.own != record.original:  # else an open change was not made
            base = replace(base, action="keep")
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
    if record.state == "released":
        text = f"another client set it: kretain leaves it alone until kretain protect --resume {base.topic}"
        return replace(base, reasons=(Reason("protect", text),))
    there = "removed it" if live.own is None else f"set it to {live.own}"
    text = (
        f"another client {there}, so that counts (kretain had set {record.value}, the original was "
        f"{'the default' if record.original is None else record.original}): kretain protect --resume {base.topic} "
        "lets kretain raise it again"
    )
    return replace(base, action="release", reasons=(Reason("protect", text),))


def _needed(setting: Setting, part: Part) -> Needed:
    age = math.inf if isinstance(part.age_ms, Unknown) else float(max(0, part.age_ms))
    if setting == "retention.ms":
        return Needed(part, age, 1.0)
    if isinstance(part.tail_bytes, Unknown):
        return Needed(part, math.inf, 1.0)
    tail = part.tail_bytes * _UNEVEN
    return Needed(part, tail, tail / max(_SOON_MS, age))


def _bounded(base: Decision, facts: TopicFacts, terms: Terms, rooms: Rooms) -> Decision:
    live, original = base.old or 0, base.original or 0
    margin = terms.margin_ms(facts.check_ms)
    needs = [_needed(base.setting, one) for one in facts.unread]
    first = max(needs, key=lambda one: (one.after(margin), -one.part.number), default=None)
    raised = base.action == "keep"
    reasons = [*facts.unknown, *dict.fromkeys(one.part.note for one in needs if one.part.note is not None)]
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
    if first is not None and first.after(margin) > most:
        reasons.append(Reason("protect", why))
    new = int(min(max(original, min(wanted, most)), 2**63 - 1))
    if new < live and not (raised and terms.lowers):
        new = live
    action = base.action if new == live else "raise" if new > live else "lower"
    if raised and new == original and (new > live or terms.lowers):
        action = "restore"
    if new != live:
        rooms.use(facts.disks, 0.0 if math.isinf(each) else each * (new - live))
    extra = None if math.isinf(each) else round(each * (new - original) * facts.partitions)
    done = replace(base, action=action, new=new, extra_bytes=extra, reasons=tuple(reasons))
    if first is None:
        return done
    return replace(done, group=first.part.group, partition=first.part.number, left_ms=first.left_ms(live))


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
        if setting == "retention.bytes":
            left = most_bytes / facts.partitions - live
        else:
            size = facts.size_bytes
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
    rate, sizes = 0.0, 0
    for one in facts.unread:
        if not isinstance(one.age_ms, Unknown) and not isinstance(one.tail_bytes, Unknown):
            rate += one.tail_bytes / max(_SOON_MS, one.age_ms)
            sizes += 0 if isinstance(one.size_bytes, Unknown) else one.size_bytes
    if not sizes and any(isinstance(one.age_ms, Unknown) for one in facts.unread):  # as if it were full
        rate, sizes = size / max(_SOON_MS, facts.live[setting].limit or 0), size
    return rate * (size / sizes if sizes else 1.0) / max(1, facts.partitions)
