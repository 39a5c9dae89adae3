"""What is held against the true files: what R6 takes, and what it says where it takes less."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from retention_cli.disks.disk import DiskOutcome
from retention_cli.plan.value import Plan
from tests.simulation.disks.kafka import PLACES, SEGMENT_BYTES, TOTALS, Device, DiskKafka, Place
from tests.simulation.disks.truth import Bounds, Files, brute_force, needless
from tests.simulation.scene import ViolationError

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
            log = self.kafka.partition(tp)
            if log is not None and (told := self.kafka.deaf & log.replicas.keys()):
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
                indexes = sum({files.indexes((one.disk.broker, x.device)) for x in PLACES if _is_in(x, one)})
                if told < leaving - indexes:
                    raise ViolationError(
                        f"with a fresh inventory {one.disk.name} has {told} leaving, and {leaving} are"
                    )
                self.counts["fresh, waits" if told > leaving else INDEXES] += 1
                return
        bounds, _ = brute_force(files, PERCENT, limits, own)
        expected = {tp: max(own.get(tp, 0), bounds.get(tp, 0)) for tp in own.keys() | bounds.keys()}
        if expected != trims:
            raise ViolationError(f"with a fresh inventory the plan is {trims}, brute force takes {expected}")
        self.counts["fresh, exact"] += 1

    def reasons(self, plan: Plan, moment: Moment, trims: Bounds) -> None:
        """Where R6 takes less than brute force it says why."""
        files, own, limits = moment
        _, left = brute_force(files, PERCENT, {tp: max(end, own.get(tp, 0)) for tp, end in trims.items()}, own)
        more, _ = brute_force(files, PERCENT, limits, {**own, **trims})
        said = {(one.disk.broker, path): one for one in plan.disks for path in one.disk.dirs}
        for place in PLACES:
            device = (place.broker, place.device)
            if left[device] <= self.segments_on(device) or not more:
                continue
            one = said.get((place.broker, place.path))
            if one is None and place.broker in self.kafka.deaf:
                continue
            if one is not None and one.dead_bytes > files.leaving[device]:
                continue  # it takes more for dead than is, and says how much
            if one is None or (one.unknown is None and one.waits is None and not one.short_bytes):
                raise ViolationError(f"{device} stays {left[device]} above its ceiling, and nobody says why: {one}")


def _is_in(place: Place, one: DiskOutcome) -> bool:
    return place.broker == one.disk.broker and place.path in one.disk.dirs
