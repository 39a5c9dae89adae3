"""Read what a forecast needs: what a plan reads, live settings, disks, and the ledger's samples. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from retention_cli.brokers.commits import GroupCommits
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.clock import SYSTEM
from retention_cli.core.consumers import floor_by, plain_name
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.disks.usage import look
from retention_cli.forecast.disks import R6, forecast_disk, queue_of
from retention_cli.forecast.loss import Loss
from retention_cli.forecast.make import (
    PartitionForecast,
    Seen,
    Terms,
    forecast_partitions,
    forecast_topic,
    totals_of,
)
from retention_cli.forecast.observed import Limits, groups_before, limits_of, queued_in, seen_in
from retention_cli.forecast.place import Place
from retention_cli.forecast.value import DiskForecast, Forecast, GroupForecast
from retention_cli.memory.disk import Growth, Look, growth
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.interface import Memory, NoMemory
from retention_cli.memory.stores import Memories
from retention_cli.observe.cluster import observe
from retention_cli.observe.request import FullRead, Observation
from retention_cli.plan.make import with_live
from retention_cli.policy.selection import Selection, check_matches


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
    request = FullRead(selection.settings_for, policy.groups, now_ms, memories, clock_ms, scan_all=False)
    commits: list[GroupCommits] = []
    try:
        observation = observe(reader, request, progress, commits.append)
    finally:
        memories.save(clock_ms())
    notes = [*policy.live.notes, *check_matches(selection, observation.topics_seen)]
    progress("settings")
    limits = limits_of(reader, sorted(observation.settings))
    seen = seen_in(observation, memories, before, {floor_by(one.group) for one in commits}, now_ms)
    terms = Terms(every_ms, least_ms, now_ms)
    parts: dict[TopicPartition, PartitionForecast] = {}
    topics = []
    for name, of_topic in seen.items():
        found = forecast_partitions(of_topic, limits[name], observation.settings[name], terms)
        parts |= {one.facts.tp: part for one, part in zip(of_topic, found, strict=True)}
        topics.append(forecast_topic(name, of_topic, found))
    progress("disks")
    disks, told = _disks(reader, selection, memories(observation.cluster_id), parts, now_ms)
    groups = _groups(
        commits, observation, seen, parts, limits, _r6(disks, observation, parts, seen, limits), before, terms
    )
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


def _r6(
    disks: Sequence[DiskForecast],
    observation: Observation,
    parts: Mapping[TopicPartition, PartitionForecast],
    seen: Mapping[str, Sequence[Seen]],
    limits: Limits,
) -> R6:
    """Return how long until R6 comes to what."""
    queued = list(queued_in(seen, observation.settings, parts, limits))
    return R6((one.disk, queue_of(one.disk, one.percent, parts, queued)) for one in disks if one.percent is not None)


def _groups(
    commits: Sequence[GroupCommits],
    observation: Observation,
    seen: Mapping[str, Sequence[Seen]],
    parts: Mapping[TopicPartition, PartitionForecast],
    limits: Limits,
    r6: R6,
    before: Mapping[str, GroupMemory],
    terms: Terms,
) -> Iterator[GroupForecast]:
    """Yield each group on each topic that it has a position on."""
    places: dict[str, dict[int, Place]] = {}
    for topic, rows in seen.items():
        about = limits[topic], observation.settings[topic], r6, terms
        places[topic] = {
            one.facts.partition: Place(one, parts[one.facts.tp], *about)
            for one in rows
            if not isinstance(one.facts.high_watermark, Unknown)
        }
    for group in commits:
        memory = before.get(group.group)
        for topic, positions in group.topics.items():
            here = places.get(topic, {})
            left = [(here[one].left(at, memory), one) for one, at, _epoch in positions if one in here]
            if left:
                worst, partition = min(left, key=lambda one: (_left(one[0].loss), one[1]))
                lag = sum(one.lag for one, _ in left)
                yield GroupForecast(plain_name(group.group), topic, partition, lag, worst.age_ms, worst.loss)


def _left(loss: Maybe[Loss]) -> tuple[int, float, float]:
    """Return a sort key: what is known first, then the soonest."""
    if isinstance(loss, Unknown):
        return (1, 0.0, 0.0)
    return (0, loss.if_stopped_ms.low, loss.if_stopped_ms.high)


def _soonest_first(one: GroupForecast) -> tuple[tuple[int, float, float], str, str]:
    return _left(one.loss), one.group, one.topic
