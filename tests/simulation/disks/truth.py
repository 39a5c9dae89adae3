"""What R6 may take, by brute force over the files as they truly lie on the disks (docs/rules.md, R6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.disks.kafka import INDEX_BYTES, SEGMENT_BYTES, TOTALS, Device, DiskKafka, segments_of
from tests.simulation.kafka import Tp

Bounds = dict[Tp, int]
"""By partition, where it is trimmed to."""


class Held(NamedTuple):
    """A closed segment of a replica, above its partition's log start."""

    device: Device
    end: int
    size_bytes: int
    newest_ms: int


class Candidate(NamedTuple):
    """An offset at which a closed segment ends on some replica, in the order of the walk."""

    newest_ms: int
    tp: Tp
    end: int


@dataclass(slots=True)
class Files:
    """What lay on the disks at one moment.

    ``used`` is what is in use; ``leaving`` what goes of it anyway: swept files, deleted topics', dead segments.
    ``kafka`` is what brokers say that replicas take. ``closed`` are each partition's closed segments, on any replica.
    """

    used: dict[Device, int]
    leaving: dict[Device, int]
    kafka: dict[Device, int]
    closed: dict[Tp, list[Held]] = field(default_factory=dict)
    starts: dict[Tp, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kafka: DiskKafka) -> Files:
        found = cls({one: kafka.used(one) for one in TOTALS}, dict.fromkeys(TOTALS, 0), dict.fromkeys(TOTALS, 0))
        for gone in kafka.going:
            found.leaving[gone.place.broker, gone.place.device] += gone.size_bytes
        for name, topic in kafka.topics.items():
            for number, log in enumerate(topic.partitions):
                found.starts[name, number] = log.log.start
        for (broker, tp), place in kafka.placed.items():
            log, device = kafka.topics[tp[0]].partitions[tp[1]], (broker, place.device)
            for one in segments_of(log.replicas[broker]):
                found.kafka[device] += one.log_bytes
                if one.end <= log.log.start and not one.active:
                    found.leaving[device] += one.disk_bytes
                elif not one.active:
                    found.closed.setdefault(tp, []).append(Held(device, one.end, one.disk_bytes, one.newest_ms))
        return found

    def indexes(self, device: Device) -> int:
        """Return what indexes take at most on a disk so full."""
        return INDEX_BYTES * (self.used[device] // SEGMENT_BYTES)

    def excess(self, percent: int, own: Mapping[Tp, int]) -> dict[Device, int]:
        """Return how much is left to take of each device, once all that leaves it and the other rules' trims are off.

        A device of which others than Kafka use most asks for nothing.
        """
        left = {}
        for device, total in TOTALS.items():
            over = self.used[device] - total * percent // 100
            left[device] = (
                over - self.leaving[device] if over > 0 and 2 * self.kafka[device] >= self.used[device] else 0
            )
        for tp, held in self.closed.items():
            for one in held:
                if one.end <= own.get(tp, 0):
                    left[one.device] -= one.size_bytes
        return left

    def candidates(self, limits: Mapping[Tp, int], own: Mapping[Tp, int]) -> list[Candidate]:
        """Return what may go, the oldest first."""
        found = []
        for tp, limit in limits.items():
            newest = -1
            held = [one for one in self.closed.get(tp, ()) if own.get(tp, 0) < one.end <= limit]
            for end in sorted({one.end for one in held}):
                newest = max([newest, *(one.newest_ms for one in held if one.end == end)])
                found.append(Candidate(newest, tp, end))
        return sorted(found)

    def take(self, one: Candidate, after: int, left: dict[Device, int]) -> None:
        """Take a candidate: every replica loses its own segments that end behind ``after`` and up to it."""
        for held in self.closed[one.tp]:
            if after < held.end <= one.end:
                left[held.device] -= held.size_bytes

    def holders(self, one: Candidate) -> set[Device]:
        return {held.device for held in self.closed[one.tp] if held.end == one.end}


def brute_force(
    files: Files, percent: int, limits: Mapping[Tp, int], own: Mapping[Tp, int]
) -> tuple[dict[Tp, int], dict[Device, int]]:
    """Walk over all segments; return where R6 trims to beyond the other rules, and what each device is short of."""
    left = files.excess(percent, own)
    bounds: dict[Tp, int] = {}
    for one in files.candidates(limits, own):
        if any(left[device] > 0 for device in files.holders(one)):
            files.take(one, max(own.get(one.tp, 0), bounds.get(one.tp, 0)), left)
            bounds[one.tp] = one.end
    return bounds, left


def needless(
    files: Files, percent: int, taken: Mapping[Tp, int], own: Mapping[Tp, int], slack: Mapping[Device, int]
) -> list[str]:
    """Return what was taken though no device that holds it was above its ceiling any more, in the order of the walk.

    Args:
        files: what lay there before.
        percent: the ceiling.
        taken: where R6 trims to.
        own: where the other rules do.
        slack: by how much a device may come out below its ceiling, where bytes are estimated.
    """
    left = files.excess(percent, own)
    wrong, last = [], dict(own)
    for one in files.candidates(taken, own):
        holders = files.holders(one)
        if not any(left[device] > -slack.get(device, 0) for device in holders):
            wrong.append(f"{one.tp} up to {one.end}: left over { ({device: left[device] for device in holders}) }")
        files.take(one, last.get(one.tp, 0), left)
        last[one.tp] = one.end
    return wrong
