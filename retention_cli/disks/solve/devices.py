"""Group a broker's log dirs by device: several on one device count as one disk (R6). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.policy.settings import DiskRules

_NEAR: Final = 1_000
"""Two volumes of equal size may be one, read at two moments, if their free space differs by at most size / _NEAR."""
_ANONYMOUS: Final = "0:"
"""The prefix of device numbers that file systems make up: btrfs for each subvolume, NFS for each mount."""

Devices = Mapping[tuple[int, str], str]
"""The devices in an inventory, by (broker, log dir)."""
NO_DEVICES: Final[Devices] = {}


class ReplicaLike(Protocol):
    """A replica's bytes in a log dir."""

    @property
    def tp(self) -> TopicPartition: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102


class DirLike(Protocol):
    """A log dir as reported by its broker (``brokers/log_dirs.py``)."""

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


@dataclass(slots=True)
class Groups:
    """Log dirs grouped by device, sorted. ``doubts`` are why a dir's device is unknown; ``notes`` are to be shown."""

    groups: list[list[str]] = field(default_factory=list)
    doubts: dict[str, Unknown] = field(default_factory=dict)
    notes: list[Reason] = field(default_factory=list)


class FileLike(Protocol):
    """The part of an inventory's file that has devices."""

    @property
    def broker(self) -> int: ...  # noqa: D102
    @property
    def dirs(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102


def devices_in(files: Sequence[FileLike]) -> Devices:
    """Return the devices in an inventory's files."""
    return {
        (file.broker, str(one.get("path"))): str(one["device"])
        for file in files
        for one in file.dirs
        if one.get("device") is not None
    }


def group(broker: int, dirs: Sequence[DirLike], rules: DiskRules, devices: Devices) -> Groups:
    """Group a broker's log dirs by device.

    Args:
        broker: the broker's id.
        dirs: its log dirs.
        rules: the policy's disk rules. ``disks.devices`` takes precedence, also if it lists only one dir of a device.
        devices: the inventory's devices.
    """
    found = Groups()
    left = sorted(dirs, key=lambda one: one.path)
    for device in rules.devices:
        together = [one.path for one in left if one.path in device or f"{broker}:{one.path}" in device]
        if together:
            found.groups.append(together)
            if brokers := _other_brokers(broker, device):
                found.doubts |= dict.fromkeys(together, _shared_with(brokers))
            left = [one for one in left if one.path not in together]
    alike: list[list[DirLike]] = []
    for one in left:
        place = next((other for other in alike if any(_one_device(broker, one, twin, devices) for twin in other)), None)
        if place is None:
            alike.append([one])
        else:
            place.append(one)
    for together_ in alike:
        paths = [one.path for one in together_]
        found.groups.append(paths)
        if len(paths) > 1 and not _named_alike(broker, paths, devices):
            text = "have the same size and the same room: they are taken for one device; disks.devices says otherwise"
            found.notes.append(Reason("disk", f"broker {broker}: {', '.join(paths)} {text}"))
    found.groups.sort()
    _doubt(found, broker, alike, devices)
    return found


def _other_brokers(broker: int, device: Collection[str]) -> list[str]:
    """Return the other brokers that share a device according to ``disks.devices``."""
    named = {one.partition(":")[0] for one in device if not one.startswith("/") and ":" in one}
    return sorted(named - {str(broker)}, key=int)


def _shared_with(brokers: Sequence[str]) -> Unknown:
    return Unknown.because(
        "disk",
        f"by disks.devices it is broker {', '.join(brokers)}'s device too: what each of them frees is unknown",
    )


def _one_device(broker: int, one: DirLike, other: DirLike, devices: Devices) -> bool:
    named, twin = devices.get((broker, one.path)), devices.get((broker, other.path))
    if named is not None and twin is not None:
        return named == twin
    return _sized(one) is not None and _sized(one) == _sized(other)


def _named_alike(broker: int, paths: Sequence[str], devices: Devices) -> bool:
    named = {devices.get((broker, path)) for path in paths}
    return len(named) == 1 and None not in named


def _doubt(found: Groups, broker: int, alike: Sequence[Sequence[DirLike]], devices: Devices) -> None:
    """Add a doubt for each dir of which it is unknown whether it shares a device with another."""
    for n, group_ in enumerate(alike):
        for other in alike[n + 1 :]:
            pair = next(
                (
                    (a, b)
                    for a in group_
                    for b in other
                    if _may_be_one(_sized(a), _sized(b), _named_apart(broker, a, b, devices))
                ),
                None,
            )
            if pair is None:
                continue
            text = (
                f"{pair[0].path} and {pair[1].path} are as large as each other and about as full: whether they are on "
                "one device is unknown. Say so with disks.devices (a dir alone where it has a device of its own), "
                "or give an inventory (kretain segments scan, --inventory)"
            )
            for one in (*group_, *other):
                found.doubts.setdefault(one.path, Unknown.because("disk", text))


def _named_apart(broker: int, one: DirLike, other: DirLike, devices: Devices) -> bool:
    """Return whether an inventory has real, not made-up, device numbers for both of two dirs."""
    names = [devices.get((broker, path)) for path in (one.path, other.path)]
    return all(name is not None and not name.startswith(_ANONYMOUS) for name in names)


def _may_be_one(one: tuple[int, int] | None, other: tuple[int, int] | None, named_apart: bool) -> bool:
    """Return whether two volumes may be one: of equal size, and about (``named_apart``: exactly) equally full."""
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[1] == other[1] if named_apart else abs(one[1] - other[1]) <= one[0] // _NEAR


def _sized(one: DirLike) -> tuple[int, int] | None:
    total, usable = one.total_bytes, one.usable_bytes
    return None if isinstance(total, Unknown) or isinstance(usable, Unknown) else (total, usable)
