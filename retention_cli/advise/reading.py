"""Read the facts that advice is based on: settings of topics and brokers, log ends, a few look-ups, sizes on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from retention_cli.advise.facts import DAY, HOUR, MINUTE, PartitionState, Stamp, TopicSettings, TopicState, measured
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, Spec
from retention_cli.brokers.metadata import TIERED, ClusterMetadata, PartitionMetadata, Values, is_tiered
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown, certain, or_unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.core.units import some_of
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.selection import NothingMatchesError, no_topic
from retention_cli.policy.settings import Settings

_AGAIN_AFTER_S: Final = 0.5
NO_LIMIT: Final = frozenset({"-1", str((1 << 63) - 1)})
_AHEAD: Final = ("message.timestamp.after.max.ms", "message.timestamp.difference.max.ms")
_BEHIND: Final = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
"""The newer name first: before Kafka 3.6 one setting covered both directions."""
_TOPIC_KEYS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "segment.bytes",
    "message.timestamp.type",
    "file.delete.delay.ms",
    *TIERED,
    *dict.fromkeys((*_AHEAD, *_BEHIND)),
)
_T = TypeVar("_T")
_CHECK, _CLEANER, _OFFSETS = "log.retention.check.interval.ms", "log.cleaner.backoff.ms", "offsets.retention.minutes"


LOCAL_ALONE: Final = Unknown.because("size", "tiered storage: brokers report only the size of the local part")


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts read, complete at ``now_ms``: topics, the policy's settings for those that it manages, and notes."""

    now_ms: int
    cluster_id: str
    bootstrap: str
    topics: Sequence[TopicState]
    policies: Mapping[str, Settings]
    notes: Sequence[Reason] = ()


def read_topics(
    reader: ClusterReader,
    patterns: Sequence[str],
    policy: Policy | None,
    clock_ms: Callable[[], int],
    progress: Progress = silent,
) -> Reading:
    """Read the topics that match the patterns; without patterns, those that the policy manages, else all non-internal.

    Raises:
        BrokerError: the cluster's metadata could not be read.
        NothingMatchesError: a pattern, or the policy, matches no topic.
        PolicyError: R1 is enabled for a topic without a time.
    """
    progress("metadata")
    metadata = reader.metadata()
    names, policies = _choose(metadata, patterns, policy)
    progress("settings")
    live = read_settings(reader, metadata, names)
    partitions = _read_partitions(reader, metadata.partitions_of(names), clock_ms, progress)
    topics = []
    for topic in (metadata.topics[name] for name in names):
        settings = live[topic.name]
        states = [partitions[TopicPartition(topic.name, n)] for n in sorted(topic.partitions)]
        if settings.tiered is True:
            states = [replace(one, size_bytes=LOCAL_ALONE) for one in states]
        topics.append(TopicState(topic.name, topic.internal, settings, tuple(states)))
    judged = {
        one.name: policies[one.name] for one in topics if one.name in policies and not one.untouched(policies[one.name])
    }
    others = [name for name in names if name not in judged]
    notes = (
        [Reason("policy", f"{policy.source} does not manage {some_of(others)}: judged without it")]
        if policy is not None and others
        else []
    )
    return Reading(clock_ms(), metadata.cluster_id, reader.settings.bootstrap, topics, judged, notes)


def read_settings(reader: ClusterReader, metadata: ClusterMetadata, names: Sequence[str]) -> dict[str, TopicSettings]:
    """Return topics' live settings and their brokers'. A compacted topic's segments are checked by the cleaner."""
    topic_values = reader.topic_values(names, _TOPIC_KEYS)
    brokers = reader.broker_values(sorted(metadata.brokers), (_CHECK, _CLEANER, _OFFSETS))
    offsets_retention = _of_brokers(  # the shortest; None: all are forever (−1)
        brokers, _OFFSETS, lambda minutes: min((one * MINUTE for one in minutes if one >= 0), default=None)
    )
    found = {}
    for name in names:
        holding = {broker for one in metadata.topics[name].partitions.values() for broker in one.replicas}
        found[name] = _settings(
            topic_values[name],
            {broker: values for broker, values in brokers.items() if broker in holding},
            offsets_retention,
        )
    return found


def _choose(
    metadata: ClusterMetadata, patterns: Sequence[str], policy: Policy | None
) -> tuple[list[str], dict[str, Settings]]:
    for pattern in patterns:
        if not any(matches((pattern,), name) for name in metadata.topics):
            raise no_topic(pattern, metadata.topics)
    names = sorted(
        name
        for name, topic in metadata.topics.items()
        if (name in patterns if topic.internal else not patterns or matches(patterns, name))
    )
    if policy is None:
        return names, {}
    policies = {name: settings for name in names if (settings := policy.settings_for(name)) is not None}
    if not patterns and not policies:
        raise NothingMatchesError(f"{policy.source}: no entry matches any of the cluster's topics")
    return names if patterns else list(policies), policies


# -- settings ----------------------------------------------------------------


def _settings(
    values: Values | RequestFailedError,
    brokers: Mapping[int, Values | RequestFailedError],
    offsets_retention_ms: Maybe[int | None],
) -> TopicSettings:
    def text(key: str) -> Maybe[str]:
        if isinstance(values, RequestFailedError):
            return Unknown.because("topic-settings", f"the topic's settings can't be read: {values}")
        value = values.get(key)
        return Unknown.because("topic-settings", f"the brokers do not report {key}") if value is None else value

    @or_unknown
    def number(key: str) -> int:
        return int(certain(text(key)))

    def limit(*keys: str) -> Maybe[int | None]:
        if not (found := [one for one in map(text, keys) if not isinstance(one, Unknown)]):
            return number(keys[0])
        limits = [int(one) for one in found if one not in NO_LIMIT]
        return limits[0] if limits else None

    @or_unknown
    def cleanup_policy() -> frozenset[str]:
        return frozenset(one.strip() for one in certain(text("cleanup.policy")).split(",") if one.strip())

    cleanup = cleanup_policy()
    return TopicSettings(
        cleanup_policy=cleanup,
        retention_ms=limit("retention.ms"),
        retention_bytes=limit("retention.bytes"),
        segment_ms=number("segment.ms"),
        segment_bytes=number("segment.bytes"),
        timestamp_type=text("message.timestamp.type"),
        before_max_ms=limit(*_BEHIND),
        after_max_ms=limit(*_AHEAD),
        delete_delay_ms=number("file.delete.delay.ms"),
        tiered=cleanup if isinstance(cleanup, Unknown) else isinstance(values, Mapping) and is_tiered(values),
        check_interval_ms=cleanup
        if isinstance(cleanup, Unknown)
        else _of_brokers(brokers, _CLEANER if "compact" in cleanup else _CHECK, max),
        offsets_retention_ms=offsets_retention_ms,
    )


@or_unknown
def _of_brokers(
    brokers: Mapping[int, Values | RequestFailedError], key: str, choose: Callable[[Sequence[int]], _T]
) -> _T:
    """Return one of the values that brokers have of a setting; unknown if one of them is."""
    found = []
    for broker, values in sorted(brokers.items()):
        if isinstance(values, RequestFailedError):
            return certain(Unknown.because("broker-settings", f"broker {broker}'s settings can't be read: {values}"))
        if (value := values.get(key)) is None:
            return certain(Unknown.because("broker-settings", f"broker {broker} does not report {key}"))
        found.append(int(value))
    return choose(found) if found else certain(Unknown.because("broker-settings", "no broker that has it is online"))


# -- traffic -----------------------------------------------------------------


def _read_partitions(
    reader: ClusterReader,
    leaders: Mapping[TopicPartition, PartitionMetadata],
    clock_ms: Callable[[], int],
    progress: Progress,
) -> dict[TopicPartition, PartitionState]:
    """Read all partitions; read those whose leader moved once more."""
    found, again = _read_once(reader, leaders, clock_ms, progress)
    if again:
        time.sleep(_AGAIN_AFTER_S)
        partitions = reader.metadata({tp.topic for tp in again}).partitions_of()
        found |= _read_once(reader, {tp: partitions[tp] for tp in again if tp in partitions}, clock_ms, progress)[0]
    return found


def _read_once(
    reader: ClusterReader, leaders: Leaders, clock_ms: Callable[[], int], progress: Progress
) -> tuple[dict[TopicPartition, PartitionState], set[TopicPartition]]:
    progress("log ends")
    ends: tuple[Spec, ...] = ("earliest", "latest")
    starts, highs = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in ends], leaders)
    progress("traffic")  # after the high watermarks: records that arrive meanwhile must not look like an empty hour
    now = clock_ms()
    times: tuple[Spec, ...] = ("max-timestamp", now - HOUR, now - DAY)
    newests, hours, days = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in times], leaders)
    progress("sizes on disk")
    sizes, problem = reader.sizes_soon(leaders).result()
    no_size = Unknown.because("size", f"sizes on disk are not known: {problem or 'left out of the answer'}")
    found, again = {}, set()
    for tp in leaders:
        answers = (starts[tp], highs[tp], newests[tp], hours[tp], days[tp])
        if leaders[tp].leader is not None and any(getattr(one, "retriable", False) for one in answers):
            again.add(tp)
        start, end = _offset(starts[tp]), _offset(highs[tp])
        newest = _stamp(newests[tp])
        if newest is None and start != end:
            newest = Unknown.because("traffic", "the broker reports no newest record")
        found[tp] = PartitionState(
            number=tp.partition,
            log_start=start,
            high_watermark=end,
            size_bytes=sizes.get(tp, no_size),
            last_hour=measured(start, end, _stamp(hours[tp]), newest, now, HOUR),
            last_day=measured(start, end, _stamp(days[tp]), newest, now, DAY),
            newest=newest,
        )
    return found, again


def _offset(answer: Answer) -> Maybe[int]:
    if isinstance(answer, Found):
        return answer.offset
    why = answer if isinstance(answer, RequestFailedError) else "the broker reports none"
    return Unknown.because("offsets", f"the log's ends can't be read: {why}")


def _stamp(answer: Answer) -> Maybe[Stamp | None]:
    if isinstance(answer, RequestFailedError):
        return Unknown.because("traffic", f"offsets by time can't be read: {answer}")
    if isinstance(answer, Found):
        return None if answer.timestamp is None else Stamp(answer.offset, answer.timestamp)
    return None
