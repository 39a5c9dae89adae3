"""Read what a forecast needs: what a plan reads, live settings, disks, and the ledger's samples. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from retention_cli.advise.facts import TopicSettings
from retention_cli.advise.reading import read_settings
from retention_cli.audit.log import AuditLog, one_by_one
from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import floor_by, plain_name
from retention_cli.core.grouping import by_key
from retention_cli.core.model import (
    Code,
    Maybe,
    PartitionFacts,
    Reason,
    Sample,
    TopicFacts,
    TopicPartition,
    Unknown,
    certain,
    known,
    or_unknown,
)
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.decide.decision import off_disks
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.disks.devices import sample_disks
from retention_cli.disks.disk import Disk
from retention_cli.forecast.cost import stayed, topic_bill
from retention_cli.forecast.loss import Place, Queued, forecast_disk, queue_of, stood_at
from retention_cli.forecast.steady import (
    PartitionForecast,
    Seen,
    Terms,
    forecast_partitions,
    forecast_topic,
    guarded,
    totals_of,
)
from retention_cli.forecast.value import (
    NOTHING,
    Bills,
    DiskForecast,
    Forecast,
    GroupForecast,
    Loss,
    Span,
    TopicForecast,
)
from retention_cli.memory.disk import DiskSample, Growth, growth
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.make import with_live
from retention_cli.policy.model import Policy
from retention_cli.policy.selection import Selection, check_matches
from retention_cli.policy.settings import Settings
from retention_cli.state.memories import Memories

Limits = Mapping[str, TopicSettings]
Parts = dict[TopicPartition, PartitionForecast]


def read_forecast(
    reader: ClusterReader,
    selection: Selection,
    terms: Terms,
    *,
    memories: Memories,
    before: Mapping[str, GroupMemory] | None = None,
    state_dir: Path | None = None,
    progress: Progress = silent,
) -> Forecast:
    """Observe the cluster, as a plan does, and return the forecast. The ledger stores what a plan would store.

    ``before`` is what :func:`groups_before` returned, if another forecast was made meanwhile: it has moved that on.
    ``state_dir`` has the audit logs, for what trims have saved so far.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is no topic to forecast.
    """
    selection, now_ms = with_live(reader, selection), terms.now_ms
    policy = selection.policy
    before = groups_before(memories, reader.metadata([]).cluster_id) if before is None else before
    request = Request(selection.settings_for, policy.groups, now_ms, memories, scan_all=False)
    commits: list[GroupCommits] = []
    try:
        observation = observe(reader, request, progress, commits.append)
    finally:
        memories.save(request.clock_ms())
    notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
    progress("settings")
    settings = observation.settings
    limits = limits_of(reader, sorted(settings))
    seen = seen_in(observation, memories, before, {floor_by(one.group) for one in commits}, now_ms)
    parts = forecasts_of(seen, limits, settings, replace(terms, priced=policy.prices is not None))
    progress("disks")
    disks, disk_notes = _disks(reader, selection, memories(observation.cluster_id), parts, now_ms)
    inputs = partition_inputs([(one.disk, one.percent) for one in disks], seen, settings, parts, limits, terms)
    log = None if state_dir is None else AuditLog(cluster_folder(state_dir, observation.cluster_id))
    topics = [forecast_topic(name, rows, [parts[one.facts.tp] for one in rows]) for name, rows in seen.items()]
    bills = _bills(reader, policy, topics, seen, (parts, limits, settings), log, now_ms, notes)
    return Forecast(
        created_at_ms=now_ms,
        cluster_id=observation.cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        every_ms=terms.every_ms,
        least_ms=terms.least_ms,
        topics=topics,
        groups=sorted(_groups(commits, inputs, before), key=lambda one: (_soonest(one.loss), one.group, one.topic)),
        disks=disks,
        totals=totals_of(topics),
        notes=[*notes, *disk_notes, *memories.notes],
        bills=bills,
    )


def _bills(
    reader: ClusterReader,
    policy: Policy,
    topics: Sequence[TopicForecast],
    seen: Mapping[str, Sequence[Seen]],
    of: tuple[Parts, Limits, Mapping[str, Settings]],
    log: AuditLog | None,
    now_ms: int,
    notes: list[Reason],
) -> Bills | None:
    """Return the topics' cost, None if the policy names no price; add a note on each missing amount."""
    prices, (parts, limits, settings) = policy.prices, of
    if prices is None:
        return None
    there = reader.metadata([one.name for one in topics]).topics if prices.per_replica else {}
    ids = {one.name: seen[one.name][0].facts.topic.topic_id for one in topics}
    try:
        runs = () if log is None else one_by_one(log.events())
        byte_ms = stayed(runs, ids, limits, settings, None if policy.moves else policy.digest, now_ms)
    except StateError as error:
        lost = Unknown.because("audit", f"what trims have saved is unknown: {error}")
        byte_ms = dict.fromkeys(ids, lost)
        notes += lost.reasons
    found = []
    for one in topics:
        price: Maybe[float] = prices.per_gib_month
        if prices.per_replica:
            its = there[one.name].partitions.values() if one.name in there else ()
            replicas = sum(len(partition.replicas) for partition in its) / len(its) if its else 0
            unknown = Unknown.because("metadata", "its replicas are unknown")
            price = prices.per_gib_month * replicas if replicas else unknown
        rows = [(row, parts[row.facts.tp]) for row in seen[one.name]]
        found.append(topic_bill(one, rows, policy.labels_of(one.name), price, byte_ms[one.name]))
    return Bills(prices, found)


def limits_of(reader: ClusterReader, names: Sequence[str]) -> Limits:
    """Return topics' live limits, as their brokers use them; unknown of a topic that is gone by now.

    Raises:
        BrokerError: the cluster's metadata could not be read.
    """
    metadata = reader.metadata(names)
    there = [name for name in names if name in metadata.topics]
    gone = Unknown.because("metadata", "the topic was deleted meanwhile")
    unread = TopicSettings(**dict.fromkeys((one.name for one in fields(TopicSettings)), gone))
    return dict.fromkeys(names, unread) | read_settings(reader, metadata, there)


def seen_in(
    observation: Observation,
    memories: Memories,
    before: Mapping[str, GroupMemory],
    there: Collection[str],
    now_ms: int,
    only: Collection[TopicPartition] | None = None,
) -> dict[str, list[Seen]]:
    """Return the partitions by topic, with the samples that were proven to be of their logs (M2).

    Args:
        observation: what was read.
        memories: the ledgers.
        before: the groups' earlier positions, by name (:func:`groups_before`).
        there: the consumers that exist, as a floor names them: others are gone, and still count (F6).
        now_ms: now (Unix ms).
        only: these partitions alone; None: all.
    """
    memory = memories(observation.cluster_id)
    by = {floor_by(name): name for name in before}
    at_ms = observation.ends_read_ms or now_ms
    found: dict[str, list[Seen]] = {}
    for tp in observation.facts if only is None else only:
        facts = observation.facts[tp]
        end, no_id = facts.high_watermark, isinstance(facts.topic.topic_id, Unknown)
        samples = _samples_of(facts, memory, doubted=tp in observation.doubts)
        now = Sample(at_ms, 0 if isinstance(end, Unknown) or no_id else end)
        stood, gone = None, False
        if not isinstance(facts.floor, Unknown):
            name = by.get(facts.floor.by)
            stood = None if name is None else stood_at(before[name], facts)
            gone = facts.floor.by.startswith("group:") and facts.floor.by not in there
        found.setdefault(tp.topic, []).append(Seen(facts, samples, now, stood, gone))
    return found


@or_unknown
def _samples_of(facts: PartitionFacts, memory: Ledger, *, doubted: bool) -> Sequence[Sample]:
    """Return the ledger's samples of a log whose end is known, if it is proven to be that log (M2)."""
    certain(facts.high_watermark)
    topic_id = certain(facts.topic.topic_id)
    if memory.lost is not None or doubted:
        return certain(memory.lost or Unknown.because("ledger", "whether the memory is of this log is unknown"))
    return memory.partition(facts.topic.name, topic_id, facts.partition).samples


def forecasts_of(
    seen: Mapping[str, Sequence[Seen]], limits: Limits, settings: Mapping[str, Settings], terms: Terms
) -> Parts:
    """Return each partition's forecast."""
    return {
        one.facts.tp: part
        for name, rows in seen.items()
        for one, part in zip(rows, forecast_partitions(rows, limits[name], settings[name], terms), strict=True)
    }


def groups_before(memories: Memories, cluster_id: str) -> Mapping[str, GroupMemory]:
    """Return the groups' positions when the ledger last saw them; empty if it can't be read."""
    try:
        return memories.ledger(cluster_id).groups()
    except StateError:  # lost, or could not be created: observing reports that where it matters
        return {}


def partition_inputs(
    disks: Sequence[tuple[Disk, float | None]],
    seen: Mapping[str, Sequence[Seen]],
    settings: Mapping[str, Settings],
    parts: Parts,
    limits: Limits,
    terms: Terms,
) -> dict[TopicPartition, Place]:
    """Return the partitions whose ends are known. ``disks`` are with the policy's ceilings (R6), None without one."""
    queued = [
        Queued(one.facts.tp, known(one.samples) or (), start, parts[one.facts.tp].each, limits[topic].segment_bytes)
        for topic, rows in seen.items()
        for one in rows
        if not isinstance(start := one.facts.log_start, Unknown) and _taken_unread(one.facts.topic, settings[topic])
    ]
    queues = by_key(
        (tp, queue)
        for disk, percent in disks
        if percent is not None
        for queue in [queue_of(disk, percent, parts, queued)]
        for tp in disk.replicas
    )
    return {
        tp: Place(one, parts[tp], limits[topic], settings[topic], queues.get(tp, ()), terms)
        for topic, rows in seen.items()
        for one in rows
        for tp in [one.facts.tp]
        if not isinstance(one.facts.high_watermark, Unknown)
    }


def _taken_unread(topic: TopicFacts, settings: Settings) -> bool:
    """Return whether R6 may take what a topic's consumers have not read."""
    return not (
        frozen(settings) or untouchable(topic, settings) or off_disks(topic, settings) or guarded(Code.R6, settings)
    )


def _disks(
    reader: ClusterReader, selection: Selection, memory: Ledger, parts: Parts, now_ms: int
) -> tuple[list[DiskForecast], list[Reason]]:
    """Return the disks' forecasts. Their usage is compared with the ledger's looks, and not added to them."""
    outcomes, notes = sample_disks(reader, selection.decided_alone.policy.disks, Ledger(None), now_ms)
    return [
        forecast_disk(one.disk, _growth_of(one.disk, memory, now_ms), one.percent, parts) for one in outcomes
    ], notes


@or_unknown
def _growth_of(disk: Disk, memory: Ledger, now_ms: int) -> Growth:
    room = certain(disk.room)
    if memory.lost is not None:
        return certain(memory.lost)
    return certain(growth(memory.disk(disk.key).samples, DiskSample(now_ms, room.used_bytes, room.total_bytes)))


def _groups(
    commits: Sequence[GroupCommits], inputs: Mapping[TopicPartition, Place], before: Mapping[str, GroupMemory]
) -> Iterator[GroupForecast]:
    for group in commits:
        memory = before.get(group.group)
        for topic, positions in group.topics.items():
            found = [
                (place.left(at, memory), number)
                for number, at, _epoch in positions
                if (place := inputs.get(TopicPartition(topic, number))) is not None
            ]
            if found:
                (worst, loss), partition = min(found, key=lambda one: (_soonest(one[0][1]), one[1]))
                lag = sum(unread.lag for (unread, _loss), _number in found)
                yield GroupForecast(plain_name(group.group), topic, partition, lag, worst.age_ms, loss)


def _soonest(loss: Maybe[Loss]) -> tuple[bool, Span]:
    """Return a sort key: what is known first, then the soonest."""
    return (True, NOTHING) if isinstance(loss, Unknown) else (False, loss.if_stopped_ms)
