"""How full each disk is, and by how much it is above its ceiling (R6). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.units import format_bytes
from retention_cli.policy.settings import DiskRules


class ReplicaLike(Protocol):
    """A replica's bytes in a log dir."""

    @property
    def tp(self) -> TopicPartition: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102


class DirLike(Protocol):
    """A log dir as its broker describes it (``brokers/log_dirs.py``)."""

    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def total_bytes(self) -> Maybe[int]: ...  # noqa: D102
    @property
    def usable_bytes(self) -> Maybe[int]: ...  # noqa: D102
    @property
    def replicas(self) -> Sequence[ReplicaLike]: ...  # noqa: D102
    @property
    def error(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Room:
    """``used_bytes`` of ``total_bytes`` are in use by anyone; ``kafka_bytes`` of them are replicas'."""

    total_bytes: int
    used_bytes: int
    kafka_bytes: int

    @property
    def percent(self) -> float:
        """How full it is."""
        return 100 * self.used_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class Disk:
    """One device of one broker, with one log dir or several. ``room`` is unknown where its usage is.

    ``replicas`` are the bytes per replica (future copies of a replica added to it).
    """

    broker: int
    dirs: tuple[str, ...]
    room: Maybe[Room]
    replicas: Mapping[TopicPartition, int]

    @property
    def name(self) -> str:
        """What people call it: the broker, and its dirs."""
        return f"broker {self.broker}, {' + '.join(self.dirs)}"

    @property
    def key(self) -> str:
        """What it is remembered by."""
        return f"{self.broker}:{'+'.join(self.dirs)}"


def disks_of(answers: Mapping[int, Sequence[DirLike] | Exception], rules: DiskRules) -> tuple[list[Disk], list[Reason]]:
    """Return the disks of the brokers that answered, and what to tell people of those that can't be told."""
    disks: list[Disk] = []
    notes: list[Reason] = []
    for broker, answer in sorted(answers.items()):
        if isinstance(answer, Exception):
            notes.append(Reason("disk", f"broker {broker}'s log dirs can't be read: {answer}"))
            continue
        by_path = {one.path: one for one in answer}
        devices = _devices(sorted(by_path), broker, rules)
        disks += [_disk(broker, [by_path[path] for path in paths], rules) for paths in devices]
        notes += _same_volume(broker, answer, rules)
    notes += [
        Reason("disk", f"{disk.name}: {reason.text}")
        for disk in disks
        if isinstance(disk.room, Unknown)
        for reason in disk.room.reasons
    ]
    return disks, notes


def excess_bytes(room: Room, percent: float) -> int:
    """Return by how many bytes a disk is above ``percent`` of its total; negative where it is below."""
    return room.used_bytes - int(room.total_bytes * Fraction(str(percent)) / 100)


def ceiling_bytes(room: Room, percent: float) -> int:
    """Return how many bytes may be in use."""
    return room.used_bytes - excess_bytes(room, percent)


def _devices(paths: Sequence[str], broker: int, rules: DiskRules) -> list[list[str]]:
    """Put the dirs that the policy says are on one device together."""
    groups: list[list[str]] = []
    left = list(paths)
    for device in rules.devices:
        together = [path for path in left if path in device or f"{broker}:{path}" in device]
        if together:
            groups.append(together)
            left = [path for path in left if path not in together]
    return sorted([*groups, *([path] for path in left)])


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
    if capacity is not None:  # the volume's own word is not taken: what Kafka's replicas take is all that is known
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
    """Return whether the policy says how large a disk is: what is in use is then replicas' sizes, and nothing else."""
    return _rule(rules.capacity, disk.broker, disk.dirs) is not None


def mostly_others(room: Room, rules: DiskRules) -> Unknown | None:
    """Return why R6 can't tell what a trim would do: others than Kafka take most of the disk (R6)."""
    if rules.shared or 2 * room.kafka_bytes >= room.used_bytes:
        return None
    return Unknown.because(
        "R6",
        f"Kafka's replicas take {format_bytes(room.kafka_bytes)} of the {format_bytes(room.used_bytes)} in use: if "
        "others use the disk too, set disks.shared: true; if its file system reserves blocks, set disks.reserved; if "
        "several log dirs are on it, set disks.devices",
    )


def _rule(rule: Mapping[str, int], broker: int, paths: Sequence[str]) -> int | None:
    """Return what a setting says of a disk: the most exact of ``broker:dir``, ``dir`` and all."""
    for key in (*(f"{broker}:{path}" for path in paths), *paths, "*"):
        if key in rule:
            return rule[key]
    return None


def _same_volume(broker: int, dirs: Sequence[DirLike], rules: DiskRules) -> list[Reason]:
    """Warn of dirs that may be on one device, and would then be counted twice."""
    seen: dict[tuple[int, int], list[str]] = {}
    grouped = {
        path for paths in _devices([one.path for one in dirs], broker, rules) if len(paths) > 1 for path in paths
    }
    for one in dirs:
        total, usable = one.total_bytes, one.usable_bytes
        if one.path not in grouped and not isinstance(total, Unknown) and not isinstance(usable, Unknown):
            seen.setdefault((total, usable), []).append(one.path)
    return [
        Reason(
            "disk",
            f"broker {broker}: {', '.join(paths)} have the same size and the same room: if they are on one device, "
            "say so with disks.devices",
        )
        for paths in seen.values()
        if len(paths) > 1
    ]
