"""Create, check and read kretain's own topics (docs/live-settings.md).

Of the policy topic, also change the settings that the file marks ``cluster``; and what the shared ledger does with its
own topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.metadata import TopicMetadata
from retention_cli.brokers.reader import WRITE, ClusterReader
from retention_cli.brokers.records import Range
from retention_cli.brokers.writer import Appended, ClusterWriter
from retention_cli.core.commands import grant_line, kafka_tool
from retention_cli.core.errors import hinted
from retention_cli.core.model import Code, Reason, TopicPartition, Unknown
from retention_cli.decide.guards.our_clock import compare_clocks
from retention_cli.policy.live import (
    POLICY_TOPIC,
    LiveEditError,
    Message,
    check_topic,
    last_message,
    live_settings,
    valid_settings,
)
from retention_cli.policy.model import LiveSettings, Policy

STATE_TOPIC: Final = "_kretain_state"
PROTECTED_TOPIC: Final = "_kretain_protected"
OWN_TOPICS: Final = (POLICY_TOPIC, STATE_TOPIC)
_REPLICAS: Final = 3
_IN_SYNC: Final = 2
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    POLICY_TOPIC: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    STATE_TOPIC: {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "segment.bytes": "67108864",  # the cleaner skips the active segment, and a new reader reads all of it
        "delete.retention.ms": "2592000000",  # 30 days: a reader that was away for less still sees tombstones
    },
    PROTECTED_TOPIC: {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
}


def topic_ranges(reader: ClusterReader, topic: str) -> tuple[TopicMetadata, dict[TopicPartition, Range]]:
    """Return the metadata of one of these topics, and the offsets that can be read, by partition.

    Raises:
        BrokerError: it does not exist, can't be read, or lacks messages that count: some were deleted, or an open
            transaction hides acknowledged ones. Or brokers do not agree.
    """
    metadata = reader.metadata([topic])
    if not reader.agree(metadata.brokers):  # the log of a leader that is none any more lacks later messages
        raise RequestFailedError(
            f"brokers name different brokers, so topic {topic} is not read: run again", retriable=True
        )
    if topic not in metadata.topics:
        init = f"kretain cluster init{' --protect' if topic == PROTECTED_TOPIC else ''}"
        raise hinted(BrokerError(f"topic {topic} does not exist, or this user may not read it: {init} creates it"), "")
    ranges: dict[TopicPartition, Range] = {}
    leaders = metadata.partitions_of()
    ends = reader.extents(leaders)  # before those of transactions: what arrives in between is not hidden
    for tp, there in reader.extents(leaders, "last-stable").items():
        end = ends[tp]
        if isinstance(there, RequestFailedError) or isinstance(end, RequestFailedError):
            why = there if isinstance(there, RequestFailedError) else end
            raise RequestFailedError(f"{tp} could not be read: {why}", retriable=True)
        if there.end < end.end:
            tool = kafka_tool("kafka-transactions.sh", "find-hanging", "--topic", topic)
            text = f"an open transaction hides {tp} from offset {there.end:,} on. End it, or abort it ({tool} finds it)"
            raise hinted(RequestFailedError(text, retriable=True), "")
        if there.start > 0 and topic in OWN_TOPICS:  # compaction leaves it at 0
            what = f"the messages of topic {topic} before offset {there.start:,} were deleted, not compacted"
            raise BrokerError(f"{what}: {_anew(topic)}")
        ranges[tp] = there
    return metadata.topics[topic], ranges


def _anew(topic: str) -> str:
    tool = kafka_tool("kafka-topics.sh", "--delete", "--topic", topic)
    return f"delete it ({tool}) and run kretain cluster init again"


def read_stored(reader: ClusterReader, ranges: Mapping[TopicPartition, Range]) -> list[Message]:
    """Return the messages at these offsets, sorted by partition and offset.

    Raises:
        BrokerError: not all of them could be read within the time-out.
    """
    found: list[Message] = []

    def on_record(tp: TopicPartition, message: Any) -> None:
        found.append(
            Message(tp.partition, message.offset(), message.key(), message.value(), message.timestamp()[1], tp.topic)
        )

    for tp, error in reader.read_ranges(ranges, reader.clock.monotonic() + reader.timeout_s, on_record).items():
        if error is not None:
            raise RequestFailedError(f"{tp} could not be read: {error}", retriable=True)
    return sorted(found, key=lambda one: one[:2])


def extent_of(reader: ClusterReader, topic: str) -> tuple[str, Range]:
    """Return which log one of these topics has, which has one partition, and the offsets that it has now.

    The log is the topic's id and its leader epoch: as long as both are the same, the log has only grown (M1).

    Raises:
        BrokerError: it has several partitions, or see :func:`topic_ranges`.
    """
    found, ranges = topic_ranges(reader, topic)
    if len(ranges) != 1:
        raise BrokerError(f"topic {topic} must have one partition: kretain cluster init shows how to fix it")
    (there,) = ranges.values()
    return f"{found.topic_id} {found.partitions[0].leader_epoch}", there


def wrong_settings(reader: ClusterReader, topic: str, unable: str = "") -> str | None:
    """Return what is wrong with a topic's settings and the command that fixes it, None if nothing is.

    Raises:
        BrokerError: they can't be read; the text begins with ``unable``.
    """
    if isinstance(config := reader.topic_configs([topic])[topic], RequestFailedError):
        raise BrokerError(f"{unable}the settings of topic {topic} can't be read: {config}")
    wrong = {}
    if config.cleanup_policy != {"compact"}:
        wrong["cleanup.policy"] = "/".join(sorted(config.cleanup_policy))
    if topic != POLICY_TOPIC and config.timestamp_type != "LogAppendTime":
        wrong["message.timestamp.type"] = str(config.timestamp_type)
    if not wrong:
        return None
    right = ",".join(f"{key}={_CONFIGS[topic][key]}" for key in wrong)
    return f"topic {topic} has {' and '.join(f'{key}={value}' for key, value in wrong.items())}: " + kafka_tool(
        *("kafka-configs.sh", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", right)
    )


@dataclass(frozen=True, slots=True)
class Initialized:
    """One of these topics: just made, already there, there but wrong (``problem``), or missing: it would be made."""

    topic: str
    outcome: Literal["made", "there", "wrong", "missing"]
    partitions: int
    replicas: int
    problem: str | None = None


def initialize(
    reader: ClusterReader,
    writer: ClusterWriter | None,
    replication_factor: int | None = None,
    topics: Sequence[str] = OWN_TOPICS,
) -> Iterator[Initialized]:
    """Create the missing ones of these topics, check those that exist, and yield each result.

    Without a writer, make nothing, and yield what would be found and made.

    Raises:
        BrokerError: a topic could not be created, or the cluster or a topic's settings can't be read.
    """
    metadata = reader.metadata()
    copies = min(_REPLICAS, len(metadata.brokers)) if replication_factor is None else replication_factor
    for topic in topics:
        seen, made = metadata.topics.get(topic), False
        if writer is not None:
            config = {**_CONFIGS[topic], "min.insync.replicas": str(_IN_SYNC if copies >= _REPLICAS else 1)}
            seen, made = _made(reader, writer, topic, copies, config)
        yield Initialized(topic, "missing", 1, copies) if seen is None else _looked_at(reader, seen, made=made)


def _made(
    reader: ClusterReader, writer: ClusterWriter, topic: str, copies: int, config: Mapping[str, str]
) -> tuple[TopicMetadata, bool]:
    """Create the topic if it is missing, wait for its leaders, and return it and whether we created it."""
    deadline = reader.clock.monotonic() + reader.timeout_s
    tried = made = False
    while True:
        seen = reader.metadata([topic]).topics.get(topic)
        if seen is not None and seen.partitions and all(one.leader is not None for one in seen.partitions.values()):
            return seen, made
        if seen is None and not tried:
            made, tried = writer.create(topic, copies, config), True
        if reader.clock.monotonic() > deadline:
            if seen is None:  # it was made, by us or by others
                raise RequestFailedError(
                    f"topic {topic} exists, but this user may not describe it; grant it: "
                    f"{grant_line('Describe', 'topic', topic)}",
                    retriable=False,
                )
            raise RequestFailedError(f"topic {topic} has no leader after {reader.timeout_s:g} s", retriable=True)
        reader.clock.sleep(0.1)


def _looked_at(reader: ClusterReader, seen: TopicMetadata, *, made: bool) -> Initialized:
    partitions, replicas = len(seen.partitions), len(seen.partitions[0].replicas)
    problem = wrong_settings(reader, seen.name)
    if partitions != 1:
        problem = (
            f"topic {seen.name} has {partitions} partitions, not 1, so the order of its messages is unknown: "
            f"{_anew(seen.name)}"
        )
    elif problem is None and not made:
        try:
            topic_ranges(reader, seen.name)
        except BrokerError as error:
            problem = str(error)
    outcome: Literal["made", "there", "wrong"] = "made" if made else "there"
    return Initialized(seen.name, "wrong" if problem else outcome, partitions, replicas, problem)


class StateTopic:
    """The topic, of one partition, compacted, and stamped by its brokers. It writes to that topic only."""

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader
        self._writer = ClusterWriter(reader.pinned_settings, {STATE_TOPIC}, reader.timeout_s)

    def check(self) -> None:
        """Check that the topic keeps its messages, and that brokers stamp them.

        Raises:
            BrokerError: it does not, or they don't; or that can't be read.
        """
        self.extent()  # its error for a missing topic is clearer than that of the settings
        if (problem := wrong_settings(self._reader, STATE_TOPIC)) is not None:
            raise BrokerError(problem)

    def extent(self) -> tuple[str, Range]:
        """Return which log the topic has now (:func:`extent_of`), and its offsets.

        Raises:
            BrokerError: see there.
        """
        return extent_of(self._reader, STATE_TOPIC)

    def read(self, start: int, end: int) -> list[Message]:
        """Return the messages of these offsets, in order.

        Raises:
            BrokerError: not all of them could be read.
        """
        return read_stored(self._reader, {TopicPartition(STATE_TOPIC, 0): Range(start, end)})

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> list[Appended | BrokerError]:
        """Append messages (key and value), in order; return the place of each, or its error."""
        return self._writer.append_all(STATE_TOPIC, messages)

    def connect(self) -> None:
        """Connect in the background, to append later."""
        self._writer.connect()

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()


PATIENCE_S: Final = 10.0
"""How long to wait for the brokers' time (s): much shorter than a recheck stays valid."""


class BrokerClock:
    """Compares our clock with the brokers' each time it is called.

    ``compared``: a comparison was possible at least once.
    """

    def __init__(self, reader: ClusterReader, clock_ms: Callable[[], int]) -> None:
        self.compared = False
        self._clock_ms = clock_ms
        self._writer = ClusterWriter(reader.pinned_settings, {STATE_TOPIC}, min(reader.timeout_s, PATIENCE_S))

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()

    def compare(self) -> Unknown | None:
        """Return why our clock can't be trusted, None if it is within 60 s of the brokers'.

        If the brokers' time can't be read, that is the reason: rules that use our clock hold then.
        """
        from retention_cli.state import messages

        before = self._clock_ms()
        value = messages.encode(None, messages.Written(before, 0))
        try:
            stamp = self._writer.append(STATE_TOPIC, messages.CLOCK_KEY.encode(), value).broker_ms
        except BrokerError as error:
            return Unknown.because(Code.G8, f"the brokers' time could not be read (state: cluster): {error}")
        if stamp is None:
            return Unknown.because(
                Code.G8,
                f"the brokers' time could not be read: the brokers don't stamp {STATE_TOPIC} "
                f"(message.timestamp.type): kretain cluster init shows why",
            )
        self.compared = True
        return compare_clocks(before, stamp, self._clock_ms())


_ROUNDS: Final = 5
_NOTED: Final = 5
"""A plan names this many messages without effect, and counts the others."""


def with_live(reader: ClusterReader, policy: Policy) -> Policy:
    """Return the policy with the policy topic's current settings; unchanged if it marks none ``cluster``.

    Settings that can't be read are unknown, and hold the topics that need them.
    """
    if not policy.any_live:
        return policy
    try:
        live = live_settings(policy, read_messages(reader))
    except BrokerError as error:
        unread = Unknown.because("policy-topic", f"settings marked cluster are unknown: {error}")
        return replace(policy, live=LiveSettings(unread=unread))
    if (more := len(live.notes) - _NOTED) > 0:
        text = f"{more:,} more messages of the policy topic are ignored: kretain policy list shows them"
        live = replace(live, notes=(*live.notes[:_NOTED], Reason("policy-topic", text)))
    return replace(policy, live=live)


def read_messages(reader: ClusterReader) -> list[Message]:
    """Return every message of the policy topic, in order.

    Raises:
        BrokerError: it does not exist, can't be read, or does not have exactly one partition, so the order of its
            messages is unknown.
    """
    _, ranges = topic_ranges(reader, POLICY_TOPIC)
    if len(ranges) != 1:
        raise BrokerError(
            f"topic {POLICY_TOPIC} has {len(ranges)} partitions, not 1, so the order of its messages is unknown: "
            f"{_anew(POLICY_TOPIC)}"
        )
    return read_stored(reader, ranges)


@dataclass(frozen=True, slots=True)
class Changed:
    """A topic's new message: its settings (None: it was deleted), its offset, and the settings it corrected.

    A dry run has no partition and no offset.
    """

    topic: str
    values: dict[str, Any] | None
    partition: int | None
    offset: int | None
    corrected: tuple[str, ...] = ()


def change(
    reader: ClusterReader,
    writer: ClusterWriter,
    policy: Policy | None,
    topic: str,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    dry_run: bool = False,
) -> Changed:
    """Edit a topic's settings, as they were written, in one message; a tombstone if no setting is left.

    Invalid settings in the current message held the topic: they are left out of the new one, and returned
    (``corrected``). If another writer's message about the topic lands in between, the edit is applied to that one, too.
    A ``dry_run`` writes nothing.

    Raises:
        LiveEditError: the edit was refused, and nothing was written; or others kept writing about the topic.
        BrokerError: the policy topic does not exist, or can't be read or written.
    """
    check_topic(topic)
    reader.check_offers(WRITE, "live settings can't be changed")
    ours: set[int] = set()
    for _ in range(_ROUNDS):
        messages = [one for one in read_messages(reader) if one.offset not in ours]
        word = last_message(messages, policy, topic)
        after = valid_settings(policy, topic, edit({} if word is None else dict(word.written)))
        if not after and word is None:
            raise LiveEditError(f"the policy topic has no settings for topic {topic}")
        corrected = () if word is None else word.problems
        if dry_run:
            return Changed(topic, after or None, None, None, corrected)
        value = json.dumps(after, ensure_ascii=False, sort_keys=True).encode() if after else None
        at = writer.append(POLICY_TOPIC, topic.encode(), value)
        ours.add(at.offset)
        last = messages[-1].offset if messages else -1
        between = [one for one in read_messages(reader) if last < one.offset < at.offset and one.key == topic.encode()]
        if all(one.offset in ours for one in between):
            return Changed(topic, after or None, at.partition, at.offset, corrected)
    raise LiveEditError(
        f"another client keeps writing settings of topic {topic}: yours are at offset {at.offset:,}, and its own may "
        f"be lost; kretain policy list shows which count"
    )
