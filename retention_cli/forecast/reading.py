"""Read what a forecast needs: what a plan reads, live settings, disks, and the ledger's samples. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from retention_cli.advise.reading import read_settings
from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import floor_by, plain_name
from retention_cli.core.model import Maybe, PartitionFacts, Reason, Sample, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.disks.usage import look
from retention_cli.forecast.loss import NEVER, Loss, Unread, time_to_loss
from retention_cli.forecast.make import (
    PartitionForecast,
    Seen,
    Terms,
    forecast_disk,
    forecast_partitions,
    forecast_topic,
    totals_of,
)
from retention_cli.forecast.rates import age_of, group_rate
from retention_cli.forecast.span import Span
from retention_cli.forecast.steady import BrokerLimits
from retention_cli.forecast.value import DiskForecast, Forecast, GroupForecast
from retention_cli.memory.disk import Growth, Look, growth
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.interface import Memory, NoMemory
from retention_cli.memory.stores import Memories
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import Observation, Request
from retention_cli.plan.make import with_live
from retention_cli.policy.selection import Selection, check_matches

Limits = Mapping[str, BrokerLimits]


def read_forecast(
    reader: ClusterReader,
    selection: Selection,
    now_ms: int,
    *,
    memories: Memories,
    every_ms: int,
    least_ms: int,
    before: Mapping[str, GroupMemory] | None = None,
    clock_ms: Callable[[], int] = SYSTEM.wall_ms,
    progress: Progress = silent,
) -> Forecast:
    """Observe the cluster, as a plan does, and return the forecast. The ledger stores what a plan would store.

    ``before`` is what :func:`groups_before` returned, if another forecast was made meanwhile: it has moved that on.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        PolicyError: R1 is enabled for a topic without a time.
        NothingMatchesError: there is no topic to forecast.
    """
    selection = with_live(reader, selection)
    policy = selection.policy
    before = groups_before(memories, reader.metadata([]).cluster_id) if before is None else before
    request = Request(selection.settings_for, policy.groups, now_ms, memory_for=memories, clock_ms=clock_ms)
    commits: list[GroupCommits] = []
    try:
        observation = observe(reader, request, progress, commits.append)
    finally:
        memories.save(clock_ms())
    notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
    progress("settings")
    limits = _limits(reader, sorted(observation.settings))
    seen = _seen(observation, memories, before, {floor_by(one.group) for one in commits}, now_ms)
    terms = Terms(every_ms, least_ms, now_ms)
    parts: dict[TopicPartition, PartitionForecast] = {}
    topics = []
    for name, of_topic in seen.items():
        found = forecast_partitions(of_topic, limits[name], observation.settings[name], terms)
        parts |= {one.facts.tp: part for one, part in zip(of_topic, found, strict=True)}
        topics.append(forecast_topic(name, of_topic, found))
    progress("disks")
    disks, told = _disks(reader, selection, memories(observation.cluster_id), parts, now_ms)
    groups = _groups(commits, observation, seen, parts, limits, _ceilings(disks), before, least_ms)
    return Forecast(
        created_at_ms=now_ms,
        cluster_id=observation.cluster_id,
        bootstrap=reader.settings.bootstrap,
        policy_source=policy.source,
        policy_digest=policy.digest,
        every_ms=every_ms,
        least_ms=least_ms,
        topics=topics,
        groups=sorted(groups, key=_soonest_first),
        disks=disks,
        totals=totals_of(topics),
        notes=[*notes, *told, *memories.notes],
    )


def _limits(reader: ClusterReader, names: Sequence[str]) -> Limits:
    metadata = reader.metadata(names)
    there = [name for name in names if name in metadata.topics]
    found: dict[str, BrokerLimits] = {}
    for name, (one, check_ms) in read_settings(reader, metadata, there).items():
        policy = one.cleanup_policy
        found[name] = BrokerLimits(
            deletes=policy if isinstance(policy, Unknown) else "delete" in policy,
            compacts=policy if isinstance(policy, Unknown) else "compact" in policy,
            retention_ms=one.retention_ms,
            retention_bytes=one.retention_bytes,
            segment_ms=one.segment_ms,
            segment_bytes=one.segment_bytes,
            check_ms=check_ms,
        )
    gone = Unknown.because("metadata", "the topic was deleted meanwhile")
    return found | dict.fromkeys(set(names) - set(there), BrokerLimits(gone, gone, gone, gone, gone, gone, gone))


def _seen(
    observation: Observation,
    memories: Memories,
    before: Mapping[str, GroupMemory],
    there: Collection[str],
    now_ms: int,
) -> dict[str, list[Seen]]:
    """Return the partitions by topic, with the samples that were proven to be of their logs (M2)."""
    memory = memories(observation.cluster_id)
    by = {floor_by(name): name for name in before}
    at_ms = observation.ends_read_ms or now_ms
    found: dict[str, list[Seen]] = {}
    for tp, facts in observation.facts.items():
        end, topic_id = facts.high_watermark, facts.topic.topic_id
        samples: Maybe[Sequence[Sample]]
        if isinstance(end, Unknown) or isinstance(topic_id, Unknown):
            missing = end if isinstance(end, Unknown) else topic_id
            assert isinstance(missing, Unknown)  # noqa: S101  (for the type checker)
            samples, now = missing, Sample(at_ms, 0)
        elif memory.lost is not None or tp in observation.doubts:
            doubt = Unknown.because("ledger", "whether what is remembered is of this log is unknown")
            samples, now = memory.lost or doubt, Sample(at_ms, end)
        else:
            samples, now = memory.partition(tp.topic, topic_id, tp.partition).samples, Sample(at_ms, end)
        stood, gone = None, False
        if not isinstance(facts.floor, Unknown):
            name = by.get(facts.floor.by)
            stood = None if name is None else _stood(before[name], facts)
            gone = facts.floor.by.startswith("group:") and facts.floor.by not in there
        found.setdefault(tp.topic, []).append(Seen(facts, samples, now, stood, gone))
    return found


def _stood(group: GroupMemory, facts: PartitionFacts) -> Sample | None:
    """Return where a group stood when it was last seen, if that was in this topic and counted (F5)."""
    position = group.counted.get((facts.topic.name, facts.partition))
    if position is None or group.ids.get(facts.topic.name) != facts.topic.topic_id:
        return None
    return Sample(group.seen_ms, position.offset)


def groups_before(memories: Memories, cluster_id: str) -> Mapping[str, GroupMemory]:
    """Return where groups stood when the ledger last saw them; empty if it can't be told."""
    try:
        return memories.ledger(cluster_id).groups()
    except StateError:  # lost, or none could be made: observing says so where it matters
        return {}


def _disks(
    reader: ClusterReader,
    selection: Selection,
    memory: Memory,
    parts: Mapping[TopicPartition, PartitionForecast],
    now_ms: int,
) -> tuple[list[DiskForecast], list[Reason]]:
    """Return the disks' forecasts. Their usage is compared with the ledger's looks, and not added to them."""
    rules = selection.decided_alone.policy.disks
    outcomes, notes = look(reader, rules, NoMemory(), now_ms)
    found = []
    for one in outcomes:
        room = one.disk.room
        grows: Maybe[Growth]
        if isinstance(room, Unknown):
            grows = room
        elif memory.lost is not None:
            grows = memory.lost
        else:
            now = Look(now_ms, room.used_bytes, room.total_bytes)
            grows = growth(memory.disk(one.disk.key).looks, now)
        found.append(forecast_disk(one.disk, grows, one.percent, parts))
    return found, notes


def _ceilings(disks: Sequence[DiskForecast]) -> dict[TopicPartition, Span]:
    """Return how long until the first disk with a partition reaches R6's ceiling; from now on where that is unknown."""
    found: dict[TopicPartition, Span] = {}
    for one in disks:
        if one.ceiling is None:
            continue
        span = Span(0.0, NEVER.high) if isinstance(one.ceiling, Unknown) else one.ceiling
        for tp in one.disk.replicas:
            found[tp] = found.get(tp, NEVER).at_most(span)
    return found


def _groups(
    commits: Sequence[GroupCommits],
    observation: Observation,
    seen: Mapping[str, Sequence[Seen]],
    parts: Mapping[TopicPartition, PartitionForecast],
    limits: Limits,
    ceilings: Mapping[TopicPartition, Span],
    before: Mapping[str, GroupMemory],
    least_ms: int,
) -> Iterator[GroupForecast]:
    """Yield each group on each topic that it has a position on."""
    by_place = {one.facts.tp: one for of_topic in seen.values() for one in of_topic}
    for group in commits:
        memory = before.get(group.group)
        for topic, rows in group.topics.items():
            if topic not in seen:
                continue
            lag, worst = 0, list[tuple[TopicPartition, Span, Maybe[Loss]]]()
            for partition, offset, _epoch in rows:
                here = by_place.get(TopicPartition(topic, partition))
                if here is None or isinstance(here.facts.high_watermark, Unknown):
                    continue
                part = parts[here.facts.tp]
                unread = _unread(here, part, offset, memory, least_ms)
                lag += unread.lag
                loss = time_to_loss(
                    unread, limits[topic], observation.settings[topic], ceilings.get(here.facts.tp, NEVER)
                )
                worst.append((here.facts.tp, unread.age_ms, loss))
            if worst:
                tp, age, loss = min(worst, key=lambda one: (_left(one[2]), one[0]))
                yield GroupForecast(plain_name(group.group), topic, tp.partition, lag, age, loss)


def _unread(here: Seen, part: PartitionForecast, offset: int, memory: GroupMemory | None, least_ms: int) -> Unread:
    start = 0 if isinstance(here.facts.log_start, Unknown) else here.facts.log_start
    samples = () if isinstance(here.samples, Unknown) else here.samples
    stood = None if memory is None else _stood(memory, here.facts)
    read = Unknown.because("rate", "its position was not seen before")
    return Unread(
        age_ms=age_of(samples, here.now, offset),
        lag=max(0, here.now.high_watermark - offset),
        lost=max(0, start - offset),
        written=part.rate,
        read=read if stood is None else group_rate(stood, Sample(here.now.wall_ms, offset), least_ms),
        bytes_per_record=part.each,
    )


def _left(loss: Maybe[Loss]) -> tuple[int, float, float]:
    """Return a sort key: what is known first, then the soonest."""
    if isinstance(loss, Unknown):
        return (1, 0.0, 0.0)
    return (0, loss.if_stopped_ms.low, loss.if_stopped_ms.high)


def _soonest_first(one: GroupForecast) -> tuple[tuple[int, float, float], str, str]:
    return _left(one.loss), one.group, one.topic
