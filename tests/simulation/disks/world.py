"""A cluster with disks, two operators and their inventories: every step is a small tuple of numbers."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final, get_args

from retention_cli.core.errors import Refusal
from retention_cli.core.model import Unknown
from retention_cli.decide.decision import disk_limit
from retention_cli.decide.guards.limits import Amount
from retention_cli.decide.topic_rules import TopicRules
from retention_cli.disks.inventory_view import InventoryView
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Request
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import AuditRules
from retention_cli.policy.urls import NONE
from retention_cli.state.memories import Memories
from retention_cli.trim.run import TrimJob, carry_out
from tests.simulation.clients import SimBrokerClock, SimClock, SimDeleter
from tests.simulation.disks.judge import PERCENT, Bounds, Files, Judge, Moment
from tests.simulation.disks.kafka import PLACES, SEGMENT_BYTES, TOTALS, DiskKafka, DiskReader, inventory_of, scan
from tests.simulation.kafka import BROKERS, HOUR, Group, Partition, Storage, Tp
from tests.simulation.scene import Simulated

FULL: Final = 0.96
"""Producers stop here: what a broker does without any room is not modelled."""
SECONDS: Final = (5, 20, 61, 130, 301, 420, 1_000, 7_200)
TOPICS: Final = {"a": ((1, 2), (2, 3), (3, 1)), "b": ((1, 2, 3), (3, 1)), "c": ((2, 3),)}
"""All rules but R6 are off for ``b``, of which unread records stay; nobody manages ``c``."""
PARTITIONS: Final = tuple((name, n) for name, places in TOPICS.items() for n in range(len(places)))
_ENTRIES: Final = """version: 1
limits: {max.percent: 100}
topics:
  - match: a
    retention.commitoffset.enable: true
    retention.commitoffset.hours: 1
    unconsumed: trim
  - match: b
    unconsumed: hold
"""
POLICY: Final = parse_policy(
    f"{_ENTRIES}disks: {{log.retention.disk.usage.percent: {PERCENT}}}\n", "policy.yaml", "sha256:simulated"
)
WITHOUT: Final = parse_policy(_ENTRIES, "policy.yaml", "sha256:simulated")
"""The same without R6: what the other rules come to."""


def trims_of(plan: Plan) -> Bounds:
    return {(one.topic, one.partition): one.trim_to for one in plan.decisions if one.trim_to is not None}


class DiskWorld(Simulated):
    def __init__(self) -> None:
        super().__init__()
        self.kafka = DiskKafka()
        self.clock = SimClock(self.kafka)
        self.folders = [self.root / "op0", self.root / "op1"]
        self.scans: dict[int, Any] = {}
        self.judge = Judge(self.kafka)
        for name, places in TOPICS.items():
            self.kafka.create_on(name, places)
        self.kafka.groups["g"] = Group("g")

    def tp(self, number: int) -> Tp:
        return PARTITIONS[number % len(PARTITIONS)]

    def log(self, number: int) -> Partition:
        return self.kafka.partition(self.tp(number))

    # -- records and files -------------------------------------------------------------------

    def do_produce(self, number: int, count: int, age: int) -> None:
        """Write some segments' worth, stamped now or a while ago, unless a disk is full."""
        tp = self.tp(number)
        for _ in range(1 + count % 30):
            if any(self.kafka.used(one) > FULL * total for one, total in TOTALS.items()):
                return
            self.kafka.append(tp, stamp=self.kafka.now_ms - (0, 0, 0, 60_000, 5 * HOUR)[age % 5])
            self.kafka.pass_time(200)

    def do_fill(self, count: int) -> None:
        for number in range(len(PARTITIONS)):
            self.do_produce(number, count, 0)

    def do_read(self, number: int, behind: int) -> None:
        log = self.log(number)
        offset = max(log.log.start, log.log.end - 2 * (behind % 12))
        self.kafka.groups["g"].commits[self.tp(number)] = (offset, log.epoch)

    def do_time(self, number: int) -> None:
        self.kafka.pass_time(1000 * SECONDS[number % len(SECONDS)])

    def do_others(self, number: int, size: int) -> None:
        """Others write to a device, or give something back."""
        device = list(TOTALS)[number % len(TOTALS)]
        now = max(100_000, self.kafka.others[device] + (-900_000, -300_000, 100_000, 600_000, 1_500_000)[size % 5])
        if self.kafka.used(device) + now - self.kafka.others[device] < FULL * TOTALS[device]:
            self.kafka.others[device] = now

    def do_recreate(self, number: int) -> None:
        name = list(TOPICS)[number % len(TOPICS)]
        self.kafka.delete_with_files(name)
        self.kafka.create_on(name, TOPICS[name])

    def do_storage(self, number: int, kind: int) -> None:
        """Switch a topic to remote storage, to object storage alone (both: R6 leaves it alone), or back."""
        self.kafka.topics[self.tp(number)[0]].storage = get_args(Storage)[kind % 3]

    def do_move(self, number: int, source: int, place: int) -> None:
        """Move a replica to another broker, or to another dir, where there is room."""
        to = PLACES[place % len(PLACES)]
        device = (to.broker, to.device)
        if self.kafka.used(device) < 0.7 * TOTALS[device]:
            self.kafka.move(self.tp(number), BROKERS[source % 3], to)

    def do_retention(self, number: int, count: int) -> None:
        log = self.log(number)
        log.move_start(min(log.last_stable, log.log.start + 4 * (count % 6)))

    def do_elect(self, number: int) -> None:
        self.log(number).elect()

    def do_fall_behind(self, number: int) -> None:
        self.log(number).fall_behind()

    def do_catch_up(self, number: int) -> None:
        log = self.log(number)
        for broker, replica in list(log.replicas.items()):
            place = self.kafka.placed[broker, self.tp(number)]
            room = FULL * TOTALS[broker, place.device] - self.kafka.used((broker, place.device))
            if room < len(log.log.records) * SEGMENT_BYTES // 4 and broker not in log.in_sync:
                continue  # what a follower does without any room is not modelled
            first = min((one.offset for one in replica.records), default=log.log.start)
            log.catch_up(broker)  # it fetches what it lacks at its end, and never again what it has swept
            caught_up = log.replicas[broker]
            caught_up.records = [one for one in caught_up.records if one.offset >= first]

    # -- kretain -----------------------------------------------------------------------------

    def do_scan(self, number: int) -> None:
        for broker in BROKERS:
            if number % 5 in (0, 4, broker):
                self.scans[broker] = scan(self.kafka, broker)

    def do_lose_scans(self) -> None:
        self.scans.clear()

    def do_deaf(self, number: int) -> None:
        """A broker does not tell of its log dirs any more, or does again."""
        self.kafka.deaf ^= {BROKERS[number % 3]}

    def do_lose_delete(self, number: int) -> None:
        self.kafka.lost.append(("before", "after", "refused")[number % 3])  # type: ignore[arg-type]

    def do_wipe(self, number: int) -> None:
        """An operator comes with a new machine, a new pod, a fresh state directory."""
        self.folders[number % 2] = Path(tempfile.mkdtemp(dir=self.root))

    def do_plan(self, number: int, inventory: int) -> None:
        folder, view = self.folders[number % 2], self.view(inventory)
        with closing(self.memories(folder)) as memories:
            self.planned(memories, view)

    def do_trim(self, number: int, inventory: int) -> Plan:
        folder, view = self.folders[number % 2], self.view(inventory)
        with closing(self.memories(folder)) as memories:
            plan = self.planned(memories, view)
            moment = self.moment(memories)
            job = TrimJob(
                reader=self.reader(),
                plan=plan,
                exit_code_for=lambda _: 0,
                selection=lambda: Selection(POLICY),
                state_dir=folder,
                clock_ms=self.clock.wall_ms,
                memories=memories,
                inventory=view,
                deleter_for=lambda _reader: SimDeleter(self.kafka, lambda _tp, _offset: lambda: None),
                audit=AuditRules(evidence=NONE),
                broker_clock_for=lambda _reader, clock_ms: SimBrokerClock(self.kafka, clock_ms),
            )
            try:
                carry_out(job)
            except Refusal as error:
                self.judge.counts[f"refused: {type(error).__name__}"] += 1
            memories.save(self.clock.wall_ms())
        now, before = Files.of(self.kafka).starts, moment.files.starts
        moved = {tp: start for tp, start in now.items() if start > before.get(tp, start)}
        self.judge.takes("trim", moment, moved, estimated=view is None)
        return plan

    # -- what is behind it --------------------------------------------------------------------

    def reader(self) -> DiskReader:
        return DiskReader(self.kafka, self.clock)

    def memories(self, folder: Path) -> Memories:
        return Memories(folder, None, clock_ms=self.clock.wall_ms)

    def view(self, inventory: int) -> InventoryView | None:
        """Return what was scanned: with 0 nothing is used, with 2 all brokers are scanned at this very moment."""
        if inventory % 3 == 2:
            self.do_scan(0)
        return InventoryView(inventory_of(self.scans)) if inventory % 3 and self.scans else None

    def moment(self, memories: Memories) -> Moment:
        own = trims_of(LocalPlanner().plan(self.job(WITHOUT, memories)))
        return Moment(Files.of(self.kafka), own, self.limits(memories))

    def job(self, policy: Policy, memories: Memories, reader: DiskReader | None = None) -> PlanJob:
        now_ms = self.clock.wall_ms
        return PlanJob(reader or self.reader(), Selection(policy), now_ms(), lambda _: Amount(), memories, now_ms)

    def limits(self, memories: Memories) -> Bounds:
        """Return how far the guards let R6 go of each managed partition that it may touch; it is not what is judged."""
        now_ms = self.clock.wall_ms()
        request = Request(Selection(WITHOUT).settings_for, WITHOUT.groups, now_ms, memories, self.clock.wall_ms)
        seen = observe(self.reader(), request)
        found = {}
        for tp, facts in seen.facts.items():
            limit = disk_limit(facts, TopicRules(facts.topic, seen.settings[tp.topic], now_ms))
            if not isinstance(limit, Unknown) and self.kafka.topics[tp.topic].storage == "local":
                found[tp.topic, tp.partition] = limit.offset
        return found

    def planned(self, memories: Memories, view: InventoryView | None) -> Plan:
        moment = self.moment(memories)
        plan = LocalPlanner(view).plan(self.job(POLICY, memories))
        trims = trims_of(plan)
        self.judge.takes("plan", moment, trims, estimated=view is None)
        self.judge.reasons(plan, moment, trims)
        if view is not None and self.is_fresh():
            self.judge.exactly(plan, moment, trims)
        return plan

    def in_sync(self) -> bool:
        return all(log.in_sync == log.replicas.keys() for _, log in self.kafka.logs())

    def is_fresh(self) -> bool:
        """Return whether the scans say of all brokers what is there at this very moment, and all brokers answer."""
        return (
            self.in_sync()
            and not self.kafka.deaf
            and all(
                broker in self.scans
                and self.scans[broker][0].scanned_at_ms == self.kafka.now_ms
                and self.scans[broker][1].equals(scan(self.kafka, broker)[1])
                and self.scans[broker][0].dirs == scan(self.kafka, broker)[0].dirs
                for broker in BROKERS
            )
        )
