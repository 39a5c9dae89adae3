"""Read the facts that advice is based on: settings of topics and brokers, log ends, a few look-ups, sizes on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from retention_cli.advise.facts import Ago, PartitionState, Stamp, TopicSettings, TopicState, Window, measured
from retention_cli.advise.format import DAY, HOUR, MINUTE
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, Leaders, Spec
from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.topic_configs import Values
from retention_cli.core.model import Maybe, Reason, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.policy.settings import Settings

_AGAIN_AFTER_S: Final = 0.5
_NO_LIMIT: Final = frozenset({"-1", str((1 << 63) - 1)})
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
    "remote.storage.enable",
    *dict.fromkeys((*_AHEAD, *_BEHIND)),
)
_CHECK, _CLEANER, _OFFSETS = "log.retention.check.interval.ms", "log.cleaner.backoff.ms", "offsets.retention.minutes"


_LOCAL_ALONE: Final = Unknown.because("size", "tiered storage: brokers tell the size of the local part alone")


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
    topic_values = reader.topic_values(names, _TOPIC_KEYS)
    broker_values = reader.broker_values(sorted(metadata.brokers), (_CHECK, _CLEANER, _OFFSETS))
    chosen = [metadata.topics[name] for name in names]
    leaders = {TopicPartition(topic.name, n): one for topic in chosen for n, one in topic.partitions.items()}
    partitions = _read_partitions(reader, leaders, clock_ms, progress)
    topics = []
    for topic in chosen:
        settings = _settings(topic_values[topic.name])
        states = [partitions[TopicPartition(topic.name, n)] for n in sorted(topic.partitions)]
        if settings.tiered is True:
            states = [replace(one, size_bytes=_LOCAL_ALONE) for one in states]
        topics.append(
            TopicState(
                name=topic.name,
                internal=topic.internal,
                settings=settings,
                check_interval_ms=_check_interval(topic, settings, broker_values),
                offsets_retention_ms=_offsets_retention(broker_values),
                partitions=tuple(states),
            )
        )
    touched = (one.name for one in topics if one.name in policies and not one.untouched(policies[one.name]))
    judged = {name: policies[name] for name in touched}
    notes = () if policy is None else tuple(_unmanaged(names, judged, policy))
    return Reading(clock_ms(), metadata.cluster_id, reader.settings.bootstrap, topics, judged, notes)


def read_settings(
    reader: ClusterReader, metadata: ClusterMetadata, names: Sequence[str]
) -> dict[str, tuple[TopicSettings, Maybe[int]]]:
    """Return topics' live settings, and how often their brokers look for expired segments (ms)."""
    topic_values = reader.topic_values(names, _TOPIC_KEYS)
    broker_values = reader.broker_values(sorted(metadata.brokers), (_CHECK, _CLEANER))
    found = {name: _settings(topic_values[name]) for name in names}
    return {name: (one, _check_interval(metadata.topics[name], one, broker_values)) for name, one in found.items()}


def _choose(
    metadata: ClusterMetadata, patterns: Sequence[str], policy: Policy | None
) -> tuple[list[str], dict[str, Settings]]:
    for pattern in patterns:
        if not any(matches((pattern,), name) for name in metadata.topics):
            raise NothingMatchesError(f"no topic matches {pattern!r} (or this user lacks DESCRIBE on it)")
    names = sorted(
        name
        for name, topic in metadata.topics.items()
        if (name in patterns if topic.internal else not patterns or matches(patterns, name))
    )
    policies = {}
    for name in names if policy is not None else ():
        assert policy is not None  # noqa: S101  (for the type checker: checked above)
        if (settings := policy.settings_for(name)) is not None:
            policies[name] = settings
    if policy is not None and not patterns:
        if not policies:
            raise NothingMatchesError(f"{policy.source}: no entry matches any of the cluster's topics")
        names = list(policies)
    return names, policies


def _unmanaged(names: Iterable[str], policies: Mapping[str, Settings], policy: Policy) -> Iterable[Reason]:
    others = [name for name in names if name not in policies]
    if others:
        some = ", ".join(others[:3]) + (f" and {len(others) - 3:,} more" if len(others) > 3 else "")
        yield Reason("policy", f"{policy.source} does not manage {some}: judged without it")


# -- settings ----------------------------------------------------------------


def _settings(values: Values | RequestFailedError) -> TopicSettings:
    def word(key: str) -> Maybe[str]:
        if isinstance(values, RequestFailedError):
            return Unknown.because("topic-settings", f"the topic's settings can't be read: {values}")
        value = values.get(key)
        return Unknown.because("topic-settings", f"the brokers name no {key}") if value is None else value

    def number(key: str) -> Maybe[int]:
        value = word(key)
        return value if isinstance(value, Unknown) else int(value)

    def limit(*keys: str) -> Maybe[int | None]:
        found = [one for one in map(word, keys) if not isinstance(one, Unknown)]
        if not found:
            return number(keys[0])
        limits = [int(one) for one in found if one not in _NO_LIMIT]
        return limits[0] if limits else None

    policy, tiered = word("cleanup.policy"), word("remote.storage.enable")
    return TopicSettings(
        cleanup_policy=policy
        if isinstance(policy, Unknown)
        else frozenset(one.strip() for one in policy.split(",") if one.strip()),
        retention_ms=limit("retention.ms"),
        retention_bytes=limit("retention.bytes"),
        segment_ms=number("segment.ms"),
        segment_bytes=number("segment.bytes"),
        timestamp_type=word("message.timestamp.type"),
        before_max_ms=limit(*_BEHIND),
        after_max_ms=limit(*_AHEAD),
        delete_delay_ms=number("file.delete.delay.ms"),
        # A broker before 3.6 has neither this setting nor tiered storage.
        tiered=policy if isinstance(policy, Unknown) else tiered == "true",
    )


_BrokerValues = Mapping[int, Values | RequestFailedError]


def _check_interval(topic: TopicMetadata, settings: TopicSettings, brokers: _BrokerValues) -> Maybe[int]:
    """Return the longest check interval of the brokers with a replica. A compacted topic is checked by the cleaner."""
    policy = settings.cleanup_policy
    if isinstance(policy, Unknown):
        return policy
    holding = {broker for one in topic.partitions.values() for broker in one.replicas} & brokers.keys()
    found = [
        _number(broker, brokers[broker], _CLEANER if "compact" in policy else _CHECK) for broker in sorted(holding)
    ]
    return _combined(found, max)


def _offsets_retention(brokers: _BrokerValues) -> Maybe[int]:
    minutes = _combined([_number(broker, values, _OFFSETS) for broker, values in sorted(brokers.items())], min)
    return minutes if isinstance(minutes, Unknown) else minutes * MINUTE


def _number(broker: int, values: Values | RequestFailedError, key: str) -> Maybe[int]:
    if isinstance(values, RequestFailedError):
        return Unknown.because("broker-settings", f"broker {broker}'s settings can't be read: {values}")
    value = values.get(key)
    return Unknown.because("broker-settings", f"broker {broker} names no {key}") if value is None else int(value)


def _combined(found: Sequence[Maybe[int]], choose: Callable[[Iterable[int]], int]) -> Maybe[int]:
    known = [one for one in found if not isinstance(one, Unknown)]
    if len(known) < len(found):
        return next(one for one in found if isinstance(one, Unknown))
    return choose(known) if known else Unknown.because("broker-settings", "no broker that has it is there")


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
        topics = reader.metadata({tp.topic for tp in again}).topics
        moved = {
            tp: topics[tp.topic].partitions[tp.partition]
            for tp in again
            if tp.topic in topics and tp.partition in topics[tp.topic].partitions
        }
        found |= _read_once(reader, moved, clock_ms, progress)[0]
    return found


def _read_once(
    reader: ClusterReader, leaders: Leaders, clock_ms: Callable[[], int], progress: Progress
) -> tuple[dict[TopicPartition, PartitionState], set[TopicPartition]]:
    progress("log ends")
    ends: tuple[Spec, ...] = ("earliest", "latest")
    starts, highs = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in ends], leaders)
    progress("traffic")  # after the high watermarks: records that arrive meanwhile must not look like an empty hour
    hour, day = Ago(now := clock_ms(), HOUR), Ago(now, DAY)
    times: tuple[Spec, ...] = ("max-timestamp", hour.since_ms, day.since_ms)
    newests, hours, days = reader.list_offsets([dict.fromkeys(leaders, spec) for spec in times], leaders)
    progress("sizes on disk")
    sizes, problem = reader.sizes(leaders)
    no_size = Unknown.because("size", f"sizes on disk are not known: {problem or 'left out of the answer'}")
    found, again = {}, set()
    for tp in leaders:
        answers = (starts[tp], highs[tp], newests[tp], hours[tp], days[tp])
        if (
            any(isinstance(one, RequestFailedError) and one.retriable for one in answers)
            and leaders[tp].leader is not None
        ):
            again.add(tp)
        start, end = _offset(starts[tp]), _offset(highs[tp])
        newest = _newest(_stamp(newests[tp]), start, end)
        found[tp] = PartitionState(
            number=tp.partition,
            log_start=start,
            high_watermark=end,
            size_bytes=sizes.get(tp, no_size),
            last_hour=_measured(start, end, _stamp(hours[tp]), newest, hour),
            last_day=_measured(start, end, _stamp(days[tp]), newest, day),
            newest=newest,
        )
    return found, again


def _newest(answer: Maybe[Stamp | None], start: Maybe[int], end: Maybe[int]) -> Maybe[Stamp | None]:
    if answer is None and start != end:
        return Unknown.because("traffic", "the broker names no newest record")
    return answer


def _measured(
    start: Maybe[int], end: Maybe[int], first: Maybe[Stamp | None], newest: Maybe[Stamp | None], ago: Ago
) -> Maybe[Window]:
    if isinstance(start, Unknown):
        return start
    return end if isinstance(end, Unknown) else measured(start, end, first, newest, ago)


def _offset(answer: Answer) -> Maybe[int]:
    if isinstance(answer, Found):
        return answer.offset
    return Unknown.because("offsets", f"the log's ends can't be read: {_why(answer)}")


def _stamp(answer: Answer) -> Maybe[Stamp | None]:
    if isinstance(answer, RequestFailedError):
        return Unknown.because("traffic", f"offsets by time can't be read: {answer}")
    if isinstance(answer, Found):
        return None if answer.timestamp is None else Stamp(answer.offset, answer.timestamp)
    return None


def _why(answer: Answer) -> str:
    return str(answer) if isinstance(answer, RequestFailedError) else "the broker names none"
