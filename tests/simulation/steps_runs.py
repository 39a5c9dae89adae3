"""Steps: kretain runs, is stopped, killed, and finds its memory as it was, as it was once, or not at all.

A run is the engine's own functions, with the simulated cluster behind them.
"""

from __future__ import annotations

import copy
import functools
import shutil
import tempfile
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import LockedError, StateError
from retention_cli.decide.guards.limits import Amount
from retention_cli.evidence.verify import verify_runs
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import AuditRules
from retention_cli.policy.urls import NONE
from retention_cli.state.memories import Memories
from retention_cli.trim.batches import RefusedError
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import TrimJob, carry_out
from tests.simulation.allowed import check
from tests.simulation.clients import SimBrokerClock, SimDeleter, SimStateTopic
from tests.simulation.kafka import HOUR
from tests.simulation.reader import SimReader
from tests.simulation.scene import CLOCKS_MS, MINUTE, Operator, group_name, policy
from tests.simulation.truth import LOGS_CHANGE, MemoryTruth, Moved, Reading

if TYPE_CHECKING:
    from tests.simulation.world import World

GOOD_FOR_S = 30
"""The age of a recheck, in seconds, up to which its deletes may be sent (docs/rules.md, What no client can see)."""

EVIDENCE_EVERY = 8
"""Of so many trims of an operator the first leaves evidence, which must then be accepted: writing it takes time."""


def selection_of(world: World, one: Operator) -> Selection:
    return Selection(
        policy(world.wanted, one.topics, world.hold, "cluster" if world.memories == "cluster" else "local")
    )


def memories_of(world: World, one: Operator) -> Memories:
    topic = SimStateTopic(world.kafka) if world.memories == "cluster" else None
    return Memories(one.folder, topic, clock_ms=one.clock.wall_ms)


def reading_of(world: World, one: Operator) -> tuple[Reading, SimReader]:
    reading = Reading(one.memory, world.wanted, one.clock, world.memories == "cluster", one.name)
    reader = SimReader(world.kafka, one.clock)

    reader.on_commits = functools.partial(world.truth.read, reading)
    reader.on_ends = reading.ends_read
    reader.on_list = lambda: reading.memory.looks.append(world.kafka.now_ms)
    return reading, reader


def planned(world: World, one: Operator, reading: Reading, reader: SimReader, memories: Memories) -> Plan:
    reading.began = world.truth.number
    reading.rules = world.wanted
    plan = LocalPlanner().plan(
        PlanJob(
            reader,
            selection_of(world, one),
            one.clock.wall_ms(),
            past_day=lambda _cluster: Amount(),
            memories=memories,
            clock_ms=one.clock.wall_ms,
        )
    )
    world.truth.passed(reading, one.topics)
    world.outcomes.update(f"plan {decision.action}" for decision in plan.decisions)
    one.saved = plan
    reading.unconsumed = {(row.topic, row.partition): row.unconsumed for row in plan.decisions}
    return plan


def run_once(world: World, saved: Plan | None, trims: bool, one: Operator) -> None:
    """Plan, unless there is a saved plan, and trim."""
    reading, reader = reading_of(world, one)
    with closing(memories_of(world, one)) as memories:
        plan = planned(world, one, reading, reader, memories) if saved is None else saved
        if trims:
            carry_out_plan(world, one, plan, reading, reader, memories)


def carry_out_saved(world: World, late: bool, one: Operator) -> None:
    """Carry a saved plan out, made by whomever and, where its maximum age was set so, long ago."""
    plan = next((o.saved for o in world.operators if o.saved is not None), None)
    if plan is not None and (late or plan.created_at_ms >= world.kafka.now_ms - HOUR):
        run_once(world, plan, True, one)


def carry_out_plan(
    world: World, one: Operator, plan: Plan, reading: Reading, reader: SimReader, memories: Memories
) -> None:
    def selection() -> Selection:
        reading.began = world.truth.number
        reading.began_s = world.kafka.elapsed_s
        reading.rules = world.wanted
        return selection_of(world, one)

    def carried(tp: TopicPartition, offset: int) -> Callable[[], None]:
        asked = replace(reading)

        def effect() -> None:
            place = (tp.topic, tp.partition)
            log = world.kafka.partition(place)
            if offset > log.log.start:
                check(world.truth, asked, place, offset)
                asked.moved[place] = asked.moved.get(place, 0) + offset - log.log.start
                world.truth.moves.append(Moved(world.truth.number, place, log.log.start, offset, one.name))

        return effect

    def sent() -> None:
        if (old := world.kafka.elapsed_s - reading.began_s) > GOOD_FOR_S:
            world.truth.violations.append(f"a delete was sent {old:.0f} s after its recheck began")

    deleter = SimDeleter(world.kafka, carried, sent)
    one.late = deleter.late
    job = TrimJob(
        reader=reader,
        plan=plan,
        exit_code_for=lambda _: 0,
        selection=selection,
        state_dir=one.folder,
        clock_ms=one.clock.wall_ms,
        memories=memories,
        deleter_for=lambda _reader: deleter,
        broker_clock_for=lambda _reader, clock_ms: SimBrokerClock(world.kafka, clock_ms),
        audit=AuditRules(evidence=None if len(one.reports) % EVIDENCE_EVERY == 0 else NONE),
    )
    began = world.truth.number
    report = carry_out(job)
    memories.save(one.clock.wall_ms())
    again = {(row.topic, row.partition) for row in plan.decisions if row.action == "trim"}
    world.truth.passed(reading, one.topics, again)
    one.reports.append(report)
    check_report(world, report, reading, began, {tp for tp, _ in deleter.late})
    if job.audit.evidence is None and report.sent:
        findings = verify_runs(one.folder, [report.run])[0].findings
        world.truth.violations += [f"evidence is refused: {found.where}: {found.text}" for found in findings]


def check_report(
    world: World, report: TrimReport, reading: Reading, began: int, under_way: Collection[TopicPartition]
) -> None:
    """Each outcome must be true: a trim claims only what its own deletes moved, and counts no more.

    ``trimmed`` counts at the most what this run's deletes moved, and something was moved. ``unchanged`` (also what was
    gone already), ``held`` and ``failed`` moved nothing, and count nothing; nor is a request of theirs still under way.
    Where the log changed, or somebody else
    deleted to the very same offset, no client can tell (docs/plan.md, outcomes): these are counted as residues.
    """
    for row in report.rows:
        world.outcomes[f"trim {row.outcome}"] += 1
        tp = row.tp
        moved = reading.moved.get(tp, 0)
        wrong = None
        if row.outcome == "trimmed" and row.records > moved:
            wrong = f"the report claims {row.records} records, this run deleted {moved}"
        elif row.outcome in ("failed", "held", "unchanged") and moved:
            wrong = f"the report says {row.outcome}, this run deleted {moved}"
        elif row.outcome in ("failed", "held", "unchanged") and row.records:
            wrong = f"the report says {row.outcome}, and counts {row.records} records"
        elif row.outcome == "failed" and tp in under_way:
            wrong = "the report says failed, and the request may yet be carried out"
        if wrong is None:
            continue
        changed = world.truth.hazards_since(tp, began).intersection(LOGS_CHANGE)
        if world.truth.excuses(f"a report, and {' and '.join(sorted(changed))}", bool(changed)):
            continue
        others = world.truth.moved_by_others(tp, reading.who, began)
        if any(one.who and one.to == row.target for one in others) and not moved:
            world.truth.residues["a report, and somebody else deleted to the same offset"] += 1
        elif row.outcome == "trimmed" and row.records <= moved + sum(one.to - one.start for one in others):
            how = {"another run deleted" if one.who else "retention moved the log start" for one in others}
            world.truth.residues[f"a report, and {' and '.join(sorted(how))} meanwhile"] += 1
        else:
            world.truth.violations.append(f"{tp}: {wrong}: {row}")
    told = sum(row.records for row in report.rows if row.outcome == "trimmed")
    if report.trimmed.records != told:
        world.truth.violations.append(f"the report's total is {report.trimmed}, its rows come to {told}")


def do_plan(world: World, number: int, requests: int = 0) -> None:
    start(world, number, "plan", functools.partial(run_once, world, None, False), requests)


def do_trim(world: World, number: int, requests: int = 0) -> None:
    """Plan and trim; with ``requests``, it stops after so many of them and others go on."""
    start(world, number, "trim", functools.partial(run_once, world, None, True), requests)


def do_saved(world: World, number: int, requests: int = 0) -> None:
    """Carry out the plan that was saved last, by whomever."""
    start(world, number, "saved", functools.partial(carry_out_saved, world, number >= 6), requests)


def do_step(world: World, number: int, requests: int) -> None:
    world.operators[number % 2].process.step(1 + requests % 12)


CALLS: Final = (
    "metadata",
    "list_groups 2",
    "list_groups 3",
    "read_commits",
    "list_offsets latest",
    "list_offsets time",
    "epoch_ends",
    "fetch",
    "sizes",
    "state append",
    "delete_records",
    "delete_records answered",
    "describe_members",
    "delete_records written",
)
"""Where a run can be stopped: before such a request, or between what a broker did and its answer."""


def do_until(world: World, number: int, call: int) -> None:
    """A run goes on until just before the next request of a kind: there a fault does the most."""
    process = world.operators[number % 2].process
    process.step()
    while process.alive and process.last != CALLS[call % len(CALLS)]:
        process.step()


def do_finish(world: World, number: int) -> None:
    world.operators[number % 2].process.finish()


def do_kill(world: World, number: int) -> None:
    """SIGKILL: what it writes while it unwinds is undone."""
    one = world.operators[number % 2]
    if not one.process.alive:
        return
    if world.memories == "one":  # what the other writes meanwhile must stay
        do_finish(world, 1 - number % 2)
    kept = copy_of(world, one)
    one.process.kill()
    put_back(one, kept)


def do_clock(world: World, number: int, how: int) -> None:
    one = world.operators[number % 2]
    one.clock.off_ms = CLOCKS_MS[how % len(CLOCKS_MS)]
    if abs(one.clock.off_ms) > MINUTE:
        for other in world.operators:
            if other.memory is one.memory:
                other.memory.clock_was_off = True
    for tp, _ in world.kafka.logs():
        world.truth.hazard(tp, "our clock was set")


def do_source(world: World, how: int) -> None:
    """Somebody changes the policy: where event times are."""
    world.source = how % 3
    for tp, log in world.kafka.logs():
        world.counts_events(tp, log.log.live())


def do_wipe(world: World, number: int) -> None:
    """Another pod, with an empty state directory."""
    one = world.operators[number % 2]
    finish_all(world)
    shutil.rmtree(one.folder, ignore_errors=True)
    remembers(world, one, MemoryTruth())


def do_copy_state(world: World, number: int) -> None:
    one = world.operators[number % 2]
    do_finish(world, number)
    one.copy, one.copied = copy_of(world, one), copy.deepcopy(one.memory)


def do_restore_state(world: World, number: int) -> None:
    """An operator restores a state directory of some time ago, or takes the other's."""
    one, other = world.operators[number % 2], world.operators[(number // 2) % 2]
    if other.copy is None or other.copied is None:
        return
    finish_all(world)
    kept = Path(tempfile.mkdtemp(dir=world.root))
    shutil.copytree(other.copy, kept, dirs_exist_ok=True)
    put_back(one, kept)
    remembers(world, one, copy.deepcopy(other.copied))


def finish_all(world: World) -> None:
    for number in range(2):
        do_finish(world, number)


def remembers(world: World, one: Operator, memory: MemoryTruth) -> None:
    """Note what a state directory knows by now; where all share a topic, that is what is known."""
    if world.memories == "cluster":
        return
    users = world.operators if world.memories == "one" else [one]
    memory.clock_was_off |= any(abs(other.clock.off_ms) > MINUTE for other in users)  # it is off still
    for other in users:
        other.memory = memory


def do_forget(world: World, number: int, group: int) -> None:
    one, name = world.operators[number % 2], group_name(world.rules, group)
    do_finish(world, number)
    with suppress(StateError), closing(memories_of(world, one)) as memories:
        memories.ledger(world.kafka.cluster_id).forget_group(name)
    one.memory.counted = {key: seen for key, seen in one.memory.counted.items() if key[0] != name}
    one.memory.refused = {key for key in one.memory.refused if key[0] != name}
    one.memory.widths.pop(name, None)
    one.memory.forgotten[name] = world.truth.number
    one.memory.last = {key: seen for key, seen in one.memory.last.items() if key[0] != name}


def copy_of(world: World, one: Operator) -> Path:
    kept = Path(tempfile.mkdtemp(dir=world.root))
    if one.folder.exists():
        shutil.copytree(one.folder, kept, dirs_exist_ok=True)
    return kept


def put_back(one: Operator, kept: Path) -> None:
    shutil.rmtree(one.folder, ignore_errors=True)
    kept.rename(one.folder)


def start(world: World, number: int, name: str, work: Callable[[Operator], None], requests: int) -> None:
    one = world.operators[number % 2]
    one.process.finish()

    def run() -> None:
        with suppress(BrokerError, LockedError, RefusedError, StateError):
            work(one)

    one.source = world.wanted.source
    one.process = world.hub.start(f"{one.name} {name}", run)
    if requests:
        one.process.step(requests)
    else:
        one.process.finish()
