"""What R6 takes, and what it says where it takes less, held against brute force over the true files (docs/rules.md, R6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from retention_cli.disks.disk import DiskOutcome
from retention_cli.plan.value import Plan
from tests.simulation.disks.kafka import (
    INDEX_BYTES,
    PLACES,
    SEGMENT_BYTES,
    TOTALS,
    Device,
    DiskKafka,
    Place,
    segments_of,
)
from tests.simulation.kafka import Tp
from tests.simulation.scene import ViolationError
from tests.support.disks import Closed, Walk

Bounds = dict[Tp, int]
"""By partition, where it is trimmed to."""


@dataclass(slots=True)
class Files:
    """What lay on the disks at one moment.

    ``used`` is what is in use; ``leaving`` what goes of it anyway: swept files, deleted topics', dead segments.
    ``kafka`` is what brokers say that replicas take. ``closed`` are each partition's closed segments above its log start, on any replica.
    """

    used: dict[Device, int]
    leaving: dict[Device, int]
    kafka: dict[Device, int]
    closed: dict[Tp, list[Closed]] = field(default_factory=dict)
    starts: dict[Tp, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kafka: DiskKafka) -> Files:
        found = cls({one: kafka.used(one) for one in TOTALS}, dict.fromkeys(TOTALS, 0), dict.fromkeys(TOTALS, 0))
        for gone in kafka.going:
            found.leaving[gone.place.broker, gone.place.device] += gone.size_bytes
        found.starts = {tp: log.log.start for tp, log in kafka.logs()}
        for (broker, tp), place in kafka.placed.items():
            log, device = kafka.partition(tp), (broker, place.device)
            for one in segments_of(log.replicas[broker]):
                found.kafka[device] += one.log_bytes
                if one.end <= log.log.start and not one.active:
                    found.leaving[device] += one.disk_bytes
                elif not one.active:
                    found.closed.setdefault(tp, []).append(Closed(device, one.end, one.disk_bytes, one.newest_ms))
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
                    left[one.disk] -= one.size_bytes
        return left

    def walk(self, percent: int, own: Mapping[Tp, int]) -> Walk:
        return Walk(self.closed, own, self.excess(percent, own))


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
    walk, wrong = files.walk(percent, own), []
    for one in walk.candidates(taken):
        left = {device: walk.left[device] for device in walk.holders(one)}
        if not any(more > -slack.get(device, 0) for device, more in left.items()):
            wrong.append(f"{one.tp} up to {one.end}: left over {left}")
        walk.take(one)
    return wrong


PERCENT: Final = 60
INDEXES: Final = "residue: indexes that the ledger takes for somebody else's"
"""No broker counts indexes. What stays on a disk by what the ledger saw has them in it: they go with their logs."""


class Moment(NamedTuple):
    """What lay on the disks, where the rules other than R6 trim to, and how far the guards let R6 go."""

    files: Files
    own: Bounds
    limits: Bounds


class Judge:
    """Counts what it saw in ``counts``. Each method raises ViolationError."""

    def __init__(self, kafka: DiskKafka) -> None:
        self.kafka = kafka
        self.counts: Counter[str] = Counter()

    def takes(self, what: str, moment: Moment, trims: Bounds, *, estimated: bool) -> None:
        """R6 takes no segment of which every device is below its ceiling, by the true files."""
        files, own, limits = moment
        taken = {tp: end for tp, end in trims.items() if end > own.get(tp, 0)}
        for tp, end in taken.items():
            if end > limits.get(tp, 0):
                raise ViolationError(f"{what}: {tp} up to {end}, behind its limit of {limits.get(tp)}")
            if told := self.kafka.deaf & self.kafka.partition(tp).replicas.keys():
                raise ViolationError(f"{what}: {tp} has replicas on {told}, which say nothing of their disks")
        slack = {device: self.segments_on(device) for device in TOTALS} if estimated else {}
        if wrong := needless(files, PERCENT, taken, own, slack):
            if estimated or needless(files, PERCENT, taken, own, {one: files.indexes(one) for one in TOTALS}):
                raise ViolationError(f"{what}: {'; '.join(wrong)}")
            self.counts[INDEXES] += 1
        self.counts[f"{what}: R6 {'takes' if taken else 'takes nothing'}{' by estimate' if estimated else ''}"] += 1

    def segments_on(self, device: Device) -> int:
        """Return two segments for each partition on a device: by so much an estimate may be wrong."""
        there = {tp for (broker, tp), place in self.kafka.placed.items() if (broker, place.device) == device}
        return 2 * SEGMENT_BYTES * len(there)

    def exactly(self, plan: Plan, moment: Moment, trims: Bounds) -> None:
        """With an inventory of this moment R6 takes what brute force takes.

        It takes less where it counts more as leaving than does: the ledger has seen sizes fall, and not yet for how
        long that is. The plan says for how many bytes.
        """
        files, own, limits = moment
        for one in plan.disks:
            leaving = sum({files.leaving[one.disk.broker, x.device] for x in PLACES if _is_in(x, one)})
            if one.excess_bytes and (told := one.dead_bytes + one.doubtful_bytes) != leaving:
                if told < leaving - sum({files.indexes((one.disk.broker, x.device)) for x in PLACES if _is_in(x, one)}):
                    raise ViolationError(
                        f"with a fresh inventory {one.disk.name} has {told} leaving, and {leaving} are"
                    )
                self.counts["fresh, waits" if told > leaving else INDEXES] += 1
                return
        bounds = files.walk(PERCENT, own).bounds(limits)
        expected = {tp: max(own.get(tp, 0), bounds.get(tp, 0)) for tp in own.keys() | bounds.keys()}
        if expected != trims:
            raise ViolationError(f"with a fresh inventory the plan is {trims}, brute force takes {expected}")
        self.counts["fresh, exact"] += 1

    def reasons(self, plan: Plan, moment: Moment, trims: Bounds) -> None:
        """Where R6 takes less than brute force it says why."""
        files, own, limits = moment
        walk = files.walk(PERCENT, own)
        walk.bounds(trims)
        more = files.walk(PERCENT, {**own, **trims}).bounds(limits)
        said = {(one.disk.broker, path): one for one in plan.disks for path in one.disk.dirs}
        for place in PLACES:
            device = (place.broker, place.device)
            if walk.left[device] <= self.segments_on(device) or not more:
                continue
            one = said.get((place.broker, place.path))
            if one is None and place.broker in self.kafka.deaf:
                continue
            if one is not None and one.dead_bytes > files.leaving[device]:
                continue  # it takes more for dead than is, and says how much
            if one is None or (one.unknown is None and one.waits is None and not one.short_bytes):
                raise ViolationError(f"{device} stays {walk.left[device]} above its ceiling without a reason: {one}")


def _is_in(place: Place, one: DiskOutcome) -> bool:
    return place.broker == one.disk.broker and place.path in one.disk.dirs
