"""A disk: how full it is, which watermark that reaches (R7), and what a plan frees on it, as values and JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, Reason, TopicPartition, Unknown, Usage, Watermark
from retention_cli.core.units import format_bytes
from retention_cli.memory.disk import Growth
from retention_cli.policy.settings import DiskRules

NAMED: Final = 3
"""How many blockers a note names."""
SHOWN: Final = 20
"""How many blockers per disk a plan's JSON has."""


@dataclass(frozen=True, slots=True)
class Room:
    """A disk's usage: ``used_bytes`` of ``total_bytes`` by anyone, ``kafka_bytes`` of them by live replicas."""

    total_bytes: int
    used_bytes: int
    kafka_bytes: int

    @property
    def percent(self) -> float:
        """The usage in percent."""
        return 100 * self.used_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class Disk:
    """One device of one broker, with one or several log dirs. ``room`` is its usage, or why that is unknown.

    ``replicas`` are the bytes of each replica, including its future copy. A broker that does not answer is one disk
    without ``dirs``; its replicas' sizes are unknown, and 0 here. ``cordoned``: all its dirs are, so what is free there
    takes no new replica (KIP-1066).
    """

    broker: int
    dirs: tuple[str, ...]
    room: Maybe[Room]
    replicas: Mapping[TopicPartition, int]
    cordoned: bool = False

    @property
    def name(self) -> str:
        """The name for display: the broker and its dirs."""
        return f"broker {self.broker}, {' + '.join(self.dirs)}" if self.dirs else f"broker {self.broker}"

    @property
    def key(self) -> str:
        """The key in the ledger."""
        return f"{self.broker}:{'+'.join(self.dirs)}"

    @property
    def unexplained_bytes(self) -> int:
        """The used bytes that no live replica's size explains; 0 if the usage is unknown."""
        return 0 if isinstance(self.room, Unknown) else max(0, self.room.used_bytes - self.room.kafka_bytes)


def excess_bytes(room: Room, percent: float | None) -> int:
    """Return by how many bytes a disk is above ``percent`` of its total (None: all); negative if it is below."""
    return room.used_bytes - int(room.total_bytes * Fraction(str(100 if percent is None else percent)) / 100)


def above_ceiling(disk: Disk, rules: DiskRules) -> bool:
    """Return whether a disk is known to be above its ceiling."""
    return (
        rules.percent is not None and not isinstance(disk.room, Unknown) and excess_bytes(disk.room, rules.percent) > 0
    )


def ceiling_bytes(room: Room, percent: float) -> int:
    """Return how many bytes may be used at ``percent`` of a disk's total."""
    return room.used_bytes - excess_bytes(room, percent)


def sized_by_policy(disk: Disk, rules: DiskRules) -> bool:
    """Return whether the policy specifies a disk's size: then only replicas' sizes count as used."""
    return setting_for(rules.capacity, disk.broker, disk.dirs) is not None


def mostly_others(room: Room, rules: DiskRules) -> Unknown | None:
    """Return why R6 can't judge a disk: others than Kafka use most of it; None if they don't (R6)."""
    if rules.shared or 2 * room.kafka_bytes >= room.used_bytes:
        return None
    return Unknown.because(
        Code.R6,
        f"Kafka's replicas take {format_bytes(room.kafka_bytes)} of the {format_bytes(room.used_bytes)} in use: if "
        "others use the disk too, set disks.shared: true; if its file system reserves blocks, set disks.reserved; if "
        "several log dirs are on it, set disks.devices",
    )


def setting_for(rule: Mapping[str, int], broker: int, paths: Sequence[str]) -> int | None:
    """Return a setting's value for a disk: that of ``broker:dir``, else of ``dir``, else of ``*``, else None."""
    return next((rule[key] for key in (*(f"{broker}:{path}" for path in paths), *paths, "*") if key in rule), None)


def named(disk: Disk, why: Unknown) -> Unknown:
    """Return the unknown with the disk's name before each of its reasons."""
    return Unknown(tuple(Reason(one.code, f"{disk.name}: {one.text}") for one in why.reasons))


def topic_unknown(tp: TopicPartition, why: Unknown) -> Unknown:
    """Return why R5 knows no bound for a topic: it knows none for one of its partitions."""
    return Unknown.because(Code.R5, f"{tp} of the topic is not known ({why.reasons[0].text})")


@dataclass(frozen=True, slots=True)
class Blocker:
    """A partition's bytes that stay on a disk above its ceiling, and why."""

    tp: TopicPartition
    size_bytes: int
    code: str
    text: str


class Leaving(NamedTuple):
    """The bytes that leave a disk without R6.

    ``known_bytes`` are leaving: replicas' sizes lost them recently. ``possible_bytes`` more may be leaving.
    ``doubted_bytes`` of live replicas may be dead, or be freed by other rules' trims, and are in no inventory.
    """

    known_bytes: int = 0
    possible_bytes: int = 0
    doubted_bytes: int = 0

    @property
    def uncertain_bytes(self) -> int:
        """All bytes that may leave or stay: R6 trims nothing to make up for them."""
        return self.possible_bytes + self.doubted_bytes


@dataclass(frozen=True, slots=True)
class DiskOutcome:
    """One disk, and what the plan frees on it.

    ``unknown`` is why R6 can't judge it. ``excess_bytes`` are the bytes above the ceiling. ``dead_bytes`` will be freed
    without a trim, ``other_rules_bytes`` by other rules' trims, ``freed_bytes`` by R6; ``short_bytes`` is how many R6
    could not free. ``level_ms`` is the newest time (Unix ms) that is trimmed for this disk's sake. ``in_the_way`` are
    the bytes that stay, the largest first. ``estimated``: these bytes
    are not from an inventory. ``doubtful_bytes`` may be dead or leaving, and R6 trims nothing to make up for them:
    ``unexplained_bytes`` of them belong to no live replica, the others to live replicas. ``growth`` is how fast the
    disk grows, None if its usage is unknown.
    """

    disk: Disk
    percent: float | None
    unknown: Unknown | None = None
    excess_bytes: int = 0
    dead_bytes: int = 0
    other_rules_bytes: int = 0
    freed_bytes: int = 0
    short_bytes: int = 0
    level_ms: int | None = None
    in_the_way: Sequence[Blocker] = ()
    estimated: bool = False
    doubtful_bytes: int = 0
    unexplained_bytes: int = 0
    growth: Maybe[Growth] | None = None

    @property
    def going_bytes(self) -> int:
        """All bytes that the disk gets back: dead ones, and those that the plan trims."""
        return self.dead_bytes + self.other_rules_bytes + self.freed_bytes

    @property
    def waits(self) -> Unknown | None:
        """Why R6 trims less than the excess: the bytes that it waits for; None if it waits for none."""
        left = self.excess_bytes - self.going_bytes
        if self.unknown is not None or self.percent is None or not self.doubtful_bytes or left <= self.short_bytes:
            return None
        texts = []
        if self.unexplained_bytes:
            texts.append(
                f"{format_bytes(self.unexplained_bytes)} in use belong to no live replica and may be leaving "
                "(deleted files, deleted topics, moved replicas): R6 waits for them. A scan shows which (kretain "
                "segments scan, --inventory); otherwise run again after log.retention.check.interval.ms and "
                "file.delete.delay.ms have passed"
            )
        if doubted := self.doubtful_bytes - self.unexplained_bytes:
            texts.append(
                f"{format_bytes(doubted)} of live replicas may be dead or trimmed by other rules: R6 waits for "
                "them. A fresh scan shows which (kretain segments scan, --inventory); otherwise run again after the "
                "brokers' next check (log.retention.check.interval.ms)"
            )
        return Unknown(tuple(Reason(Code.R6, text) for text in texts))

    def notes(self) -> list[Reason]:
        """Return the notes to show: why R6 can't judge the disk or waits, or that it is short, and the blockers."""
        name = self.disk.name
        if self.unknown is not None and self.percent is not None:
            return [*named(self.disk, self.unknown).reasons]
        waiting = [] if self.waits is None else [*named(self.disk, self.waits).reasons]
        if not self.short_bytes:
            return waiting
        text = f"{name} stays above {self.percent:g} %, short by {format_bytes(self.short_bytes)}"
        most = [f"{format_bytes(one.size_bytes)} of {one.tp} ({one.text})" for one in self.in_the_way[:NAMED]]
        if (more := len(self.in_the_way) - NAMED) > 0:
            most.append(f"and {more:,} more")
        held = f": in the way are {', '.join(most)}" if most else ""
        room = self.disk.room
        others = 0 if isinstance(room, Unknown) else room.used_bytes - room.kafka_bytes
        others_text = f"; {format_bytes(others)} are not Kafka's" if others > 0 else ""
        return [*waiting, Reason(Code.R6, f"{text}{held}{others_text}")]


@dataclass(frozen=True, slots=True)
class Space:
    """The space that brokers free after a plan is executed, and when: whole segments of all replicas.

    Fields are named as in JSON. ``freed_bytes`` are freed by the plan, ``dead_bytes`` without it, on ``disks_known`` of
    all ``disks``; for the other disks this is unknown. ``check_interval_ms`` is how long it takes at most until the
    last broker checks (``log.retention.check.interval.ms``), ``delete_delay_ms`` how much longer files stay
    (``file.delete.delay.ms``); each is None if unknown.
    """

    disks: int
    disks_known: int
    freed_bytes: int
    dead_bytes: int
    estimated: bool
    check_interval_ms: int | None
    delete_delay_ms: int | None


def space_of(outcomes: Sequence[DiskOutcome], check_ms: int | None, delay_ms: int | None) -> Space | None:
    """Return the sums over all disks, None if no disk was judged."""
    if not (reported := [one for one in outcomes if one.unknown is None and one.percent is not None]):
        return None
    return Space(
        len(outcomes),
        len(reported),
        sum(one.freed_bytes + one.other_rules_bytes for one in reported),
        sum(one.dead_bytes for one in reported),
        any(one.estimated for one in reported),
        check_ms,
        delay_ms,
    )


def outcome_as_json(one: DiskOutcome) -> dict[str, Any]:
    """Return a disk's outcome as JSON's own types."""
    room = None if isinstance(one.disk.room, Unknown) else one.disk.room
    ceiling = None if room is None or one.percent is None else ceiling_bytes(room, one.percent)
    known = one.unknown is None and room is not None
    return {
        "broker": one.disk.broker,
        "dirs": list(one.disk.dirs),
        "total_bytes": None if room is None else room.total_bytes,
        "used_bytes": None if room is None else room.used_bytes,
        "kafka_bytes": sum(one.disk.replicas.values()),
        "ceiling_bytes": ceiling,
        "excess_bytes": one.excess_bytes if known else None,
        "dead_bytes": one.dead_bytes if known else None,
        "other_rules_bytes": one.other_rules_bytes if known else None,
        "freed_bytes": one.freed_bytes if known else None,
        "short_bytes": one.short_bytes if known else None,
        "estimated": one.estimated,
        "doubtful_bytes": one.doubtful_bytes if known else None,
        "level_ms": one.level_ms,
        "in_the_way": [
            {
                "topic": row.tp.topic,
                "partition": row.tp.partition,
                "bytes": row.size_bytes,
                "reason": {"code": row.code, "text": row.text},
            }
            for row in one.in_the_way[:SHOWN]
        ],
        "reasons": [] if one.unknown is None else [{"code": r.code, "text": r.text} for r in one.unknown.reasons],
        "cordoned": one.disk.cordoned,
    }


def largest_topics(disks: Sequence[Disk], most: int) -> list[tuple[str, int]]:
    """Return the ``most`` largest topics on these disks, and the bytes of their replicas."""
    held = Counter[str]()
    for tp, size_bytes in (replica for disk in disks for replica in disk.replicas.items()):
        held[tp.topic] += size_bytes
    return sorted(held.items(), key=lambda one: (-one[1], one[0]))[:most]


def reached(watermarks: Sequence[Watermark], room: Room) -> Watermark | None:
    """Return the highest watermark that a disk's usage has reached, None if it has reached none."""
    percent = Fraction(100 * room.used_bytes, room.total_bytes)
    above = [mark for mark in watermarks if percent >= Fraction(str(mark.percent))]
    return max(above, key=lambda mark: mark.percent, default=None)


def usage_for(watermarks: Sequence[Watermark], rooms: Iterable[tuple[str, Maybe[Room]]]) -> Maybe[Usage | None]:
    """Return the highest watermark reached on any disk with a replica of a partition, None for none.

    Args:
        watermarks: the policy's watermarks.
        rooms: each disk's name and usage. A disk with unknown usage makes the result unknown, unless another disk has
            reached a watermark: then at least that one is reached.
    """
    highest: Usage | None = None
    unknown: Unknown | None = None
    for name, room in rooms:
        if isinstance(room, Unknown):
            unknown = unknown or room
            continue
        mark = reached(watermarks, room)
        if mark is not None and (highest is None or mark.percent > highest.mark.percent):
            highest = Usage(name, room.percent, mark)
    return unknown if highest is None and unknown is not None and watermarks else highest


def usages(
    watermarks: Sequence[Watermark],
    disks: Sequence[Disk],
    tps: Collection[TopicPartition],
    replicas: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Maybe[Usage | None]]:
    """Return R7's usage of each partition; empty if the policy has no watermarks.

    Args:
        watermarks: the policy's watermarks.
        disks: all known disks.
        tps: the partitions.
        replicas: the broker ids of each partition's replicas, from the cluster's metadata.
    """
    if not watermarks:
        return {}
    on = by_key((tp, disk) for disk in disks for tp in disk.replicas)
    found = {}
    for tp in tps:
        there = on.get(tp, ())
        rooms = [(one.name, one.room) for one in there]
        for broker in {*replicas[tp]} - {one.broker for one in there}:
            why = f"the usage of broker {broker}'s disks could not be read, so the watermarks are unknown"
            rooms.append((f"broker {broker}", Unknown.because(Code.R7, why)))
        found[tp] = usage_for(watermarks, rooms)
    return found
