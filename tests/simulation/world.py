"""A cluster, its people and its operators: every step is a small tuple of numbers, so that a sequence is data.

``World.apply(step)`` does one; what makes no sense just now does nothing. So any sequence can be shortened, and a
failing one is kept as a plain list (tests/simulation/test_kept.py).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from retention_cli.brokers.errors import BrokerError
from retention_cli.carry_out import Orders, carry_out
from retention_cli.guards.limits import Amount
from retention_cli.model import TopicPartition
from retention_cli.plan import Plan
from retention_cli.planning import Selection, make_plan
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import Policy
from retention_cli.state.folder import StateError
from retention_cli.state.lock import LockedError
from retention_cli.state.memories import Memories
from retention_cli.trim import RefusedError
from retention_cli.trim_report import TrimReport
from tests.simulation.hub import Hub, Process
from tests.simulation.kafka import BEGAN_MS, BROKERS, HOUR, Group, SimKafka, Tp
from tests.simulation.logs import NO_STAMP, Partition, Record
from tests.simulation.reader import SimClock, SimDeleter, SimReader
from tests.simulation.truth import LOGS_CHANGE, MemoryTruth, Reading, Rules, Truth

Step = tuple[Any, ...]
"""The name of what happens, and small whole numbers."""

MINUTE: Final = 60_000
RULES: Final[dict[str, Rules]] = {
    "R1": Rules(consumed_h=1),
    "R1 R4": Rules(consumed_h=1, forced_h=24),
    "R1 G3": Rules(consumed_h=1, wallclock_h=2),
    "R2": Rules(event_h=24),
    "R2 header": Rules(event_h=24, header=True, unconsumed="trim"),
    "R2 header G2": Rules(event_h=24, header=True),
    "R3": Rules(minimum_ms=BEGAN_MS - 24 * HOUR, unconsumed="trim"),
    "R4": Rules(forced_h=12),
    "R4 G3": Rules(forced_h=12, wallclock_h=3),
    "R1 R2 R4 G3": Rules(consumed_h=1, event_h=24, forced_h=48, wallclock_h=2),
}
MANAGED: Final = "a"
OTHER: Final = "b"
GROUPS: Final = ("g0", "g1", "g2")
AGES_MS: Final = (0, 30 * MINUTE, 3 * HOUR, 48 * HOUR, 100 * HOUR, -2 * HOUR)
TIMES_MS: Final = (MINUTE, 40 * MINUTE, 3 * HOUR, 30 * HOUR, 10 * 24 * HOUR)
STATE_ROOT: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


@functools.cache
def policy(rules: str, topics: tuple[str, ...], hold: bool) -> Policy:
    lines = ["version: 1", "topics:"]
    for name in topics:
        lines += [f"  - match: {name}", *(f"    {line}" for line in RULES[rules].entry())]
        if hold:
            lines.append("    hold: a case")
    return parse_policy("\n".join(lines), "policy.yaml", "sha256:simulated")


@dataclass
class Operator:
    """Somebody with a kretain, a state directory and a clock."""

    name: str
    folder: Path
    clock: SimClock
    topics: tuple[str, ...]
    memory: MemoryTruth = field(default_factory=MemoryTruth)
    state: str = "fresh"
    copy: Path | None = None
    copied: MemoryTruth | None = None
    process: Process | None = None
    saved: Plan | None = None
    deleters: list[SimDeleter] = field(default_factory=list)
    reports: list[TrimReport] = field(default_factory=list)


class ViolationError(AssertionError):
    """The simulation found a delete, a report or a stand-still that RULES.md does not allow."""


class World:
    """One run of the simulation: ``rules`` names one of :data:`RULES`."""

    def __init__(self, rules: str) -> None:
        self.rules = rules
        self.kafka = SimKafka()
        self.hub = Hub()
        self.truth = Truth(self.kafka)
        self.root = Path(tempfile.mkdtemp(prefix="kretain-sim-", dir=STATE_ROOT))
        self.hold = False
        self.faults: list[str] = []
        self.pairs: Counter[tuple[str, str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.open: list[tuple[Tp, int]] = []
        self.deletes: list[tuple[int, Tp, int]] = []
        self.kafka.create(MANAGED, 2)
        self.kafka.create(OTHER, 1)
        self.operators = [
            Operator(
                f"op{n}",
                self.root / f"op{n}",
                SimClock(self.kafka, self.hub),
                (MANAGED,) if n == 0 else (MANAGED, OTHER),
            )
            for n in range(2)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self.operators:
            if one.process is not None:
                one.process.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def apply(self, step: Step) -> None:
        """Do one step.

        Raises:
            ViolationError: something happened that RULES.md does not allow.
        """
        self.truth.number += 1
        name, *numbers = step
        getattr(self, f"do_{name}")(*numbers)
        if self.truth.violations:
            raise ViolationError("\n".join(self.truth.violations))

    # -- producers ---------------------------------------------------------------------

    def tp(self, number: int) -> Tp:
        """Return one of the partitions: two of the topic that all manage, one of the other."""
        return ((MANAGED, 0), (MANAGED, 1), (OTHER, 0))[number % 3]

    def log(self, number: int) -> tuple[Tp, Partition] | None:
        tp = self.tp(number)
        found = self.kafka.partition(tp)
        return None if found is None or found.leader is None else (tp, found)

    def _append(self, tp: Tp, age: int, event: int, txn: int | None = None) -> Record | None:
        now = self.kafka.now_ms
        stamp: int | None = NO_STAMP if age == 7 else (now // 1000 if age == 6 else now - AGES_MS[age % len(AGES_MS)])
        event_ms = now - AGES_MS[event % 5]
        header = {5: b"no time", 6: str(event_ms // 1000).encode()}.get(event, str(event_ms).encode())
        timestamped = not RULES[self.rules].header and stamp != NO_STAMP
        record = self.kafka.append(tp, stamp=stamp, event_ms=stamp if timestamped else event_ms, header=header, txn=txn)
        self.truth.wrote(tp, record)
        return record

    def do_produce(self, number: int, count: int, age: int, event: int) -> None:
        if (found := self.log(number)) is not None:
            for _ in range(1 + count % 6):
                self._append(found[0], age, event)

    def do_transaction(self, number: int, count: int, age: int) -> None:
        if (found := self.log(number)) is not None and len(self.open) < 2:
            txn = self.kafka.begin_transaction(found[0])
            assert txn is not None
            for _ in range(1 + count % 3):
                self._append(found[0], age, age % 5, txn)
            self.open.append((found[0], txn))

    def do_end_transaction(self, how: int) -> None:
        if self.open:
            tp, txn = self.open.pop(0)
            self.kafka.end_transaction(tp, txn, "committed" if how % 2 else "aborted")

    # -- groups --------------------------------------------------------------------------

    def _group(self, number: int) -> Group:
        name = GROUPS[number % len(GROUPS)]
        if name not in self.kafka.groups:
            self.kafka.groups[name] = Group(name, "consumer" if number % 2 else "classic")
        return self.kafka.groups[name]

    def do_read(self, group: int, number: int, count: int, carry: int) -> None:
        """A group reads on from its commit (or from S), and commits."""
        if (found := self.log(number)) is None:
            return
        tp, log = found
        one = self._group(group)
        before = one.commits.get(tp)
        position = log.log.start if before is None or (one.name, tp) in self.truth.stale else before[0]
        there = [r for r in log.committed() if r.offset >= max(position, log.log.start)][: 1 + count % 8]
        offset = there[-1].offset + 1 if there else min(max(position, log.log.start), log.last_stable)
        epoch = there[-1].epoch if there else log.epoch
        self.truth.committed(one.name, tp, log, offset)
        one.commits[tp] = (offset, epoch if carry % 2 else None)

    def do_seek(self, group: int, number: int, back: int, carry: int) -> None:
        """A group goes back."""
        found = self.log(number)
        one = self._group(group)
        if found is None or found[0] not in one.commits:
            return
        tp, log = found
        offset = max(log.log.start, min(one.commits[tp][0], log.last_stable) - 1 - back % 6)
        self.truth.committed(one.name, tp, log, offset)
        one.commits[tp] = (offset, log.epoch if carry % 2 else None)

    def do_late(self, group: int, number: int, ahead: int, how: int) -> None:
        """A consumer of an older log of that name commits into this one."""
        if (found := self.log(number)) is None:
            return
        tp, log = found
        one = self._group(group)
        epoch = (None, log.epoch, log.epoch + 3)[how % 3]
        offset = log.high_watermark + 1 + ahead % 12
        if epoch == log.epoch + 3 and ahead % 2:
            offset = max(0, log.high_watermark - ahead % 4)
        self.truth.committed_late(one.name, tp, offset)
        one.commits[tp] = (offset, epoch)

    def do_member(self, group: int, topic: int) -> None:
        """A member joins, or leaves."""
        name = (MANAGED, OTHER)[topic % 2]
        one = self._group(group)
        if name in one.members:
            one.members.discard(name)
        else:
            one.members.add(name)
            for number in range(3):
                if self.tp(number)[0] == name:
                    self.truth.hazard(self.tp(number), "a member came")

    def do_delete_group(self, group: int) -> None:
        self._forget_commits(self.kafka.groups.pop(GROUPS[group % len(GROUPS)], None))

    def do_delete_offsets(self, group: int, number: int) -> None:
        one = self.kafka.groups.get(GROUPS[group % len(GROUPS)])
        if one is not None and (tp := self.tp(number)) in one.commits:
            del one.commits[tp]
            self.truth.hazard(tp, "offsets were deleted")
            self.truth.changed[one.name, tp] = self.truth.number
            self.truth.stale.pop((one.name, tp), None)

    def _forget_commits(self, group: Group | None) -> None:
        for tp in () if group is None else group.commits:
            self.truth.hazard(tp, "a group was deleted")
            self.truth.changed[group.name, tp] = self.truth.number  # type: ignore[union-attr]
            self.truth.stale.pop((group.name, tp), None)  # type: ignore[union-attr]

    # -- logs ----------------------------------------------------------------------------

    def do_fall_behind(self, number: int) -> None:
        if (found := self.log(number)) is not None:
            for broker in found[1].replicas:
                found[1].fall_behind(broker)

    def do_catch_up(self, number: int) -> None:
        if (found := self.log(number)) is not None:
            for broker in list(found[1].replicas):
                found[1].catch_up(broker)

    def do_elect(self, number: int, skip: int) -> None:
        """The other replica leads: where it is behind, the election is unclean."""
        if (found := self.log(number)) is None:
            return
        tp, log = found
        other = next(broker for broker in log.replicas if broker != log.leader)
        start = log.log.start
        cut = log.elect(other, skip=1 + skip % 2)
        if cut or log.log.start < start:
            self.truth.log_changed(tp, log, "an unclean election" if cut else "a log start went back")

    def do_lose_tail(self, number: int, count: int) -> None:
        """A broker of one replica loses power: what it had not synced is gone."""
        if (found := self.log(number)) is None or len(found[1].in_sync) > 1:
            return
        tp, log = found
        log.log.cut(max(log.log.start, log.log.end - 1 - count % 6))
        log.epoch += 1
        log.log.begin_epoch(log.epoch)
        self.truth.log_changed(tp, log, "a lost tail")

    def do_undo_start(self, number: int) -> None:
        """A broker is killed before it has written its log start offset down: it is where it was."""
        if (found := self.log(number)) is None:
            return
        tp, log = found
        there = [one.offset for one in log.log.records if one.offset < log.log.start]
        if not there:
            return
        for broker in log.in_sync:
            log.replicas[broker].start = min(there)
        log.epoch += 1
        log.log.begin_epoch(log.epoch)
        self.truth.log_changed(tp, log, "a trim was undone")

    def do_no_leader(self, number: int) -> None:
        tp = self.tp(number)
        log = self.kafka.partition(tp)
        if log is None:
            return
        if log.leader is None:
            log.leader, log.epoch = min(log.in_sync), log.epoch + 1
            log.log.begin_epoch(log.epoch)
        else:
            log.leader = None

    def do_retention(self, number: int, count: int) -> None:
        """A broker's own retention moves S."""
        if (found := self.log(number)) is not None:
            tp, log = found
            self.deletes.append(
                (self.truth.number, tp, log.move_start(min(log.last_stable, log.log.start + 1 + count % 6)))
            )

    def do_sweep(self, number: int) -> None:
        if (found := self.log(number)) is not None:
            for replica in found[1].replicas.values():
                replica.sweep()

    def do_compact(self, number: int, every: int) -> None:
        if (found := self.log(number)) is not None:
            self.kafka.compact(found[0], 2 + every % 3)

    def do_recreate(self, topic: int, clear: int) -> None:
        """A topic is deleted and made anew; brokers before 4 keep its commits."""
        name = (MANAGED, OTHER)[topic % 2]
        if name not in self.kafka.topics:
            return
        old = self.kafka.topics[name]
        self.kafka.delete(name, clear_commits=bool(clear % 2))
        self.kafka.create(name, len(old.partitions), append_time=old.append_time, cleanup=old.cleanup)
        for number in range(len(old.partitions)):
            tp = (name, number)
            self.truth.largest_event.pop(tp, None)
            self.truth.log_changed(tp, self.kafka.partition(tp), "a topic was made anew")
            self.open = [one for one in self.open if one[0] != tp]

    def do_append_time(self, topic: int) -> None:
        if (found := self.kafka.topics.get((MANAGED, OTHER)[topic % 2])) is not None:
            found.append_time = not found.append_time

    # -- brokers ---------------------------------------------------------------------------

    def do_coordinator(self, number: int, how: int) -> None:
        """A coordinator goes offline, comes back, or moves."""
        number %= len(self.kafka.offsets_leaders)
        leader, epoch = self.kafka.offsets_leaders[number]
        if how % 2 and leader is not None:
            self.kafka.offsets_leaders[number] = (None, epoch)
        else:
            there = BROKERS[(BROKERS.index(leader) + 1) % 3] if leader is not None else BROKERS[0]
            self.kafka.offsets_leaders[number] = (there, epoch + 1)

    def do_loading(self) -> None:
        self.kafka.loading = not self.kafka.loading

    def do_rights(self) -> None:
        self.kafka.may_describe = not self.kafka.may_describe

    def do_unstable(self, group: int) -> None:
        self.kafka.unstable ^= {GROUPS[group % len(GROUPS)]}

    def do_fail(self, call: int, times: int) -> None:
        """The next requests of a kind get lost."""
        calls = (
            "metadata",
            "read_commits",
            "list_offsets earliest",
            "list_offsets latest",
            "list_offsets time",
            "list_offsets max-timestamp",
            "epoch_ends",
            "fetch",
            "list_offsets last-stable",
        )
        self.kafka.failing[calls[call % len(calls)]] = 1 + times % 3

    def do_lose_delete(self, how: int) -> None:
        self.kafka.lost = [("before", "after", "late", "refused")[how % 4]]  # type: ignore[list-item]

    def do_late_delete(self) -> None:
        """Brokers come to requests that nobody waits for any more."""
        for one in self.operators:
            for deleter in one.deleters:
                while deleter.late:
                    deleter.late.pop()()

    def do_time(self, much: int) -> None:
        self.kafka.pass_time(TIMES_MS[much % len(TIMES_MS)])

    def do_hold(self) -> None:
        self.hold = not self.hold
        self.truth.held_since = self.truth.number if self.hold else None

    # -- kretain -----------------------------------------------------------------------------

    def do_plan(self, number: int, requests: int = 0) -> None:
        self._start(number, "plan", self._plan, requests)

    def do_trim(self, number: int, requests: int = 0) -> None:
        """Plan and trim; with ``requests``, it stops after so many of them and others go on."""
        self._start(number, "trim", self._trim, requests)

    def do_saved(self, number: int, requests: int = 0) -> None:
        """Carry out the plan that was saved last, by whomever."""
        self._start(number, "saved", self._carry_out_saved, requests)

    def do_step(self, number: int, requests: int) -> None:
        process = self.operators[number % 2].process
        if process is not None:
            process.step(1 + requests % 12)

    def do_finish(self, number: int) -> None:
        process = self.operators[number % 2].process
        if process is not None:
            process.finish()

    def do_kill(self, number: int) -> None:
        """SIGKILL: what it writes while it unwinds is undone."""
        one = self.operators[number % 2]
        if one.process is None or not one.process.alive:
            return
        kept = self._copy(one)
        one.process.kill()
        self._put_back(one, kept)

    def do_wipe(self, number: int) -> None:
        """Another pod, with an empty state directory."""
        one = self.operators[number % 2]
        self.do_finish(number)
        shutil.rmtree(one.folder, ignore_errors=True)
        one.memory, one.state = MemoryTruth(), "fresh"

    def do_copy_state(self, number: int) -> None:
        one = self.operators[number % 2]
        self.do_finish(number)
        one.copy, one.copied = self._copy(one), one.memory.copy()

    def do_restore_state(self, number: int) -> None:
        """An operator restores a state directory of some time ago, or takes the other's."""
        one, other = self.operators[number % 2], self.operators[(number // 2) % 2]
        if other.copy is None or other.copied is None:
            return
        self.do_finish(number)
        kept = Path(tempfile.mkdtemp(dir=self.root))
        shutil.copytree(other.copy, kept, dirs_exist_ok=True)
        self._put_back(one, kept)
        one.memory, one.state = other.copied.copy(), "older" if one is other else "another's"

    def do_forget(self, number: int, group: int) -> None:
        """``kretain groups forget``."""
        one, name = self.operators[number % 2], GROUPS[group % len(GROUPS)]
        self.do_finish(number)
        with contextlib.suppress(StateError), closing(Memories(one.folder, clock_ms=one.clock.wall_ms)) as memories:
            memories.ledger(self.kafka.cluster_id).forget_group(name)
        one.memory.counted = {key: seen for key, seen in one.memory.counted.items() if key[0] != name}
        one.memory.refused = {key for key in one.memory.refused if key[0] != name}

    def _copy(self, one: Operator) -> Path:
        kept = Path(tempfile.mkdtemp(dir=self.root))
        if one.folder.exists():
            shutil.copytree(one.folder, kept, dirs_exist_ok=True)
        return kept

    @staticmethod
    def _put_back(one: Operator, kept: Path) -> None:
        shutil.rmtree(one.folder, ignore_errors=True)
        kept.rename(one.folder)

    def _start(self, number: int, name: str, work: Callable[[Operator], None], requests: int) -> None:
        one = self.operators[number % 2]
        if one.process is not None and one.process.alive:
            one.process.finish()

        def run() -> None:
            with contextlib.suppress(BrokerError, LockedError, RefusedError, StateError):
                work(one)

        one.process = self.hub.start(f"{one.name} {name}", run)
        if requests:
            one.process.step(requests)
        else:
            one.process.finish()

    def _selection(self, one: Operator) -> Selection:
        return Selection(policy(self.rules, one.topics, self.hold))

    def _reading(self, one: Operator) -> tuple[Reading, SimReader]:
        reading = Reading(one.memory, RULES[self.rules])
        reader = SimReader(self.kafka, self.hub, one.clock)

        reader.on_commits = functools.partial(self.truth.read, reading)
        return reading, reader

    def _planned(self, one: Operator, reading: Reading, reader: SimReader, memories: Memories) -> Plan:
        now_ms = one.clock.wall_ms()
        reading.began = self.truth.number
        plan = make_plan(
            reader,
            self._selection(one),
            now_ms,
            past_day=lambda _cluster: Amount(),
            memories=memories,
            clock_ms=one.clock.wall_ms,
        )
        self.truth.passed(reading, one.topics)
        self.outcomes.update(f"plan {decision.action}" for decision in plan.decisions)
        one.saved = plan
        return plan

    def _plan(self, one: Operator) -> None:
        reading, reader = self._reading(one)
        with closing(Memories(one.folder, clock_ms=one.clock.wall_ms)) as memories:
            self._planned(one, reading, reader, memories)
        one.state = "own" if one.state == "fresh" else one.state

    def _trim(self, one: Operator) -> None:
        reading, reader = self._reading(one)
        with closing(Memories(one.folder, clock_ms=one.clock.wall_ms)) as memories:
            plan = self._planned(one, reading, reader, memories)
            self._carry_out(one, plan, reading, reader, memories)
        one.state = "own" if one.state == "fresh" else one.state

    def _carry_out_saved(self, one: Operator) -> None:
        plan = next((o.saved for o in self.operators if o.saved is not None), None)
        if plan is None or plan.created_at_ms < self.kafka.now_ms - HOUR:
            return
        reading, reader = self._reading(one)
        with closing(Memories(one.folder, clock_ms=one.clock.wall_ms)) as memories:
            self._carry_out(one, plan, reading, reader, memories)
        one.state = "own" if one.state == "fresh" else one.state

    def _carry_out(self, one: Operator, plan: Plan, reading: Reading, reader: SimReader, memories: Memories) -> None:
        reading.unconsumed = {(row.topic, row.partition): row.unconsumed for row in plan.decisions}

        def selection() -> Selection:
            reading.hold_seen = reading.began = self.truth.number
            return self._selection(one)

        def carried(tp: TopicPartition, offset: int) -> Callable[[], None]:
            asked = replace(reading)

            def effect() -> None:
                place = (tp.topic, tp.partition)
                log = self.kafka.partition(place)
                assert log is not None
                if offset > log.log.start:
                    self.truth.check(asked, place, offset)
                    asked.moved[place] = asked.moved.get(place, 0) + offset - log.log.start
                    self.deletes.append((self.truth.number, place, offset))
                    for fault in set(self.faults) or {"none"}:
                        self.pairs[fault, self.rules, one.state] += 1

            return effect

        deleter = SimDeleter(self.kafka, self.hub, carried)
        one.deleters = [deleter]
        orders = Orders(
            selection=selection,
            state_dir=one.folder,
            clock_ms=one.clock.wall_ms,
            memories=memories,
            deleter_for=lambda _reader: deleter,
        )
        began = self.truth.number
        report = carry_out(reader, plan, orders, lambda _: 0)
        memories.save(one.clock.wall_ms())
        self.truth.passed(reading, one.topics)
        one.reports.append(report)
        self._check_report(report, reading, began)

    def _check_report(self, report: TrimReport, reading: Reading, began: int) -> None:
        """Each outcome must be true: what is said to be ours is ours, and no more than that is counted."""
        for row in report.rows:
            self.outcomes[f"trim {row.outcome}"] += 1
            tp = (row.topic, row.partition)
            moved = reading.moved.get(tp, 0)
            told = row.records if row.outcome == "trimmed" else 0
            others = [one for one in self.deletes if one[0] >= began and one[1:] == (tp, row.target)]
            doubtful = any(one.number >= began for one in self.truth.hazards.get(tp, ())) or bool(others)
            if told > moved and not doubtful:
                self.truth.violations.append(f"{tp}: the report claims {told} records, this run deleted {moved}: {row}")
            undone = any(one.number >= began and one.name in LOGS_CHANGE for one in self.truth.hazards.get(tp, ()))
            if row.outcome in ("failed", "held", "unchanged") and moved and not undone:
                self.truth.violations.append(f"{tp}: the report says {row.outcome}, this run deleted {moved}: {row}")

    # -- when all is over --------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, carry out each remedy that was told, and see that nothing stays for ever.

        Raises:
            ViolationError: a fresh kretain would trim what this one never does.
        """
        self._heal()
        one = self.operators[0]
        for _ in range(3):
            self.apply(("plan", 0))
            told = [] if one.saved is None else [reason.text for row in one.saved.decisions for reason in row.reasons]
            for number, name in enumerate(GROUPS):
                if any(f"groups forget {name}" in text for text in told):
                    self.do_forget(0, number)
        for _ in range(3):
            self.apply(("time", 2))
            self.apply(("trim", 0))
        fresh = Operator("fresh", self.root / "fresh", SimClock(self.kafka, self.hub), one.topics)
        reading, reader = self._reading(fresh)
        with closing(Memories(fresh.folder)) as memories:
            wanted = self._planned(fresh, reading, reader, memories)
        self.apply(("plan", 0))
        assert one.saved is not None
        mine = {row.tp: row for row in one.saved.decisions}
        for row in wanted.decisions:
            own = mine[row.tp]
            if row.action == "trim" and (own.trim_to or own.log_start or 0) < (row.trim_to or 0):
                raise ViolationError(f"{row.tp}: stands still: {own}\na fresh kretain: {row}")

    def _heal(self) -> None:
        for number in range(2):
            self.do_finish(number)
        self.kafka.failing, self.kafka.lost, self.kafka.loading, self.kafka.may_describe = {}, [], False, True
        self.kafka.unstable = set()
        self.kafka.offsets_leaders = [
            (BROKERS[n % 3] if leader is None else leader, epoch)
            for n, (leader, epoch) in enumerate(self.kafka.offsets_leaders)
        ]
        if self.hold:
            self.do_hold()
        while self.open:
            self.do_end_transaction(1)
        for name in self.kafka.topics:
            for number, log in enumerate(self.kafka.topics[name].partitions):
                if log.leader is None:
                    log.leader, log.epoch = min(log.in_sync), log.epoch + 1
                    log.log.begin_epoch(log.epoch)
                for broker in list(log.replicas):
                    log.catch_up(broker)
                for group in self.kafka.groups.values():  # what F2 and F5 say: let it commit (again)
                    group.members.clear()
                    tp = (name, number)
                    if any(one[0] == name for one in group.commits):
                        here = group.commits.get(tp, (log.log.start, None))
                        offset = min(here[0], log.last_stable)
                        self.truth.committed(group.name, tp, log, offset)
                        again = group.commits.get(tp) == (offset, log.epoch)  # a reset carries no leader epoch
                        group.commits[tp] = (offset, None if again else log.epoch)


def steps() -> dict[str, int]:
    """Return each step's name, and how many numbers it takes."""
    found = {}
    for name, function in inspect.getmembers(World, inspect.isfunction):
        if name.startswith("do_"):
            found[name.removeprefix("do_")] = len(inspect.signature(function).parameters) - 1
    return found


def run(rules: str, sequence: Sequence[Step], *, settle: bool = True) -> World:
    """Carry a whole sequence out, from a new cluster on.

    Raises:
        ViolationError: see :meth:`World.apply`.
    """
    with World(rules) as world:
        for step in sequence:
            world.faults.append(step[0])
            world.apply(step)
        if settle:
            world.settle()
        return world
