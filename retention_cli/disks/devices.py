"""The disks of brokers: log dirs grouped by device (R6), how full each is, and how fast it grows, from memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Final, NamedTuple

from retention_cli.brokers.log_offsets import LogDirState
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.units import count, format_bytes, some_of
from retention_cli.disks.disk import Disk, DiskOutcome, Room, named, setting_for, sized_by_policy
from retention_cli.disks.inventory.format import InventoryFile
from retention_cli.disks.pending_deletes import stays, stays_by_scan
from retention_cli.memory.disk import APART_MS, DiskSample, Growth, growth
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.settings import DiskRules

_TOLERANCE: Final = 1_000
"""Two volumes of equal size may be one, read at two moments, if their free space differs by that part of it at most."""
_ANONYMOUS: Final = "0:"
"""The prefix of device numbers that file systems make up: btrfs for each subvolume, NFS for each mount."""

_HOUR_MS: Final = 3_600_000
_LAST: Final = 3
"""At least this many looks count, however old they are."""

Devices = Mapping[tuple[int, str], str]
"""The devices in an inventory, by (broker, log dir)."""
NO_DEVICES: Final[Devices] = {}


def disks_of(
    answers: Mapping[int, Sequence[LogDirState] | Exception], rules: DiskRules, devices: Devices = NO_DEVICES
) -> tuple[list[Disk], list[Reason]]:
    """Return the disks of the brokers that answered, and notes on those whose usage or device is unknown.

    Log dirs on one device are one disk: by ``disks.devices``, by the inventory, else by identical total and usable
    bytes, unless ``disks.capacity`` names each. If it is unknown whether they are on one device, so is their usage
    (R6).

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
        groups, doubts, more = _grouped(broker, answer, rules, devices)
        notes += more
        for paths in groups:
            disk = _disk(broker, [by_path[path] for path in paths], rules)
            doubt = next((doubts[path] for path in paths if path in doubts), None)
            disks.append(disk if doubt is None else replace(disk, room=doubt))
    if rules.shared:
        disks = _apart(disks, rules)
    return disks, [*notes, *_notes(disks)]


def _apart(disks: Sequence[Disk], rules: DiskRules) -> list[Disk]:
    """Return the disks, with unknown usage for those that may be one device of several brokers.

    With ``disks.shared``, a small share of replicas in the usage does not reveal that another broker uses the device.
    """
    sizes = [_unnamed_size(one, rules) for one in disks]
    alike = by_key(zip(sizes, (one.broker for one in disks), strict=True))
    found = []
    for one, size in zip(disks, sizes, strict=True):
        brokers = set() if size is None else {*alike[size]} - {one.broker}
        if brokers:
            text = (
                f"as large and as full, to the byte, as a disk of broker {', '.join(map(str, sorted(brokers)))}: with "
                "disks.shared, kretain can't tell whether they are one device. List each device in disks.devices: "
                f"[{one.broker}:{one.dirs[0]}] if only this broker uses it"
            )
            one = replace(one, room=Unknown.because("disk", text))  # noqa: PLW2901
        found.append(one)
    return found


def _unnamed_size(disk: Disk, rules: DiskRules) -> tuple[int, int] | None:
    named = {path for device in rules.devices for path in device}
    dirs = {*disk.dirs, *(f"{disk.broker}:{path}" for path in disk.dirs)}
    if isinstance(disk.room, Unknown) or named & dirs or sized_by_policy(disk, rules):
        return None
    return disk.room.total_bytes, disk.room.used_bytes


def all_disks(
    answers: Mapping[int, Sequence[LogDirState] | Exception],
    replicas: Mapping[TopicPartition, Sequence[int]],
    rules: DiskRules,
    devices: Devices = NO_DEVICES,
) -> tuple[list[Disk], list[Reason]]:
    """Return all brokers' disks, and notes on those whose usage or device is unknown.

    A broker that has replicas but did not report its disks is a disk without dirs (R6).

    Args:
        answers: as for :func:`disks_of`, of all brokers that were asked.
        replicas: the broker ids of each partition's replicas, from the cluster's metadata.
        rules: the policy's disk rules.
        devices: the inventory's devices.
    """
    disks, notes = disks_of(answers, rules, devices)
    there = {one.broker for one in disks}
    held = by_key((broker, tp) for tp, brokers in replicas.items() for broker in brokers if broker not in there)
    absent = [
        Disk(broker, (), Unknown.because("disk", _absent(broker in answers, lost)), dict.fromkeys(lost, 0))
        for broker, lost in sorted(held.items())
    ]
    return [*disks, *absent], [*notes, *_notes(absent)]


def _notes(disks: Sequence[Disk]) -> list[Reason]:
    return [why for disk in disks if isinstance(disk.room, Unknown) for why in named(disk, disk.room).reasons]


def _absent(is_listed: bool, replicas: Sequence[TopicPartition]) -> str:
    what = "it does not report what is on its disks" if is_listed else "it is down: the cluster does not list it"
    held = f"{count(len(replicas), 'replica')} of {some_of(sorted({tp.topic for tp in replicas}))}"
    return f"{what}; it holds {held}, and its disk usage is unknown until it is back"


def _disk(broker: int, dirs: Sequence[LogDirState], rules: DiskRules) -> Disk:
    replicas: dict[TopicPartition, int] = {}
    for replica in (replica for one in dirs for replica in one.replicas):
        replicas[replica.tp] = replicas.get(replica.tp, 0) + replica.size_bytes
    room, paths = _room(broker, dirs, replicas, rules), tuple(one.path for one in dirs)
    return Disk(broker, paths, room, replicas, all(one.cordoned for one in dirs))


def _room(
    broker: int, dirs: Sequence[LogDirState], replicas: Mapping[TopicPartition, int], rules: DiskRules
) -> Maybe[Room]:
    paths = [one.path for one in dirs]
    kafka = sum(replicas.values())
    if offline := [f"{one.path} is offline ({one.error})" for one in dirs if one.error is not None]:
        return Unknown.because("disk", "; ".join(offline))
    capacity = setting_for(rules.capacity, broker, paths)
    reserved = setting_for(rules.reserved, broker, paths) or 0
    if capacity is not None:  # the volume's figures are ignored: only replicas' sizes count as used
        if sum(_has_own(rules.capacity, broker, path) for path in paths) > 1:
            return Unknown.because(
                "disk",
                "disks.capacity names several of its dirs: if they share one device, name only one of them; if not, "
                "list each device in disks.devices",
            )
        if capacity < max(1, kafka):
            return Unknown.because(
                "disk",
                f"disks.capacity is {format_bytes(capacity)}, but replicas take {format_bytes(kafka)} there: correct "
                "the size (is a unit missing?)",
            )
        return Room(capacity, kafka, kafka)
    total, usable = dirs[0].total_bytes, dirs[0].usable_bytes
    if isinstance(total, Unknown):
        return total
    if isinstance(usable, Unknown):
        return usable
    if total < max(1, usable):
        text = (
            f"the broker reports a volume of {format_bytes(total)} with {format_bytes(usable)} free: set disks.capacity"
        )
        return Unknown.because("disk", text)
    if (used := total - usable - reserved) < 0:
        return Unknown.because("disk", f"disks.reserved of {format_bytes(reserved)} is more than is in use")
    return Room(total, used, kafka)


def _has_own(sizes: Mapping[str, int], broker: int, path: str) -> bool:
    """Return whether a setting names this dir."""
    return path in sizes or f"{broker}:{path}" in sizes


class _Volume(NamedTuple):
    """A log dir's volume: its total and usable bytes, and its device by an inventory; None if unknown.

    ``own``: ``disks.capacity`` names the dir. Two such volumes are not compared by the figures that it replaces.
    """

    path: str
    sized: tuple[int, int] | None
    device: str | None
    own: bool

    @classmethod
    def of(cls, log_dir: LogDirState, device: str | None, own: bool) -> _Volume:
        """Return a log dir's volume, with its device."""
        total, usable = log_dir.total_bytes, log_dir.usable_bytes
        sized = None if isinstance(total, Unknown) or isinstance(usable, Unknown) else (total, usable)
        return cls(log_dir.path, sized, device, own)

    def is_one_with(self, other: _Volume) -> bool:
        """Return whether two volumes count as one device."""
        if self.device is not None and other.device is not None:
            return self.device == other.device
        return self.sized is not None and self.sized == other.sized and not (self.own and other.own)

    def may_be_one_with(self, other: _Volume) -> bool:
        """Return whether two volumes may be one device: of equal size, and about equally full.

        Where both have real, not made-up, device numbers, they may be one only if they are exactly equally full.
        """
        if self.sized is None or other.sized is None or self.sized[0] != other.sized[0] or (self.own and other.own):
            return False
        apart = not any(one is None or one.startswith(_ANONYMOUS) for one in (self.device, other.device))
        return abs(self.sized[1] - other.sized[1]) <= (0 if apart else self.sized[0] // _TOLERANCE)


def _by_device(volumes: Iterable[_Volume]) -> list[list[_Volume]]:
    """Return volumes grouped by what counts as one device, in order."""
    found: list[list[_Volume]] = []
    for volume in volumes:
        group = next((other for other in found if any(volume.is_one_with(twin) for twin in other)), [])
        group.append(volume)
        if len(group) == 1:
            found.append(group)
    return found


def _grouped(
    broker: int, dirs: Sequence[LogDirState], rules: DiskRules, devices: Devices
) -> tuple[list[list[str]], dict[str, Unknown], list[Reason]]:
    """Return a broker's log dirs grouped by device, sorted; why a dir's device is unknown; and notes to be shown.

    Args:
        broker: the broker's id.
        dirs: its log dirs.
        rules: the policy's disk rules. ``disks.devices`` takes precedence, also if it lists only one dir of a device.
        devices: the inventory's devices.
    """
    groups: list[list[str]] = []
    doubts: dict[str, Unknown] = {}
    notes: list[Reason] = []
    left = [
        _Volume.of(one, devices.get((broker, one.path)), _has_own(rules.capacity, broker, one.path))
        for one in sorted(dirs, key=lambda one: one.path)
    ]
    for device in rules.devices:
        if together := [one.path for one in left if one.path in device or f"{broker}:{one.path}" in device]:
            groups.append(together)
            if brokers := _other_brokers(broker, device):
                shared = f"broker {', '.join(brokers)}'s device too: what each of them frees is unknown"
                text = f"by disks.devices it is {shared}"
                doubts |= dict.fromkeys(together, Unknown.because("disk", text))
            left = [one for one in left if one.path not in together]
    alike = _by_device(left)
    for some in alike:
        groups.append(paths := [one.path for one in some])
        named = {one.device for one in some}
        if len(some) > 1 and (len(named) > 1 or None in named):
            text = f"{', '.join(paths)} have the same size and free space"
            if setting_for(rules.capacity, broker, paths) is None:
                notes.append(
                    Reason(
                        "disk",
                        f"broker {broker}: {text}, so they count as one device; set disks.devices if they are not",
                    )
                )
            else:
                doubts |= dict.fromkeys(
                    paths,
                    Unknown.because(
                        "disk",
                        f"{text}: kretain can't tell whether disks.capacity is for each. List each device in "
                        "disks.devices",
                    ),
                )
    return sorted(groups), doubts | _indistinct(alike), notes


def _indistinct(devices: Iterable[Sequence[_Volume]]) -> dict[str, Unknown]:
    """Return why it is unknown whether log dirs share a device, by path."""
    doubts: dict[str, Unknown] = {}
    for some, other in combinations(devices, 2):
        pair = next((pair for pair in product(some, other) if pair[0].may_be_one_with(pair[1])), None)
        if pair is not None:
            text = (
                f"{pair[0].path} and {pair[1].path} have the same size and are about as full: kretain can't tell "
                "whether they share a device. List each device in disks.devices, or give an inventory (kretain "
                "segments scan, --inventory)"
            )
            for volume in (*some, *other):
                doubts.setdefault(volume.path, Unknown.because("disk", text))
    return doubts


def _other_brokers(broker: int, device: Collection[str]) -> list[str]:
    named = {one.partition(":")[0] for one in device if not one.startswith("/") and ":" in one}
    return sorted(named - {str(broker)}, key=int)


_UNEXPLAINED: Final = ":unexplained"
"""Suffix of a disk's key in memory: looks at the bytes that no live replica explains, not at all used bytes."""
_REPLICAS: Final = f"{_UNEXPLAINED}:replicas"
"""Suffix of looks at how many replicas a disk has: inverted (``~``) if one of them was seen for the first time."""


def sample_disks(
    reader: ClusterReader, rules: DiskRules, memory: Ledger, now_ms: int
) -> tuple[list[DiskOutcome], list[Reason]]:
    """Return how full each disk is and how fast it grows, without a plan, and the reasons for what is unknown."""
    replicas = {
        TopicPartition(name, number): one.replicas
        for name, topic in reader.metadata().topics.items()
        for number, one in topic.partitions.items()
    }
    disks, notes = all_disks(dict(reader.log_dirs(reader.brokers())), replicas, rules)
    growths = remember(disks, memory, now_ms)
    return [DiskOutcome(disk, rules.percent, growth=growths.get(disk.name)) for disk in disks], notes


def remember(disks: Sequence[Disk], memory: Ledger, now_ms: int) -> dict[str, Maybe[Growth]]:
    """Remember how full disks are, and return how fast they grow, by disk name."""
    found: dict[str, Maybe[Growth]] = {}
    for disk in disks:
        if not isinstance(disk.room, Unknown):
            known, now = memory.disk(disk.key), DiskSample(now_ms, disk.room.used_bytes, disk.room.total_bytes)
            found[disk.name] = growth(known.samples, now)
            known.add(now)
    return found


def last_sample_ms(disk: Disk, memory: Ledger) -> int | None:
    """Return when a disk's replicas were looked at for R6 (Unix ms), None if they never were."""
    samples = memory.disk(f"{disk.key}{_REPLICAS}").samples
    return samples[-1].wall_ms if samples else None


def stays_bytes(
    disk: Disk,
    memory: Ledger,
    files: Sequence[InventoryFile],
    reserved: Mapping[str, int],
    now_ms: int,
    over_ms: int | None,
    may_leave_bytes: int | None,
) -> int:
    """Remember the bytes that no live replica explains; return how many of them are known to stay (R6).

    The smallest amount seen over more than ``over_ms`` (None if unknown) stays, without what brokers may have swept
    since the last look. If a replica came or went within that time, its old files may be leaving, and nothing is known.
    An inventory shows what stays, too (:func:`~retention_cli.disks.pending_deletes.stays`).
    """
    if isinstance(disk.room, Unknown):
        return 0
    replicas = memory.disk(f"{disk.key}{_REPLICAS}")
    count = DiskSample(
        now_ms, ~len(disk.replicas) if may_leave_bytes is None else len(disk.replicas), disk.room.total_bytes
    )
    known = memory.disk(f"{disk.key}{_UNEXPLAINED}")
    now = DiskSample(now_ms, disk.unexplained_bytes, disk.room.total_bytes)
    scanned = stays_by_scan(disk, files, reserved, now_ms, known.samples)
    ledger_bytes = None
    if over_ms is not None and may_leave_bytes is not None and unchanged(replicas.samples, count, over_ms):
        ledger_bytes = lowest(known.samples, now, over_ms)
        if ledger_bytes is not None:
            ledger_bytes = max(0, min(ledger_bytes, disk.unexplained_bytes - may_leave_bytes))
    known.add(now, lowest=True)
    replicas.add(count, lowest=True)
    return stays(scanned, ledger_bytes, now_ms, over_ms)


def lowest(samples: Sequence[DiskSample], now: DiskSample, over_ms: int) -> int | None:
    """Return the smallest amount in use over more than ``over_ms`` until now, None if no look is old enough.

    Looks count from the last hour, or the last ten times ``over_ms`` if that is longer, and at least the last three.
    Looks at another total size do not.
    """
    same = [one for one in samples if one.wall_ms <= now.wall_ms and one.total_bytes == now.total_bytes]
    window_ms = max(_HOUR_MS, 10 * over_ms)
    first = next((n for n, one in enumerate(same) if now.wall_ms - one.wall_ms <= window_ms), len(same))
    counted = same[max(0, min(first, len(same) - _LAST)) :]
    if not counted or now.wall_ms - counted[0].wall_ms <= over_ms:
        return None
    return min(one.used_bytes for one in (*counted, now))


def unchanged(samples: Sequence[DiskSample], now: DiskSample, over_ms: int) -> bool:
    """Return whether each look of the last ``over_ms`` has the amount of now, and so has the one before.

    Of the one before an inverted amount (``~``) will do: what it says came earlier.
    """
    old = [one for one in samples if one.wall_ms < now.wall_ms - over_ms - APART_MS]
    since = [one for one in samples if one.wall_ms >= now.wall_ms - over_ms - APART_MS]
    if not old or any(one[1:] != now[1:] for one in since):
        return False
    return old[-1][1:] in (now[1:], (~now.used_bytes, now.total_bytes))
