"""One pass: plan as ``kretain plan`` does and, where it may, carry the plan out as ``kretain trim`` does.

Nothing here decides or rechecks: it only says when a plan may be carried out, and how much of it. And, for metrics, how
long until what a consumer has not read goes: the forecast's answer for the consumers that set floors
(:mod:`retention_cli.forecast.loss`), by its rates and disks. What might come first and is unknown makes it unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from retention_cli.audit.chain import Link
from retention_cli.audit.files import read_head
from retention_cli.audit.log import NamedLedger
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import floor_by
from retention_cli.core.model import Code, Decision, Reason, TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.core.state_dir import LockedError, StateError, cluster_folder
from retention_cli.forecast.loss import Place, seconds_to_loss
from retention_cli.forecast.reading import forecasts_of, limits_of, partition_inputs, seen_in
from retention_cli.forecast.steady import Terms as ForecastTerms, guarded
from retention_cli.forecast.value import HOUR_MS
from retention_cli.plan.make import LocalPlanner, PlanInputs, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import DiskRules, Settings
from retention_cli.policy.urls import NotifyRules
from retention_cli.protect.decision import Protection, Terms
from retention_cli.protect.run import ProtectJob, carry_out as carry_out_protection, plan_protection
from retention_cli.state.memories import Kind, Memories
from retention_cli.trim.batches import StopError
from retention_cli.trim.history import past_day
from retention_cli.trim.journal import new_run_name
from retention_cli.trim.narrow import Ceiling, Narrowed, narrowed
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import ExitCodeFor, PlanRefusedError, TrimJob, carry_out, shipped
from retention_cli.watch.leader import Leadership
from retention_cli.watch.measured import LossOf, Series, groups_of, measured, unread_in

if TYPE_CHECKING:  # only an inventory needs these
    from retention_cli.disks.inventory_view import InventoryView


SETTLES_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class CurrentPolicy:
    """The policy to plan by.

    ``broken`` is what is wrong with the file now, ``hold`` why nothing may be trimmed by it.
    """

    selection: Selection
    broken: PolicyError | None = None
    hold: Reason | None = None


@dataclass(slots=True)
class PolicyFile:
    """The policy file of a process that runs for years, and what was last read of it.

    A text that does not parse may have been meant to stop deletes, and one that does may be half of what an editor is
    writing. So while the file is broken, kretain plans by the last good one, and trims nothing; it plans by a changed
    one at once, but trims by it only after the file was unchanged for some seconds.

    ``valid``: the file was right when it was last read.

    Args:
        load: reads and checks it.
        settles_s: how long a changed file must stay unchanged before kretain trims by it (s).
    """

    load: Callable[[], Selection]
    settles_s: float = SETTLES_S
    valid: bool = True
    _good: Selection | None = None
    _before: tuple[str, float] | None = field(default=None)

    @property
    def notify(self) -> NotifyRules:
        """Where the last valid policy posts to."""
        return NotifyRules() if self._good is None else self._good.policy.notify

    def read_current(self) -> CurrentPolicy:
        """Read the file at the beginning of a pass.

        Raises:
            PolicyError: it is broken, and there was no good one before.
        """
        try:
            selection = self.load()
        except PolicyError as error:
            self._before, self.valid = None, False
            if self._good is None:
                raise
            text = "the policy file is broken: planning with the last valid one, trimming nothing"
            return CurrentPolicy(self._good, error, Reason("policy", text))
        digest = selection.policy.digest
        now_s = time.monotonic()
        if self._good is None:
            self._before = (digest, -math.inf)  # the one that the process was started with has settled
        elif self._before is None or self._before[0] != digest:
            self._before = (digest, now_s)
        self._good, self.valid = selection, True
        if now_s - self._before[1] >= self.settles_s:
            return CurrentPolicy(selection)
        text = "the policy file has changed: planning with it now, trimming once it has stayed unchanged"
        return CurrentPolicy(selection, None, Reason("policy", text))

    def again(self, digest: str) -> Selection:
        """Read the file for a recheck.

        Raises:
            StopError: it is not the one that the pass was planned by, or it is broken.
        """
        try:
            selection = self.load()
        except PolicyError as error:
            self._before, self.valid = None, False
            raise StopError(Reason("policy", f"the policy file broke during the pass: {error}")) from None
        if selection.policy.digest != digest:
            self._before = None
            raise StopError(Reason("policy", "the policy file changed during the pass"))
        return selection


JUMP_S: Final = 60.0
"""How much our clock may be set between two passes (s)."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The result of a pass. ``hold`` is why nothing of a plan was trimmed; ``notes`` are other remarks.

    ``refused``: the policy's limits refuse the complete plan. ``narrowed`` is the plan under the ceiling, if it was
    carried out. ``protected`` is the result for topics' own retention, ``unprotected`` why that could not be read.
    """

    plan: Plan
    measured: Mapping[str, Series]
    hold: Reason | None = None
    refused: bool = False
    broken: PolicyError | None = None
    narrowed: Narrowed | None = None
    report: TrimReport | None = None
    notes: Sequence[Reason] = ()
    protected: Protection | None = None
    unprotected: Exception | None = None


@dataclass(slots=True)
class Passes:
    """Makes passes, and remembers which cluster they are about, which ledger they use and whose turn it is.

    Args:
        reader: returns an unopened reader of the cluster.
        memories: returns the ledgers, by the policy's ``state``.
        inventory: returns the inventory that the policy names, None if it names none.
        policy: the policy file.
        leadership: says whether this instance may trim.
        state_dir: the folder of the ledger, the audit log and the lock.
        clock_ms: returns the current time, Unix ms.
        trims: whether plans are carried out at all.
        every_ms: how often there is a pass (ms).
        ceiling: the most that one pass trims.
        exit_code_for: the exit code that a run's last line in the audit log has.
        uninterrupted: entered around each batch; a signal waits until it is left.
        progress: called often while something is read.
        protects: whether topics' own retention is raised while required groups lag.
        on_protected: called with the result of that as soon as it exists.
    """

    reader: Callable[[], ClusterReader]
    memories: Callable[[ClusterReader, Kind], Memories]
    inventory: Callable[[Selection], InventoryView | None]
    policy: PolicyFile
    leadership: Leadership
    state_dir: Path
    clock_ms: Callable[[], int]
    trims: bool
    every_ms: int
    ceiling: Ceiling
    exit_code_for: ExitCodeFor
    uninterrupted: Callable[[], AbstractContextManager[None]]
    progress: Progress
    protects: bool = False
    on_protected: Callable[[Protection], None] = lambda _made: None
    _cluster_id: str | None = field(default=None, init=False)
    _clocks: tuple[int, float] | None = field(default=None, init=False)
    _protected_s: float | None = field(default=None, init=False)
    _head: Link | None = field(default=None, init=False)
    _ledger: NamedLedger | None = field(default=None, init=False)
    _after: TopicPartition | None = field(default=None, init=False)

    def make(self) -> Passed:
        """Make one pass.

        Raises:
            PolicyError, BrokerError, StateError, Refusal, NothingMatchesError: nothing was trimmed.
        """
        if (jumped := self._jumped()) is not None:
            raise StateError(jumped)
        self._clocks = (self.clock_ms(), SYSTEM.since_boot())
        policy = self.policy.read_current()
        with self.reader() as reader:
            cluster_id = reader.metadata([]).cluster_id
            self._pin(cluster_id)
            if self.trims or self.protects:
                self.leadership.take_part(reader, policy.selection.policy.state)
            memories = self.memories(reader, policy.selection.policy.state)
            try:
                protected, unprotected = self._protect(reader, cluster_id, policy, memories)
                passed = replace(self._with(reader, policy, memories), protected=protected, unprotected=unprotected)
                memories.save(self.clock_ms())
                if passed.hold is None or passed.hold.code != "ledger":
                    self._other_ledger(memories, cluster_id)  # it has grown; another hold may hide that it is another
                return passed
            finally:
                memories.close()

    def _protect(
        self, reader: ClusterReader, cluster_id: str, policy: CurrentPolicy, memories: Memories
    ) -> tuple[Protection | None, Exception | None]:
        """Raise or restore topics' own retention, before the plan; a failure of it keeps no plan from being made.

        Nothing is lowered by a policy that is broken or has just changed, or with a ledger that was replaced (P3).
        """
        term = self.leadership.term()
        if not self.protects or term is None:
            self.period_ms(None)
            return None, None

        lowers = policy.hold is None and self._other_ledger(memories, cluster_id) is None
        job = ProtectJob(
            reader=reader,
            selection=policy.selection,
            memories=memories,
            state_dir=self.state_dir,
            clock_ms=self.clock_ms,
            terms=Terms(self.period_ms(reader.clock.monotonic()), lowers=lowers),
            run=new_run_name(self.clock_ms()),
            permit=lambda: self._permit(term),
            progress=self.progress,
        )
        try:
            planned, memory = plan_protection(job)
            self._pin(planned.cluster_id)
            made = carry_out_protection(job, planned, memory)
        except (BrokerError, StateError, LockedError, NothingMatchesError, StopError) as error:
            return None, error
        self.on_protected(made)
        return made, None

    def period_ms(self, now_s: float | None) -> int:
        """Return how long it was from the last run of protect to this one; the interval at least (P2).

        A pass that trims or archives much takes longer, and so may the next one. ``now_s`` is None in a pass that does
        not protect: the time as a standby is no pass.
        """
        last_s, self._protected_s = self._protected_s, now_s
        return self.every_ms if last_s is None or now_s is None else max(self.every_ms, round(1000 * (now_s - last_s)))

    def _with(self, reader: ClusterReader, policy: CurrentPolicy, memories: Memories) -> Passed:
        selection = policy.selection
        inventory = self.inventory(selection)
        now_ms = self.clock_ms()
        groups, rules = dict[str, Series](), selection.decided_alone.policy.disks

        def observed(inputs: PlanInputs) -> None:
            nonlocal groups
            groups = groups_of(inputs.decisions, losses(reader, inputs, memories, rules, self.every_ms, now_ms))

        plan = LocalPlanner(inventory).plan(
            PlanJob(
                reader,
                selection,
                now_ms,
                lambda cluster: past_day(self.state_dir, cluster, now_ms, selection.policy.limits),
                memories,
                progress=self.progress,
                observed=observed,
            )
        )
        self._pin(plan.cluster_id)
        values = measured(plan, groups, rules.percent)
        term = self.leadership.term() if self.trims else None
        lost = self._other_ledger(memories, plan.cluster_id) or memories.unsaved or self._other_log(plan.cluster_id)
        dry = None if self.trims else Reason("dry", "dry run: pass --trim to delete")
        # A plan that is past a limit (G6), or that a person has to approve first, is refused: no part of it may be
        # trimmed, no matter how small a pass's share is.
        refused = next(iter((*plan.refusals, *(one for one in plan.notes if one.code == "approval"))), None)
        standby = Reason("leader", self.leadership.why_not) if term is None else None
        hold = policy.hold or dry or lost or refused or standby
        if hold is not None or term is None or not plan.totals.trim:
            return Passed(plan, values, hold, self.trims and refused is not None, policy.broken, notes=plan.notes)
        under = narrowed(
            plan,
            self.ceiling,
            self._after,
            lambda topic: (one := selection.settings_for(topic)) is not None and one.whole_segments,
        )
        job = TrimJob(
            reader=reader,
            plan=under.plan,
            selection=lambda: self.policy.again(selection.policy.digest),
            state_dir=self.state_dir,
            clock_ms=self.clock_ms,
            exit_code_for=self.exit_code_for,
            memories=memories,
            inventory=inventory,
            audit=selection.policy.audit,
            permit=lambda: self._permit(term, selection.policy.digest),
            progress=self.progress,
        )
        noted = len(memories.notes)
        try:
            report = shipped(job, carry_out(job))
        finally:
            head, _problem = read_head(cluster_folder(self.state_dir, plan.cluster_id))  # the next pass reports it
            self._head = head or self._head
        self._after = under.last if under.cut or under.later else None
        return Passed(plan, values, None, narrowed=under, report=report, notes=[*plan.notes, *memories.notes[noted:]])

    def _other_ledger(self, memories: Memories, cluster_id: str) -> Reason | None:
        """Return why a trim must not use the ledger: it is not the one that earlier passes used, or older.

        Groups that are gone count only as long as they are remembered (F6). An operator who starts over on purpose
        looks at what goes then; kretain never reads this. What the cache of a shared ledger lacks is in the topic.
        """
        if memories.kind != "local":
            return None
        named, before = memories.named(cluster_id), self._ledger
        if before is None or (
            named is not None and named.ledger_id == before.ledger_id and named.revision >= before.revision
        ):
            self._ledger = named
            return None
        return Reason(
            "ledger", "the ledger was replaced, or is older than when this process started: restart if that is intended"
        )

    @contextmanager
    def _permit(self, term: int, digest: str | None = None) -> Iterator[None]:
        """Let a change go on to its end while this instance leads; a trim's also asks for the policy by its digest."""
        with self.uninterrupted():
            if digest is not None:
                self.policy.again(digest)
                if (jumped := self._jumped()) is not None:
                    raise StopError(Reason(Code.G8, jumped))
            self.leadership.check(term)
            yield

    def _jumped(self) -> str | None:
        """Return why our clock can't be trusted: it was set since the last pass. None if it was not."""
        if self._clocks is None:
            return None
        wall_ms, since_boot_s = self._clocks
        off_s = (self.clock_ms() - wall_ms) / 1000 - (SYSTEM.since_boot() - since_boot_s)
        if abs(off_s) <= JUMP_S:
            return None
        way = "ahead" if off_s > 0 else "back"
        return (
            f"this machine's clock was set {way} by {abs(off_s):,.0f} s: no plans until it is correct again, or "
            f"kretain watch is restarted"
        )

    def _other_log(self, cluster_id: str) -> Reason | None:
        """Return why the audit log can't be trusted: lines that this process saw are gone, and limits with them."""
        head, problem = read_head(cluster_folder(self.state_dir, cluster_id))
        if problem is not None:
            return Reason("audit", problem)
        if self._head is not None and (head is None or head.seq < self._head.seq):
            return Reason(
                "audit", "the audit log was replaced, or is older than this process knows: restart if that is intended"
            )
        self._head = head
        return None

    def _pin(self, cluster_id: str) -> None:
        """Go on with this cluster alone: the policy was given for it, and an address may come to mean another one.

        Raises:
            PlanRefusedError: it is another cluster than before.
        """
        if self._cluster_id is not None and self._cluster_id != cluster_id:
            raise PlanRefusedError(
                f"the address now leads to cluster {cluster_id}, but this process started with {self._cluster_id}: "
                f"restart kretain watch if that is intended"
            )
        self._cluster_id = cluster_id


def losses(
    reader: ClusterReader, inputs: PlanInputs, memories: Memories, rules: DiskRules, every_ms: int, now_ms: int
) -> LossOf:
    """Return the function that says how long a partition's floor has. Nothing is known if brokers don't answer.

    Args:
        reader: reads topics' live limits.
        inputs: what the plan was made of.
        memories: the ledgers, with the samples behind ages and rates.
        rules: the policy's for disks.
        every_ms: how often the policy trims (ms).
        now_ms: now (Unix ms).
    """
    observation = inputs.observation
    settings = observation.settings
    behind = {one.tp for one in inputs.decisions if unread_in(one)}
    full = rules.percent is not None and any(not guarded(Code.R6, settings[tp.topic]) for tp in behind)
    try:
        limits = limits_of(reader, sorted(settings if full else {tp.topic for tp in behind}))
    except BrokerError:
        return lambda _one: None
    there = {floor_by(name) for name in inputs.groups}
    seen = seen_in(observation, memories, {}, there, now_ms, None if full else behind)
    terms = ForecastTerms(every_ms, HOUR_MS, now_ms)
    known = partition_inputs(
        [(disk, rules.percent) for disk in inputs.disks if full],
        seen,
        settings,
        forecasts_of(seen, limits, settings, terms),
        limits,
        terms,
    )
    return lambda one: seconds_left(one, known.get(one.tp), settings[one.topic], rules)


def seconds_left(one: Decision, place: Place | None, settings: Settings, rules: DiskRules) -> float | None:
    """Return how long a floor has; None if that is unknown, or forever."""
    if place is None or one.min_commit is None:
        return None
    if one.trim_to is not None and one.trim_to > one.min_commit:  # the plan takes it
        return 0.0
    if rules.watermarks and not guarded(Code.R2, settings):  # R7 may shorten any age, and what it adds is not held
        return None
    left = seconds_to_loss(place.left(one.min_commit, None)[1])
    return None if left is None or math.isinf(left) else left
