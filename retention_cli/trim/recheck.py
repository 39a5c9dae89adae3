"""Observe and decide again, right before a trim (docs/architecture.md, Trim)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from retention_cli.archive.positions import Kind, Positions, Stood
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import is_outside, is_share, plain_name
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Decision, Maybe, Reason, TopicPartition, Unknown, known
from retention_cli.core.progress import Progress, silent
from retention_cli.decide.guards.limits import Amount, over_limits
from retention_cli.disks.disk import DiskOutcome
from retention_cli.observe.cluster import observe
from retention_cli.observe.floors.fold import CommitRow, position_of
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.approval import Offered, lacking, unseen
from retention_cli.plan.make import decide_all, disk_run, managed_records, with_live
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import ApproveRules, Limits
from retention_cli.state.memories import Memories
from retention_cli.state.own_topics import BrokerClock
from retention_cli.trim.history import PastDay

if TYPE_CHECKING:  # only an inventory needs these
    from retention_cli.disks.inventory_view import InventoryView


def positions_of(observed: Observation, kinds: Mapping[str, Kind]) -> dict[str, Positions]:
    """Return each topic's consumers' positions from an observation with rows, as far as they are this log's (F5)."""
    topics = {tp.topic: one.topic for tp, one in observed.facts.items()}
    ends = observed.epoch_ends_by_partition()
    of = by_key(((name, row.group), row) for row in observed.rows for name in topics if row.topic in (None, name))

    def stood(rows: Sequence[CommitRow]) -> Stood:
        read = (row for row in rows if row.kind != "failed")
        return Stood(
            plain_name(rows[0].group),
            _kind(rows[0], kinds),
            {row.partition: _offset(row, observed, ends) for row in read if row.partition is not None},
            next((row.text for row in rows if row.kind == "failed"), None),
        )

    return {
        name: Positions(
            observed.cluster_id,
            name,
            topic_id,
            observed.ends_read_ms,
            tuple(one.leader_epoch for tp, one in sorted(observed.facts.items()) if tp.topic == name),
            tuple(known(one.log_start) for tp, one in sorted(observed.facts.items()) if tp.topic == name),
            tuple(stood(rows) for (topic, group), rows in sorted(of.items()) if group and topic == name),
            next((row.text or "" for row in of.get((name, ""), ())), None),
        )
        for name, facts in topics.items()
        if (topic_id := known(facts.topic_id)) is not None
    }


def _kind(row: CommitRow, kinds: Mapping[str, Kind]) -> Kind:
    if is_outside(row.group):
        return "share" if is_share(row.group) else "outside"
    return kinds.get(row.group, "gone" if row.kind == "gone" else "group")


def _offset(
    row: CommitRow, observed: Observation, ends: Mapping[TopicPartition, Mapping[int, int | None]]
) -> int | None:
    """Return the position that a row gives, None if it is not proven to be one in this log."""
    tp = TopicPartition(str(row.topic), row.partition or 0)
    facts = observed.facts.get(tp)
    end = None if facts is None else known(facts.high_watermark)
    if facts is None or end is None or (row.leader_epoch is None and (tp in observed.cuts or tp in observed.doubts)):
        return None
    offset = position_of(row, facts.leader_epoch, ends.get(tp, {}))
    return None if offset is None or offset > end else offset


RECHECK_PATIENCE_S: Final = 10.0
"""How long a recheck retries an answer that is not yet final (s): well below ``batches.RECHECK_SECONDS``."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Fresh decisions for some partitions. The observation has the leaders to send requests to.

    ``began`` is when reading began (on the reader's clock): no fact is older. ``unreadable`` are partitions whose
    leader is missing or did not answer.
    ``archives`` maps each topic that the policy wants archived before a trim to the archive's URL, ``archive_keys`` are
    the files of its keys. ``disks`` are R6's results, if there are disk rules, ``disk_parts`` its part in decisions.
    ``now_ms`` is the time that was decided for, ``zero_ms`` the time at 0 on the reader's clock (Unix ms).
    """

    began: float
    observation: Observation
    decisions: Mapping[TopicPartition, Decision]
    unreadable: Mapping[TopicPartition, Reason]
    archives: Mapping[str, str] = field(default_factory=dict)
    disks: Sequence[DiskOutcome] = ()
    now_ms: int = 0
    zero_ms: float = 0.0
    disk_parts: Mapping[TopicPartition, tuple[tuple[int, Reason] | None, Unknown | None]] = field(default_factory=dict)
    archive_keys: tuple[str, ...] = ()

    def unix_ms(self, at: float) -> int:
        """Return a time on the reader's clock as Unix ms. What happened before something has no later time."""
        return int(self.zero_ms + 1000 * at)

    def epoch_end(self, tp: TopicPartition, epoch: int | None) -> Maybe[int | None]:
        """Return where a leader epoch ends; None if the leader does not know it."""
        match None if epoch is None else self.observation.epoch_ends.get((tp, epoch)):
            case Found(offset):
                return offset
            case RequestFailedError() as error:
                return Unknown.because(Code.M4, f"kretain could not ask where leader epoch {epoch} ends: {error}")
            case NotFound():
                return None
        return Unknown.because(Code.M4, f"kretain did not ask where leader epoch {epoch} ends")


@dataclass(slots=True)
class Rechecks:
    """Decides partitions of a plan again, with today's policy and facts, and knows what its limits allow (G6).

    Args:
        reader: the cluster, read-only.
        selection: returns the current policy; called at every recheck.
        clock_ms: returns the current time, Unix ms.
        epochs: the leader epochs in which partitions were planned: the leader is asked where those ended (M2).
        past: what was trimmed in the last 24 hours.
        memories: the ledgers.
        inventory: the inventory of segments; None if none was given.
        offered: what the trim has to show if it needs an approval; None: the plan was made in this run.
        clock: compares this machine's clock with the brokers' (G8); None in a dry run.
        progress: called with what is being read.
        with_seen: keep what groups have committed, for evidence.
    """

    reader: ClusterReader
    selection: Callable[[], Selection]
    clock_ms: Callable[[], int]
    epochs: Mapping[TopicPartition, int]
    past: PastDay
    memories: Memories
    inventory: InventoryView | None = None
    offered: Offered | None = None
    clock: BrokerClock | None = None
    progress: Progress = silent
    with_seen: bool = False
    _limits: Limits = field(default_factory=Limits, init=False)
    _approve: ApproveRules | None = field(default=None, init=False)
    _managed: int = field(default=0, init=False)

    def recheck(self, partitions: Collection[TopicPartition]) -> Recheck:
        """Observe and decide again, right before a trim.

        If there are disk rules, all partitions are observed: R6 and a topic's size are decided over all of them.

        Raises:
            BrokerError: the cluster's metadata could not be read.
            PolicyError: the policy is broken by now.
        """
        reader = self.reader
        zero_ms = reader.clock.wall_ms() - 1000 * reader.clock.since_boot()
        began = reader.clock.since_boot()  # before the policy and the brokers' clock are read
        selection = self.selection()
        self._limits, self._approve = selection.policy.limits, selection.policy.approve
        now_ms = self.clock_ms()
        wrong = None if selection.policy.state == "local" or self.clock is None else self.clock.compare()
        selection = with_live(reader, selection)
        alone = selection.decided_alone.policy
        disks = disk_run(alone, self.inventory) if alone.needs_disks else None
        # A limit in percent needs the number of all managed records, once.
        everything = disks is not None or (self._limits.max_percent is not None and self._managed == 0)
        request = Request(
            selection.settings_for,
            selection.policy.groups,
            now_ms,
            self.memories,
            reader.clock.wall_ms,
            only=None if everything else partitions,
            scan_all=False,
            patience_s=RECHECK_PATIENCE_S,
            clock=wrong,
            disks=disks,
            epochs=self.epochs,
            with_seen=self.with_seen,
        )
        observation = observe(reader, request, self.progress)
        unreadable = {}
        for tp, facts in observation.facts.items():
            if not facts.has_leader:
                unreadable[tp] = Reason("leader", "the partition has no leader")
            elif isinstance(facts.log_start, Unknown) and facts.log_start.reasons[0].code == "offsets":
                unreadable[tp] = facts.log_start.reasons[0]
        decisions = {one.tp: one for one in decide_all(reader, observation, now_ms, disks)}
        self._managed = max(self._managed, managed_records(observation))
        return Recheck(
            min(began, observation.began),
            observation,
            decisions,
            unreadable,
            {name: one.archive for name, one in observation.settings.items() if one.archive is not None},
            () if disks is None else disks.outcomes,
            now_ms,
            zero_ms,
            {} if disks is None else disks.parts,
            selection.policy.archive_keys,
        )

    def positions(self, topics: Collection[str]) -> Mapping[str, Positions]:
        """Return where all consumers of these topics stand now, for their archive.

        Raises:
            BrokerError: the cluster's metadata could not be read.
            PolicyError: the policy is broken by now.
        """
        selection = self.selection()
        request = Request(
            lambda name: selection.settings_for(name) if name in topics else None,
            selection.policy.groups,
            self.clock_ms(),
            self.memories,
            self.reader.clock.wall_ms,
            decides=False,
            with_rows=True,
        )
        try:
            listed = self.reader.list_groups(self.reader.brokers())
            kinds: dict[str, Kind] = {one.name: "streams" if one.kind == "streams" else "group" for one in listed}
        except BrokerError:
            kinds = {}  # then the floors' own reading says what it lacks
        return positions_of(observe(self.reader, request, self.progress), kinds)

    def exceeded(self, amount: Amount) -> list[Reason]:
        """Return a reason for each limit of the policy that this run would exceed if it trimmed this total (G6).

        Raises:
            StateError: there are limits per day, and the audit log's chain is broken.
        """
        return over_limits(amount, self.past.under(self._limits), self._managed, self._limits)

    def unapproved(self, *amounts: Amount, more: TopicPartition | None = None) -> list[Reason]:
        """Return why a run that trims one of these totals lacks the approval that today's policy asks for.

        ``more`` is a partition that would lose more than the plan's row says.
        """
        lacks = (lacking(one, self.past.unapproved, self._approve, self.offered, self.clock_ms()) for one in amounts)
        return list(filter(None, (*lacks, unseen(more, self._approve, self.offered))))[:1]
