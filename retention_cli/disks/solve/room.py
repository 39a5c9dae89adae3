"""Determine how full each disk is, and by how much it is above its ceiling (R6). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.units import format_bytes
from retention_cli.disks.solve.devices import NO_DEVICES, Devices, DirLike, group
from retention_cli.policy.settings import DiskRules

_NAMED: Final = 3
"""How many of an absent broker's topics a note names."""


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
    without ``dirs``; its replicas' sizes are unknown, and 0 here.
    """

    broker: int
    dirs: tuple[str, ...]
    room: Maybe[Room]
    replicas: Mapping[TopicPartition, int]

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


def disks_of(
    answers: Mapping[int, Sequence[DirLike] | Exception], rules: DiskRules, devices: Devices = NO_DEVICES
) -> tuple[list[Disk], list[Reason]]:
    """Return the disks of the brokers that answered, and notes on those whose usage or device is unknown.

    Log dirs on one device are one disk: by ``disks.devices``, by the inventory, else by identical total and usable
    bytes. If it is unknown whether they are on one device, so is their usage (R6).

    Args:
        answers: each broker's log dirs, or why they could not be read.
        rules: the policy's disk rules.
        devices: the inventory's devices.
    """
    disks: list[Disk] = []
    notes: list[Reason] = []
    for broker, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            notes.append(Reason("disk", f"broker {broker}'s log dirs can't be read: {answer}"))
            continue
        by_path = {one.path: one for one in answer}
        found = group(broker, answer, rules, devices)
        notes += found.notes
        for paths in found.groups:
            disk = _disk(broker, [by_path[path] for path in paths], rules)
            doubt = next((found.doubts[path] for path in paths if path in found.doubts), None)
            disks.append(disk if doubt is None else replace(disk, room=doubt))
    if rules.shared:
        disks = _apart(disks, rules)
    notes += [
        Reason("disk", f"{disk.name}: {reason.text}")
        for disk in disks
        if isinstance(disk.room, Unknown)
        for reason in disk.room.reasons
    ]
    return disks, notes


def _apart(disks: Sequence[Disk], rules: DiskRules) -> list[Disk]:
    """Return the disks, with unknown usage for those that may be one device of several brokers.

    With ``disks.shared``, a small share of replicas in the usage does not reveal that another broker uses the device.
    """
    alike: dict[tuple[int, int], set[int]] = {}
    for one in disks:
        if not isinstance(one.room, Unknown) and not _named_by_policy(one, rules):
            alike.setdefault((one.room.total_bytes, one.room.used_bytes), set()).add(one.broker)
    found = []
    for one in disks:
        brokers = (
            set()
            if isinstance(one.room, Unknown) or _named_by_policy(one, rules)
            else alike[one.room.total_bytes, one.room.used_bytes] - {one.broker}
        )
        if brokers:
            text = (
                f"as large and as full, to the byte, as a disk of broker {', '.join(map(str, sorted(brokers)))}: with "
                "disks.shared whether they are one device is unknown. Say so with disks.devices, a list for each "
                f"device: [{one.broker}:{one.dirs[0]}] where it is this broker's alone"
            )
            one = replace(one, room=Unknown.because("disk", text))  # noqa: PLW2901
        found.append(one)
    return found


def _named_by_policy(disk: Disk, rules: DiskRules) -> bool:
    """Return whether the policy specifies a disk's device or its size."""
    named = {path for device in rules.devices for path in device}
    dirs = {*disk.dirs, *(f"{disk.broker}:{path}" for path in disk.dirs)}
    return bool(named & dirs) or sized_by_policy(disk, rules)


def absent_disks(
    disks: Sequence[Disk], answers: Mapping[int, object], replicas: Mapping[TopicPartition, Sequence[int]]
) -> list[Disk]:
    """Return a disk without dirs for each broker that has replicas but did not report its disks (R6).

    Args:
        disks: the disks of the brokers that answered.
        answers: the answers of all brokers that were asked.
        replicas: the broker ids of each partition's replicas, from the cluster's metadata.
    """
    there = {one.broker for one in disks}
    held: dict[int, dict[TopicPartition, int]] = {}
    for tp, brokers in replicas.items():
        for broker in brokers:
            if broker not in there:
                held.setdefault(broker, {})[tp] = 0
    return [
        Disk(broker, (), Unknown.because("disk", _absent(broker in answers, lost)), lost)
        for broker, lost in sorted(held.items())
    ]


def _absent(asked: bool, replicas: Mapping[TopicPartition, int]) -> str:
    what = "it does not say what lies on its disks" if asked else "it is down: the cluster does not name it"
    names = sorted({tp.topic for tp in replicas})
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    held = f"{len(replicas):,} replica{'s' if len(replicas) > 1 else ''} of {', '.join(names[:_NAMED])}{more}"
    return f"{what}; it holds {held}, and how full its disks are is unknown until it is back"


def excess_bytes(room: Room, percent: float) -> int:
    """Return by how many bytes a disk is above ``percent`` of its total; negative if it is below."""
    return room.used_bytes - int(room.total_bytes * Fraction(str(percent)) / 100)


def ceiling_bytes(room: Room, percent: float) -> int:
    """Return how many bytes may be used at ``percent`` of a disk's total."""
    return room.used_bytes - excess_bytes(room, percent)


def _disk(broker: int, dirs: Sequence[DirLike], rules: DiskRules) -> Disk:
    replicas: dict[TopicPartition, int] = {}
    for one in dirs:
        for replica in one.replicas:
            replicas[replica.tp] = replicas.get(replica.tp, 0) + replica.size_bytes
    return Disk(broker, tuple(one.path for one in dirs), _room(broker, dirs, replicas, rules), replicas)


def _room(
    broker: int, dirs: Sequence[DirLike], replicas: Mapping[TopicPartition, int], rules: DiskRules
) -> Maybe[Room]:
    paths = [one.path for one in dirs]
    kafka = sum(replicas.values())
    offline = [f"{one.path} is offline ({one.error})" for one in dirs if one.error is not None]
    if offline:
        return Unknown.because("disk", "; ".join(offline))
    capacity = _rule(rules.capacity, broker, paths)
    reserved = _rule(rules.reserved, broker, paths) or 0
    if capacity is not None:  # the volume's figures are ignored: only replicas' sizes count as used
        return Room(capacity, kafka, kafka) if capacity else Unknown.because("disk", "disks.capacity is 0")
    total, usable = dirs[0].total_bytes, dirs[0].usable_bytes
    for said in (total, usable):
        if isinstance(said, Unknown):
            return said
    if isinstance(total, Unknown) or isinstance(usable, Unknown) or total <= 0:
        return Unknown.because("disk", "the broker says that its volume has no bytes: set disks.capacity")
    used = total - usable - reserved
    if used < 0:
        return Unknown.because("disk", f"disks.reserved of {format_bytes(reserved)} is more than is in use")
    return Room(total, used, kafka)


def sized_by_policy(disk: Disk, rules: DiskRules) -> bool:
    """Return whether the policy specifies a disk's size: then only replicas' sizes count as used."""
    return _rule(rules.capacity, disk.broker, disk.dirs) is not None


def reserved_bytes(disk: Disk, reserved: Mapping[str, int]) -> int:
    """Return the bytes of ``disks.reserved`` for a disk, 0 if it has none."""
    return _rule(reserved, disk.broker, disk.dirs) or 0


def mostly_others(room: Room, rules: DiskRules) -> Unknown | None:
    """Return why R6 can't judge a disk: others than Kafka use most of it; None if they don't (R6)."""
    if rules.shared or 2 * room.kafka_bytes >= room.used_bytes:
        return None
    return Unknown.because(
        "R6",
        f"Kafka's replicas take {format_bytes(room.kafka_bytes)} of the {format_bytes(room.used_bytes)} in use: if "
        "others use the disk too, set disks.shared: true; if its file system reserves blocks, set disks.reserved; if "
        "several log dirs are on it, set disks.devices",
    )


def _rule(rule: Mapping[str, int], broker: int, paths: Sequence[str]) -> int | None:
    """Return a setting's value for a disk: that of ``broker:dir``, else of ``dir``, else of ``*``, else None."""
    for key in (*(f"{broker}:{path}" for path in paths), *paths, "*"):
        if key in rule:
            return rule[key]
    return None


def named(disk: Disk, why: Unknown) -> Unknown:
    """Return the unknown with the disk's name before each of its reasons."""
    return Unknown(tuple(Reason(one.code, f"{disk.name}: {one.text}") for one in why.reasons))


def unknown_room(disk: Disk) -> tuple[Reason, ...]:
    """Return why a disk's usage is unknown, empty if it is known."""
    return disk.room.reasons if isinstance(disk.room, Unknown) else ()
